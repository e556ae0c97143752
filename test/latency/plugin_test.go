//go:build linux

package latency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// plugin runs `kubectl redis` and gives its exit code and what it printed.
func (l *lab) plugin(args ...string) (code int, out, errOut string) {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), filepath.Join(bin, "kubectl-redis"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestStatusOfARealCluster: the plugin shows what the operator has made.
func TestStatusOfARealCluster(t *testing.T) {
	l := newLab(t, options{})
	c := l.create("orders", 4, 2)
	l.await(c)
	redistest.Eventually(t, 20*time.Second, func() error { // the status of a Pod's link follows its readiness
		code, out, errOut := l.plugin("status", "orders")
		if code != 0 {
			return fmt.Errorf("status exits with %d:\n%s%s", code, out, errOut)
		}
		for _, part := range []string{"orders  Running  4 of 4 nodes ready, 2 shards, Redis " + c.Status.Version + "\n", " 0-8191 ", " 8192-16383 ", " 2/2 ", " up", "Ready "} {
			if !strings.Contains(out, part) {
				return fmt.Errorf("%q is not in:\n%s", part, out)
			}
		}
		return nil
	})
	if code, out, errOut := l.plugin("status", "cart"); code != 1 || !strings.Contains(errOut, `there is no RedisCluster "cart"`) {
		t.Errorf("status of nobody exits with %d:\n%s%s", code, out, errOut)
	}
}

// TestFailoverOfARealCluster: a replica takes its primary's place gracefully, the cluster
// stays what it is, and a request that is left behind moves nobody.
func TestFailoverOfARealCluster(t *testing.T) {
	l := newLab(t, options{})
	c := l.create("orders", 4, 2)
	l.await(c)
	from := c.Status.ShardStatuses[1].Primary
	code, out, errOut := l.plugin("failover", "orders", "--shard", "1", "-o", "json")
	if code != 0 {
		t.Fatalf("failover exits with %d:\n%s%s", code, out, errOut)
	}
	var told struct{ From, To string }
	if err := json.Unmarshal([]byte(out), &told); err != nil || told.From != from || told.To == "" || told.To == from {
		t.Fatalf("%v: %+v, want from %s to its replica", err, told, from)
	}
	l.await(c)
	l.role(told.To, redis.Primary)
	l.role(from, redis.Replica)
	s, err := l.samples()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Total("actions_total"); got == 0 || c.Status.ShardStatuses[1].Primary != told.To || len(c.Annotations) > 0 {
		t.Errorf("%g actions, primary %s, annotations %v", got, c.Status.ShardStatuses[1].Primary, c.Annotations)
	}
	// Graceful: nobody was forced.
	for _, m := range s["redis_operator_actions_total"].GetMetric() {
		for _, label := range m.GetLabel() {
			if kind := label.GetValue(); kind == "Force" || kind == "Takeover" {
				t.Errorf("somebody was promoted by %s", kind)
			}
		}
	}
}

// role fails the test unless the server of a Pod is what it should be.
func (l *lab) role(pod string, want redis.Role) {
	l.Helper()
	name := types.NamespacedName{Namespace: l.namespace, Name: pod}
	password, err := l.stand.Password(l.Context(), client.ObjectKey{Namespace: l.namespace, Name: "orders"})
	if err != nil {
		l.Fatal(err)
	}
	node := redis.Dialer{Username: "operator", Password: password}.Open(l.stand.Addresses()[name])
	defer func() { _ = node.Close() }()
	state, err := node.Probe(l.Context())
	if err != nil || state.Role != want {
		l.Errorf("%s is a %v, want a %v: %v", pod, state.Role, want, err)
	}
}
