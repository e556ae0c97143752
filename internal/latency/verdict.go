package latency

import (
	"fmt"
	"time"

	"github.com/example/redis-operator/internal/metrics"
)

// Verdict names the step that is to blame, and what that usually means.
type Verdict struct {
	// Number is 1 to 11; 11 also when nothing is slow.
	Number int `json:"number"`
	// Step is its name among the metrics.
	Step metrics.Step `json:"step"`
	// Slow: something takes longer than it should. Otherwise the step is the one that
	// takes the most time, as it may.
	Slow bool `json:"slow"`
	// Text is one line for people.
	Text string `json:"text"`
}

const (
	// muchOfTheTime is the share from which a step other than the last is to blame,
	// however long one of it takes; someOfTheTime is that of a step whose length is
	// more than usual.
	muchOfTheTime, someOfTheTime = .25, .05
	// aMoment is what no step is blamed for below, in seconds: shares of nearly nothing
	// say nothing.
	aMoment = .05
)

// usual is what 95 of 100 take at most where all is well, in seconds. They are far above
// what a healthy cluster shows, and far below what a person notices.
var usual = map[metrics.Step]float64{
	metrics.Store: .1, metrics.Watch: .25, metrics.Worker: .1, metrics.Read: .01, metrics.ObserveKubernetes: .1, metrics.ObserveRedis: .1,
	metrics.Plan: .05, metrics.Act: 1, metrics.Status: .25,
}

// verdict picks, of the steps that are slow, the one that has taken the most time.
func (s Samples) verdict(r *Report) Verdict {
	var worst *Row
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Step != metrics.Wait && s.slow(row) && (worst == nil || row.Seconds > worst.Seconds) {
			worst = row
		}
	}
	switch {
	case worst != nil:
		return Verdict{Number: worst.Number, Step: worst.Step, Slow: true, Text: fmt.Sprintf("step %d is slow, %s of the time (%.0f%%): %s",
			worst.Number, Seconds(worst.Seconds), worst.Share*100, s.meaning(worst))}
	case r.AtRest:
		return Verdict{Number: 11, Step: metrics.Wait, Text: "nothing is slow: no cluster has changed since the manager started, and looking at them takes little"}
	}
	last := r.Rows[len(r.Rows)-1]
	return Verdict{Number: 11, Step: metrics.Wait, Text: fmt.Sprintf("nothing is slow in the operator: step 11 is %.0f%% of the time, in which Pods start and Redis agrees",
		last.Share*100)}
}

// slow tells whether a step is to blame for something.
func (s Samples) slow(row *Row) bool {
	if row.Seconds < aMoment {
		return false
	}
	typical := row.P95
	if row.Step == metrics.ObserveKubernetes { // live reads count here wherever they are made
		if live := known(s.histogram("api_request_duration_seconds", labels{"verb": reads}).quantile(.95)); live != nil && (typical == nil || *live > *typical) {
			typical = live
		}
	}
	limit, measured := usual[row.Step]
	return row.Share >= muchOfTheTime || row.Share >= someOfTheTime && (!measured || typical != nil && *typical > limit)
}

// meaning is what it usually means that a step is slow, and where to look.
func (s Samples) meaning(row *Row) string {
	switch row.Step {
	case metrics.Submit:
		return "the API server answers 429, too many requests: look at its priority and fairness (apiserver_flowcontrol_…) and at who else asks that much"
	case metrics.Store:
		return s.slowWrites()
	case metrics.Watch:
		return "what the API server has stored comes back late by the watch of " + s.slowest("watch_lag_seconds", "resource", nil) +
			": a proxy or load balancer between holds the stream back, or the API server's watch cache lags"
	case metrics.Requeue:
		return "passes fail and are repeated after a delay that grows: the reason is in the condition Ready and in the manager's log"
	case metrics.Worker:
		return "all workers are busy with other clusters: see which step of their passes is long, or whether the manager lacks CPU"
	case metrics.Read, metrics.Plan:
		return "it needs nothing but the manager's own CPU and memory: look at its limits and whether it is throttled"
	case metrics.ObserveKubernetes:
		verb := s.slowest("api_request_duration_seconds", "verb", labels{"verb": reads})
		return "the API server answers reads late, most of all " + verb + ": look at its load and at the network to it"
	case metrics.ObserveRedis:
		return "Redis nodes answer late or not at all: a slow command blocks them (SLOWLOG), they lack CPU, or the network to their Pods is slow"
	case metrics.Act:
		return "Redis commands take long, most of all " + s.slowest("redis_exchange_duration_seconds", "command", nil) +
			": large keys on the move, or nodes that lack CPU"
	case metrics.Status:
		return "it is computed slowly: look at the manager's CPU"
	}
	return ""
}

// slowWrites tells a slow store from a slow way to the API server: reads of one object
// need its store too, but not its disk.
func (s Samples) slowWrites() string {
	write := s.histogram("api_request_duration_seconds", labels{"verb": writes}).quantile(.95)
	read := s.histogram("api_request_duration_seconds", labels{"verb": reads})
	what := "writes take long, most of all " + s.slowest("api_request_duration_seconds", "verb", labels{"verb": writes})
	if read.count > 0 && read.quantile(.95) < write/4 {
		return what + ", while reads are quick: look at the disk of etcd (etcd_disk_wal_fsync_duration_seconds) and at admission webhooks"
	}
	return what + ": look at the API server's load, its admission webhooks, the disk of etcd, and the network to it"
}

// slowest is the value of a label whose 95th percentile is the longest, with that.
func (s Samples) slowest(name, label string, l labels) string {
	worst, value := -1.0, "unknown"
	for _, v := range s.values(name, label, l) {
		of := labels{label: {v}}
		if p95 := s.histogram(name, of).quantile(.95); p95 > worst {
			worst, value = p95, v
		}
	}
	if worst < 0 {
		return value
	}
	return fmt.Sprintf("%s (p95 %s)", value, Seconds(worst))
}

// Seconds writes a time for people: three digits at most, and its unit.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", s*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", s*1e3)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", s)
	case d < 100*time.Second:
		return fmt.Sprintf("%.1fs", s)
	}
	return d.Round(time.Second).String()
}
