// Package metrics holds every metric of the operator: what each of the eleven
// steps from a change to a converged cluster costs, and each RedisCluster as its
// user sees it. The label values are closed sets, except for the name of a
// RedisCluster, whose series go away with it. docs/metrics.md is generated from
// this package, docs/latency.md tells how it is read.
//
// Nothing here knows of Kubernetes clients: the callers pass plain values.
package metrics

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Prefix of all names.
const Prefix = "redis_operator_"

// Other stands for a label value that is not in the set of its label.
const Other = "other"

// off is set when nothing is to be measured.
var off atomic.Bool

// Enable turns measuring on, which it is at first, or off: nobody serves the metrics,
// or the cost of measuring is itself measured. A manager calls it before its first pass.
func Enable(on bool) { off.Store(!on) }

// label is a label and the values that it can have.
type label struct {
	name string
	// values are all that there are; nil stands for the names of objects.
	values []string
	// meaning of a label without fixed values.
	meaning string
}

// of is a value of the set, or Other.
func (l label) of(value string) string {
	if l.values == nil || slices.Contains(l.values, value) {
		return value
	}
	return Other
}

// definition is a metric as docs/metrics.md shows it.
type definition struct {
	name, kind, help string
	labels           []label
	collector        prometheus.Collector
}

// definitions are all metrics, in the order of the documentation.
var definitions []definition

func define(name, kind, help string, labels []label, c prometheus.Collector) {
	definitions = append(definitions, definition{name: Prefix + name, kind: kind, help: help, labels: labels, collector: c})
}

func names(labels []label) []string {
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = l.name
	}
	return out
}

func counter(name, help string, labels ...label) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Prefix + name, Help: help}, names(labels))
	define(name, "counter", help, labels, c)
	return c
}

func gauge(name, help string, labels ...label) *prometheus.GaugeVec {
	c := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: Prefix + name, Help: help}, names(labels))
	define(name, "gauge", help, labels, c)
	return c
}

func histogram(name, help string, buckets []float64, labels ...label) *prometheus.HistogramVec {
	c := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: Prefix + name, Help: help, Buckets: buckets}, names(labels))
	define(name, "histogram", help, labels, c)
	return c
}

// scraped defines a gauge whose values are taken when somebody asks, so that they
// take no memory.
func scraped(name, help string, labels []label, values func(set func(value float64, labels ...string))) {
	desc := prometheus.NewDesc(Prefix+name, help, names(labels), nil)
	define(name, "gauge", help, labels, &asked{desc: desc, values: values})
}

// asked is a collector whose values are taken when somebody asks.
type asked struct {
	desc   *prometheus.Desc
	values func(set func(value float64, labels ...string))
}

// Describe implements prometheus.Collector.
func (a *asked) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a *asked) Collect(ch chan<- prometheus.Metric) {
	a.values(func(value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, value, labels...)
	})
}

// quick are the bounds of what takes from a tenth of a millisecond to a minute.
var quick = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// slow are the bounds of what takes from a tenth of a second to an hour.
var slow = []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600, 1800, 3600}

// counts are the bounds of numbers of things.
var counts = []float64{0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 100, 200, 500}

// Register adds all metrics to a registry. It is called once for a registry; an
// error tells that a name is taken.
func Register(r prometheus.Registerer) error {
	for _, d := range definitions {
		if err := r.Register(d.collector); err != nil {
			return fmt.Errorf("register metric %s: %w", d.name, err)
		}
	}
	return nil
}

// Names are the names of all metrics.
func Names() []string {
	out := make([]string, len(definitions))
	for i, d := range definitions {
		out[i] = d.name
	}
	return out
}
