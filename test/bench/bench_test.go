package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/example/redis-operator/test/kube"
)

// logLine is an audit event as the API server writes it, shortened.
func logLine(id, user, verb, stage, object string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"` + id + `","stage":"` + stage +
		`","requestURI":"/x","verb":"` + verb + `","user":{"username":"` + user + `"},"objectRef":` + object +
		`,"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-03-01T10:00:00.123456Z"}` + "\n"
}

func TestRequestsAreCountedOnceAndByClass(t *testing.T) {
	const me = kube.OperatorUser
	lines := logLine("1", me, "patch", "ResponseComplete", `{"resource":"services","name":"orders"}`) +
		logLine("2", "system:admin", "patch", "ResponseComplete", `{"resource":"services","name":"orders"}`) +
		logLine("3", me, "watch", "ResponseStarted", `{"resource":"pods"}`) +
		logLine("3", me, "watch", "ResponseComplete", `{"resource":"pods"}`) +
		logLine("4", me, "update", "ResponseComplete", `{"resource":"leases","name":"l"}`) +
		logLine("5", me, "get", "ResponseComplete", `{"resource":"secrets","name":"s"}`) +
		logLine("6", me, "create", "ResponseComplete", `{"resource":"tokenreviews"}`) +
		logLine("7", me, "patch", "ResponseComplete", `{"resource":"redisclusters","subresource":"status","name":"orders"}`) +
		logLine("8", me, "list", "ResponseComplete", `{"resource":"pods"}`) +
		logLine("9", me, "get", "ResponseComplete", `null`)
	requests, err := requestsOf([]byte(lines), me)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[class]int{change: 2, watch: 1, lease: 1, read: 3, review: 1}, count(requests)); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"patch": 2, "get": 2, "list": 1}, byVerb(requests)); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
	if got := requests[5].String(); got != "patch redisclusters/status orders (200)" {
		t.Errorf("a request is shown as %q", got)
	}
	if requests[0].Received.Nanosecond() != 123456000 {
		t.Errorf("received at %s", requests[0].Received)
	}
	if _, err := requestsOf([]byte("no JSON\n"), me); err == nil {
		t.Error("a line that is no JSON was taken")
	}
}

func TestAuditLogIsReadAsItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	line := func(id string) string {
		return logLine(id, kube.OperatorUser, "get", "ResponseComplete", `{"resource":"secrets"}`)
	}
	add := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add(line("old"))
	log, err := openAuditLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err := log.skip(); err != nil {
		t.Fatal(err)
	}
	half := line("b")[:20]
	add(line("a") + half)
	look := func() (found []string) {
		requests, err := log.operatorRequests()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			found = append(found, r.AuditID)
		}
		return found
	}
	if got := look(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("first look: %q", got)
	}
	add(line("b")[20:] + line("c"))
	if got := look(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("second look: %q", got)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	add(line("d"))
	if _, err := log.operatorRequests(); err == nil || !strings.Contains(err.Error(), "rotated") {
		t.Errorf("after a rotation: %v", err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestFiguresAndBars(t *testing.T) {
	figures := []figure{
		newFigure("ready", "seconds", 4.318, "s"), newFigure("ready", "ratio", 2.0, "1"), newFigure("rest", "writes", 0, "requests"),
	}
	var lines strings.Builder
	if err := write(&lines, figures, false); err != nil {
		t.Fatal(err)
	}
	if want := "ready seconds 4.32 s\nready ratio 2 1\nrest writes 0 requests\n"; lines.String() != want {
		t.Errorf("printed\n%s, want\n%s", lines.String(), want)
	}
	if err := check(figures); err != nil {
		t.Errorf("good figures: %v", err)
	}
	err := check(append(figures, newFigure("rest", "writes", 1, "requests")))
	if err == nil || err.Error() != "rest writes 1 requests, the bar is 0" {
		t.Errorf("a broken bar: %v", err)
	}
	if err := check([]figure{newFigure("backup", "ratio", 0.9, "1")}); err != nil {
		t.Errorf("a good figure that must be high: %v", err)
	}
	err = check([]figure{newFigure("backup", "ratio", 0.89, "1")})
	if err == nil || err.Error() != "backup ratio 0.89 1, the bar is at least 0.90" {
		t.Errorf("a figure that is too low: %v", err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"ready", "-json", "rest", "-n", "5", "-rest-minutes=0.5"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.scenarios, []string{"ready", "rest"}) || !o.json || o.check || o.runs != 5 || o.rest != 30*time.Second || o.settle != 5*time.Minute {
		t.Errorf("parsed %+v", o)
	}
	for _, arguments := range [][]string{{}, {"fast"}, {"ready", "-n", "0"}, {"rest", "-rest-minutes", "0"}} {
		if _, err := parse(arguments); err == nil {
			t.Errorf("%q was taken", arguments)
		}
	}
}

func TestP99(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i))
	}
	if got := p99(all); got != 199 {
		t.Errorf("of 1 to 200: %d", got)
	}
	if got := p99(nil); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestDatasetFollowsFromItsNumbers(t *testing.T) {
	d := dataset{keys: 2}
	if a, b := d.value(1), d.value(2); len(a) != valueSize || a == b || a != d.value(1) {
		t.Errorf("%d bytes, %t", len(a), a == b)
	}
}

func TestOwnMemoryIsFound(t *testing.T) {
	rss, err := statusLine("/proc/self/status", "VmRSS:")
	if err != nil || rss < 1<<20 || rss > 1<<31 {
		t.Errorf("this process has %d bytes, %v", rss, err)
	}
	if _, err := residentMemory("no-such-pod"); err == nil {
		t.Error("a Pod that is not here has memory")
	}
}
