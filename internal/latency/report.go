package latency

import (
	"fmt"
	"math"

	"github.com/example/redis-operator/internal/metrics"
)

// Row is one of the eleven steps. The seventh has two rows.
type Row struct {
	// Number is 1 to 11.
	Number int `json:"number"`
	// Step is its name among the metrics.
	Step metrics.Step `json:"step"`
	// Title says what happens in it.
	Title string `json:"title"`
	// Count is how often it happened since the manager started.
	Count float64 `json:"count"`
	// P50, P95 and P99 are how long one takes, in seconds; nil when there was none, or
	// when its length is not measured.
	P50 *float64 `json:"p50Seconds,omitempty"`
	P95 *float64 `json:"p95Seconds,omitempty"`
	P99 *float64 `json:"p99Seconds,omitempty"`
	// Seconds is what the step has taken of the time to converge, Share the same as a
	// part of 1. Each moment counts in one step.
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"`
}

// Report is how long everything took.
type Report struct {
	// Namespace and Name of the cluster whose last change Seconds and Share are of;
	// empty: of all changes of all clusters since the manager started.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// AtRest: nothing has changed since the manager started, so that Seconds and Share
	// are of the passes that looked, and found nothing to do.
	AtRest bool `json:"atRest"`
	// Changes is the number of changes that have ended, Passes that of passes in them.
	Changes float64 `json:"changes"`
	Passes  float64 `json:"passes"`
	// Seconds is the time of all of them.
	Seconds float64 `json:"seconds"`
	Rows    []Row   `json:"steps"`
	// Verdict names the step that is to blame.
	Verdict Verdict `json:"verdict"`
}

// source is where the length of one step comes from: a histogram, and the counter of
// how often it happened where that is another.
type source struct {
	number    int
	step      metrics.Step
	title     string
	histogram string
	labels    labels
	counter   string
}

var (
	clusters = []string{"rediscluster"}
	writes   = []string{"create", "apply", "patch", "update", "delete"}
	reads    = []string{"get", "list"}
)

func ofPass(step metrics.Step) labels { return labels{"controller": clusters, "step": {string(step)}} }

// sources are the steps in their order.
var sources = []source{
	{1, metrics.Submit, "the API server takes no more requests for now", "api_throttle_wait_seconds", nil, ""},
	{2, metrics.Store, "the API server checks and stores a write", "api_request_duration_seconds", labels{"verb": writes}, ""},
	{3, metrics.Watch, "the write comes back by the watch", "watch_lag_seconds", nil, ""},
	{4, metrics.Requeue, "the object is queued; after a failure it waits", "queue_backoff_seconds", labels{"controller": clusters}, "queue_wakeups_total"},
	{5, metrics.Worker, "it is due and waits for a worker", "queue_duration_seconds", labels{"controller": clusters}, ""},
	{6, metrics.Read, "the desired state is read", "pass_step_duration_seconds", ofPass(metrics.Read), ""},
	{7, metrics.ObserveKubernetes, "the children are read", "pass_step_duration_seconds", ofPass(metrics.ObserveKubernetes), ""},
	{7, metrics.ObserveRedis, "the Redis nodes are asked", "pass_step_duration_seconds", ofPass(metrics.ObserveRedis), ""},
	{8, metrics.Plan, "the next actions are decided", "pass_step_duration_seconds", ofPass(metrics.Plan), ""},
	{9, metrics.Act, "they are carried out", "pass_step_duration_seconds", ofPass(metrics.Act), ""},
	{10, metrics.Status, "the status is written", "pass_step_duration_seconds", ofPass(metrics.Status), ""},
	{11, metrics.Wait, "Pods start, Redis agrees; then the next pass", "convergence_wait_seconds", nil, ""},
}

// Analyse makes the report of one cluster's last change, or of all changes when the
// name is empty. It is an error if there is no such cluster, with the names of those
// that there are.
func Analyse(s Samples, namespace, name string) (*Report, error) {
	r := &Report{Namespace: namespace, Name: name}
	seconds := map[metrics.Step]float64{}
	if name != "" {
		of := labels{"namespace": {namespace}, "name": {name}}
		if _, found := s.sum("rediscluster_phase", of); !found {
			return nil, fmt.Errorf("the operator has no metrics of a RedisCluster %s in namespace %s; it knows %v there",
				name, namespace, s.values("rediscluster_phase", "name", labels{"namespace": {namespace}}))
		}
		for _, step := range metrics.Steps {
			of["step"] = []string{string(step)}
			seconds[step], _ = s.sum("rediscluster_last_change_step_seconds", of)
		}
		delete(of, "step")
		r.Passes, _ = s.sum("rediscluster_last_change_passes", of)
		if r.Passes > 0 {
			r.Changes = 1
		}
	} else {
		for _, step := range metrics.Steps {
			seconds[step], _ = s.sum("convergence_step_seconds_total", labels{"step": {string(step)}})
		}
		r.Changes = s.histogram("convergence_seconds", nil).count
		r.Passes = s.histogram("convergence_passes", nil).seconds
	}
	r.sumUp(seconds)
	if r.Seconds == 0 {
		r.AtRest = true
		r.sumUp(s.atRest())
	}
	r.rows(s, seconds)
	if r.AtRest {
		r.rows(s, s.atRest())
	}
	r.Verdict = s.verdict(r)
	return r, nil
}

func (r *Report) sumUp(seconds map[metrics.Step]float64) {
	r.Seconds = 0
	for _, s := range seconds {
		r.Seconds += s
	}
}

func (r *Report) rows(s Samples, seconds map[metrics.Step]float64) {
	r.Rows = nil
	for _, from := range sources {
		h := s.histogram(from.histogram, from.labels)
		row := Row{Number: from.number, Step: from.step, Title: from.title, Count: h.count, Seconds: seconds[from.step]}
		if from.counter != "" {
			row.Count, _ = s.sum(from.counter, from.labels)
		}
		row.P50, row.P95, row.P99 = known(h.quantile(.5)), known(h.quantile(.95)), known(h.quantile(.99))
		if r.Seconds > 0 {
			row.Share = row.Seconds / r.Seconds
		}
		r.Rows = append(r.Rows, row)
	}
}

// atRest is the time by step of all passes and of what led to them, for a manager that
// has seen no change.
func (s Samples) atRest() map[metrics.Step]float64 {
	seconds := map[metrics.Step]float64{
		metrics.Requeue: s.histogram("queue_backoff_seconds", labels{"controller": clusters}).seconds,
		metrics.Worker:  s.histogram("queue_duration_seconds", labels{"controller": clusters}).seconds,
	}
	of := map[string]metrics.Step{"throttling": metrics.Submit, "api_write": metrics.Store, "api_read": metrics.ObserveKubernetes}
	for _, row := range sources {
		if row.histogram != "pass_step_duration_seconds" {
			continue
		}
		seconds[row.step] += s.histogram(row.histogram, row.labels).seconds
		for what, step := range of {
			waited, _ := s.sum("pass_waits_seconds_total", labels{"controller": clusters, "step": {string(row.step)}, "for": {what}})
			seconds[row.step] -= waited
			seconds[step] += waited
		}
	}
	return seconds
}

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
