package latency

import (
	"compress/gzip"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/example/redis-operator/internal/metrics"
)

// recorded are the metrics of a manager that has just made a cluster of three nodes.
func recorded(t *testing.T) Samples {
	t.Helper()
	f, err := os.Open("testdata/created.prom")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func analyse(t *testing.T, s Samples, namespace, name string) *Report {
	t.Helper()
	r, err := Analyse(s, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAHealthyCreation: eleven steps in twelve rows, whose shares are the whole, and
// nobody is to blame.
func TestAHealthyCreation(t *testing.T) {
	for _, name := range []string{"orders", ""} {
		r := analyse(t, recorded(t), "shop", name)
		var share, seconds float64
		number := 0
		for i, row := range r.Rows {
			share, seconds = share+row.Share, seconds+row.Seconds
			if row.Number < number || row.Number > number+1 || row.Step != metrics.Steps[i] {
				t.Errorf("row %d is step %d, %s", i, row.Number, row.Step)
			}
			number = row.Number
			if row.P50 != nil && (*row.P50 > *row.P95 || *row.P95 > *row.P99 || *row.P50 < 0) {
				t.Errorf("%s: p50 %g, p95 %g, p99 %g", row.Step, *row.P50, *row.P95, *row.P99)
			}
		}
		if math.Abs(share-1) > 1e-9 || math.Abs(seconds-r.Seconds) > 1e-9 || number != 11 {
			t.Errorf("shares add up to %g, seconds to %g of %g, the last step is %d", share, seconds, r.Seconds, number)
		}
		if r.AtRest || r.Changes != 1 || r.Passes != 28 || r.Seconds < 2 || r.Seconds > 3 {
			t.Errorf("%q: %+v", name, r)
		}
		if r.Verdict.Slow || r.Verdict.Number != 11 || !strings.Contains(r.Verdict.Text, "nothing is slow in the operator") {
			t.Errorf("verdict: %+v", r.Verdict)
		}
	}
}

// slower lets a step of the recording take more of the time.
func (s Samples) slower(step metrics.Step, seconds float64) Samples {
	for _, name := range []string{"rediscluster_last_change_step_seconds", "convergence_step_seconds_total"} {
		for _, m := range s[metrics.Prefix+name].GetMetric() {
			if !(labels{"step": {string(step)}}).fit(m) {
				continue
			}
			if m.Gauge != nil {
				*m.Gauge.Value += seconds
			} else {
				*m.Counter.Value += seconds
			}
		}
	}
	return s
}

// without forgets a metric.
func (s Samples) without(names ...string) Samples {
	for _, name := range names {
		delete(s, metrics.Prefix+name)
	}
	return s
}

// TestTheVerdictNamesTheStep that takes much of the time, whichever it is.
func TestTheVerdictNamesTheStep(t *testing.T) {
	for step, c := range map[metrics.Step]struct {
		number int
		want   string
	}{
		metrics.Submit: {1, "429"}, metrics.Store: {2, "writes take long, most of all"}, metrics.Watch: {3, "late by the watch of"},
		metrics.Requeue: {4, "passes fail"}, metrics.Worker: {5, "all workers are busy"}, metrics.Read: {6, "CPU"},
		metrics.ObserveKubernetes: {7, "answers reads late"}, metrics.ObserveRedis: {7, "Redis nodes answer late"}, metrics.Plan: {8, "CPU"},
		metrics.Act: {9, "Redis commands take long"}, metrics.Status: {10, "computed slowly"},
	} {
		for _, name := range []string{"orders", ""} {
			v := analyse(t, recorded(t).slower(step, 5), "shop", name).Verdict
			if !v.Slow || v.Step != step || v.Number != c.number || !strings.Contains(v.Text, c.want) {
				t.Errorf("%s: %+v, want step %d with %q", step, v, c.number, c.want)
			}
		}
	}
	// Five seconds of waiting for Pods are nobody's fault.
	if v := analyse(t, recorded(t).slower(metrics.Wait, 5), "shop", "orders").Verdict; v.Slow || v.Number != 11 {
		t.Errorf("waiting is blamed: %+v", v)
	}
	// Of two that are slow, the slower one.
	if v := analyse(t, recorded(t).slower(metrics.Store, 5).slower(metrics.ObserveRedis, 6), "shop", "orders").Verdict; v.Step != metrics.ObserveRedis {
		t.Errorf("of two: %+v", v)
	}
}

// TestAtRest: without any change the passes are looked at, and named if they are slow.
func TestAtRest(t *testing.T) {
	rest := func() Samples {
		return recorded(t).without("convergence_step_seconds_total", "convergence_seconds", "convergence_passes")
	}
	r := analyse(t, rest(), "", "")
	if !r.AtRest || r.Seconds <= 0 || r.Verdict.Number == 0 {
		t.Errorf("at rest: %+v", r)
	}
	s := rest()
	for _, m := range s[metrics.Prefix+"pass_step_duration_seconds"].GetMetric() {
		if (labels{"step": {"observe_redis"}}).fit(m) {
			*m.Histogram.SampleSum += 100
		}
	}
	if v := analyse(t, s, "", "").Verdict; !v.Slow || v.Step != metrics.ObserveRedis {
		t.Errorf("slow Redis at rest: %+v", v)
	}
}

// TestWhatIsNotThere is said with what there is instead.
func TestWhatIsNotThere(t *testing.T) {
	if _, err := Analyse(recorded(t), "shop", "cart"); err == nil || !strings.Contains(err.Error(), "it knows [orders] there") {
		t.Errorf("an unknown cluster: %v", err)
	}
	for text, want := range map[string]string{
		"": "there is no metric redis_operator_", "# TYPE up gauge\nup 1\n": "among the 1 of this endpoint", "<html>": "read the metrics",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestQuantiles are those of PromQL's histogram_quantile.
func TestQuantiles(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		h    histogram
		q    float64
		want float64
	}{
		"half of one bucket":     {histogram{count: 10, buckets: map[float64]float64{1: 10, inf: 10}}, .5, .5},
		"in the second":          {histogram{count: 10, buckets: map[float64]float64{1: 5, 3: 10, inf: 10}}, .75, 2},
		"above the last":         {histogram{count: 10, buckets: map[float64]float64{1: 5, 3: 6, inf: 10}}, .95, 3},
		"an empty bucket before": {histogram{count: 4, buckets: map[float64]float64{1: 0, 2: 4, inf: 4}}, .5, 1.5},
	} {
		if got := c.h.quantile(c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
	if got := (histogram{}).quantile(.5); !math.IsNaN(got) {
		t.Errorf("of nothing: %g", got)
	}
}

// TestSince: what was counted before is left out.
func TestSince(t *testing.T) {
	before, now := recorded(t), recorded(t)
	if got := now.QuantileSince(before, "queue_duration_seconds", .99); got != 0 {
		t.Errorf("of nothing since: %g", got)
	}
	h := now[metrics.Prefix+"queue_duration_seconds"].GetMetric()[0].GetHistogram()
	*h.SampleCount += 10
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() >= .05 {
			*b.CumulativeCount += 10
		}
	}
	if got := now.QuantileSince(before, "queue_duration_seconds", .5); math.Abs(got-.0375) > 1e-9 {
		t.Errorf("half of ten between 25 and 50 ms take %g", got)
	}
	if got := now.Total("redis_commands_total"); got < 100 || got != before.Total("redis_commands_total") {
		t.Errorf("%g commands", got)
	}
}

// TestSecondsForPeople.
func TestSecondsForPeople(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0", .00005: "50µs", .0042: "4.2ms", .25: "250ms", 1.234: "1.23s", 12.34: "12.3s", 125: "2m5s",
	} {
		if got := Seconds(s); got != want {
			t.Errorf("%g is %s, want %s", s, got, want)
		}
	}
}

// TestRecordedFaults: what managers have served while something was slow, as test/latency
// records it (-record), and the step that is named.
func TestRecordedFaults(t *testing.T) {
	for file, want := range map[string]metrics.Step{
		"NoFault": metrics.Wait, "Throttling": metrics.Submit, "ASlowDiskUnderEtcd": metrics.Store, "ASlowWatch": metrics.Watch,
		"FailingPasses": metrics.Requeue, "BusyWorkers": metrics.Worker, "ASlowRedis": metrics.ObserveRedis,
	} {
		f, err := os.Open("testdata/" + file + ".prom.gz")
		if err != nil {
			t.Fatal(err)
		}
		unzipped, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Read(unzipped)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		r := analyse(t, s, "shop", "orders")
		if r.Verdict.Step != want || r.Verdict.Slow != (want != metrics.Wait) {
			t.Errorf("%s: %+v, want %s", file, r.Verdict, want)
		}
		if want != metrics.Wait && r.Verdict.Text == "" {
			t.Errorf("%s: nothing is said of it", file)
		}
	}
}
