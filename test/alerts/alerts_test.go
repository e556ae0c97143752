// Package alerts tests the alerts of config/prometheus with Prometheus's own rules and
// query engine. It is a module of its own, so that the operator does not depend on
// Prometheus.
package alerts

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const root = "../../"

// loaded are the alerts of the PrometheusRule, by name.
func loaded(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	data, err := os.ReadFile(root + "config/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(data, &object); err != nil && !strings.Contains(err.Error(), "unknown field") {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.LegacyValidation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
	if len(errs) > 0 || object.Kind != "PrometheusRule" {
		t.Fatalf("kind %s: %v", object.Kind, errs)
	}
	out := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			out[rule.Alert] = rule
		}
	}
	return out
}

// step is the beat at which series are given and rules evaluated.
const step = 30 * time.Second

// fires evaluates one rule for a time over series, and gives the label sets for which
// it fires at its end.
func fires(t *testing.T, rule rulefmt.Rule, series string, after time.Duration) []string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 30s\n"+series)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query := rules.EngineQueryFunc(engine, storage)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0, labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations),
		labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	start := time.Unix(0, 0)
	for at := start; !at.After(start.Add(after)); at = at.Add(step) {
		if _, err := alert.Eval(context.Background(), 0, at, query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, a := range alert.ActiveAlerts() {
		if a.State == rules.StateFiring {
			out = append(out, a.Labels.String()+" "+a.Annotations.Get("summary"))
		}
	}
	slices.Sort(out)
	return out
}

// of are the labels of one cluster.
const of = `namespace="shop", name="orders"`

// cases are series, given every 30 seconds, and whether the alert fires after a time.
var cases = []struct {
	alert, name, series string
	after               time.Duration
	// fires is a part of what is fired; empty: nothing is.
	fires string
}{
	{"RedisClusterSlotsNotServed", "slots without a primary", `redis_operator_rediscluster_slots_unassigned{` + of + `} 5461x20`, 5 * time.Minute,
		"RedisCluster shop/orders: 5461 of 16384 slots have no primary"},
	{"RedisClusterSlotsNotServed", "for a failover only", `redis_operator_rediscluster_slots_unassigned{` + of + `} 5461 0x20`, 5 * time.Minute, ""},
	{"RedisClusterSlotsNotServed", "while it is made", `redis_operator_rediscluster_slots_unassigned{` + of + `} 16384x2 0x20`, time.Minute, ""},
	{"RedisClusterSlotsNotServed", "all served", `redis_operator_rediscluster_slots_unassigned{` + of + `} 0x20`, 5 * time.Minute, ""},

	{"RedisClusterNoReplicaInSync", "a shard without a copy", `redis_operator_rediscluster_shards_without_synced_replica{` + of + `} 1x40`, 15 * time.Minute,
		"RedisCluster shop/orders: 1 shards have no replica in sync"},
	{"RedisClusterNoReplicaInSync", "for a restart only", `redis_operator_rediscluster_shards_without_synced_replica{` + of + `} 1x6 0x40`, 15 * time.Minute, ""},

	{"RedisClusterBackupOverdue", "two hours late", `redis_operator_rediscluster_backup_due_timestamp_seconds{` + of + `} 600x400`, 150 * time.Minute,
		"RedisCluster shop/orders: no backup since it was due"},
	{"RedisClusterBackupOverdue", "it is being taken", `redis_operator_rediscluster_backup_due_timestamp_seconds{` + of + `} 600x400`, 40 * time.Minute, ""},
	{"RedisClusterBackupOverdue", "due tomorrow", `redis_operator_rediscluster_backup_due_timestamp_seconds{` + of + `} 86400x400`, 150 * time.Minute, ""},

	{"RedisClusterNotConverged", "for an hour", `redis_operator_rediscluster_not_converged_since_timestamp_seconds{` + of + `} 60x200`, time.Hour,
		"RedisCluster shop/orders: not as its spec asks for"},
	{"RedisClusterNotConverged", "for ten minutes", `redis_operator_rediscluster_not_converged_since_timestamp_seconds{` + of + `} 3000x200`, time.Hour, ""},
	{"RedisClusterNotConverged", "as it should be", `redis_operator_rediscluster_not_converged_since_timestamp_seconds{` + of + `} 0x200`, time.Hour, ""},

	{"RedisOperatorAPISlow", "writes take two seconds", requests("apply", 0, 10), 30 * time.Minute, "apply"},
	{"RedisOperatorAPISlow", "writes are quick", requests("apply", 10, 10), 30 * time.Minute, ""},
	{"RedisOperatorAPISlow", "nothing is asked", requests("apply", 0, 0), 30 * time.Minute, ""},
	{"RedisOperatorAPISlow", "a watch is open for long", requests("watch", 0, 10), 30 * time.Minute, ""},

	{"RedisOperatorWatchStalled", "a write does not come back", `redis_operator_watch_oldest_pending_seconds{resource="pods"} 0 30 60 90 120 150 180 210 240`, 4 * time.Minute,
		"pods"},
	{"RedisOperatorWatchStalled", "it comes back", `redis_operator_watch_oldest_pending_seconds{resource="pods"} 0 2 0 5 0 1 0 0 0`, 4 * time.Minute, ""},

	{"RedisOperatorAbsent", "nobody is there", `up 1x40`, 15 * time.Minute, "RedisOperatorAbsent"},
	{"RedisOperatorAbsent", "it works", `redis_operator_redisclusters_not_converged 0x40`, 15 * time.Minute, ""},
}

// requests are those of one verb: of so many more every 30 seconds so many take less
// than a second, and all of them less than two and a half.
func requests(verb string, quick, all int) string {
	var b strings.Builder
	for bound, n := range map[string]int{"1": quick, "2.5": all, "+Inf": all} {
		fmt.Fprintf(&b, "redis_operator_api_request_duration_seconds_bucket{verb=%q, resource=\"pods\", result=\"ok\", le=%q} 0+%dx100\n", verb, bound, n)
	}
	return b.String()
}

// TestAlerts fire when they should, and only then.
func TestAlerts(t *testing.T) {
	alerts := loaded(t)
	fired := map[string]bool{}
	for _, c := range cases {
		t.Run(c.alert+"/"+c.name, func(t *testing.T) {
			rule, ok := alerts[c.alert]
			if !ok {
				t.Fatal("there is no such alert")
			}
			got := fires(t, rule, c.series, c.after)
			switch {
			case c.fires == "" && len(got) > 0:
				t.Errorf("fires: %q", got)
			case c.fires != "" && (len(got) != 1 || !strings.Contains(got[0], c.fires)):
				t.Errorf("fires %q, want one with %q", got, c.fires)
			}
			fired[c.alert] = fired[c.alert] || c.fires != ""
		})
	}
	for name := range alerts {
		if !fired[name] {
			t.Errorf("no case lets %s fire", name)
		}
	}
}

// TestAlertsAreOfMetricsThatExist, and each has a severity, a summary, and a runbook.
func TestAlertsAreOfMetricsThatExist(t *testing.T) {
	page, err := os.ReadFile(root + "docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name, rule := range loaded(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for _, selectors := range parser.ExtractSelectors(expr) {
			for _, m := range selectors {
				if m.Name != model.MetricNameLabel {
					continue
				}
				used++
				if metric := suffix.ReplaceAllString(m.Value, ""); !strings.Contains(string(page), "\n## "+metric+"\n") {
					t.Errorf("%s asks for %s, which docs/metrics.md does not know", name, m.Value)
				}
			}
		}
		runbook, err := os.ReadFile(root + "docs/runbooks/alerts/" + name + ".md")
		if err != nil {
			t.Errorf("%s has no runbook: %v", name, err)
		}
		for _, part := range []string{"# " + name + "\n", "**What it means.** ", "**What the operator does.** ", "**What you do.** ", "\nkubectl "} {
			if !strings.Contains(string(runbook), part) {
				t.Errorf("%s.md has no %q", name, part)
			}
		}
		if used == 0 || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" ||
			!strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbooks/alerts/"+name+".md") {
			t.Errorf("%s: %d metrics, labels %v, annotations %v", name, used, rule.Labels, rule.Annotations)
		}
	}
	pages, err := os.ReadDir(root + "docs/runbooks/alerts")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if _, ok := loaded(t)[strings.TrimSuffix(page.Name(), ".md")]; !ok {
			t.Errorf("the runbook %s is of no alert", page.Name())
		}
	}
}
