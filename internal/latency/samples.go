// Package latency reads the operator's metrics and tells how long each of the eleven
// steps from a change to a converged cluster takes, and which of them is to blame. It
// is pure: text in, a report out.
package latency

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/example/redis-operator/internal/metrics"
)

// Samples are the metrics of a manager, by name.
type Samples map[string]*dto.MetricFamily

// Read reads what a manager serves at /metrics. It is an error if that holds none of
// the operator's metrics.
func Read(r io.Reader) (Samples, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	for name := range families {
		if len(name) > len(metrics.Prefix) && name[:len(metrics.Prefix)] == metrics.Prefix {
			return families, nil
		}
	}
	return nil, fmt.Errorf("there is no metric %s… among the %d of this endpoint: it is no manager of this operator, or an older one", metrics.Prefix, len(families))
}

// labels are those that a sample must have; a label may have one of several values.
type labels map[string][]string

func (l labels) fit(m *dto.Metric) bool {
	for name, wanted := range l {
		has := ""
		for _, pair := range m.GetLabel() {
			if pair.GetName() == name {
				has = pair.GetValue()
			}
		}
		if !slices.Contains(wanted, has) {
			return false
		}
	}
	return true
}

// sum adds up the samples of a counter or a gauge.
func (s Samples) sum(name string, l labels) (sum float64, found bool) {
	for _, m := range s[metrics.Prefix+name].GetMetric() {
		if l.fit(m) {
			found = true
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum, found
}

// Total adds up all samples of a counter of the operator, named without its prefix.
func (s Samples) Total(name string) float64 {
	sum, _ := s.sum(name, nil)
	return sum
}

// QuantileSince estimates a quantile, in seconds, of what a histogram of the operator,
// named without its prefix, has counted since earlier samples; 0 for nothing.
func (s Samples) QuantileSince(before Samples, name string, q float64) float64 {
	now, then := s.histogram(name, nil), before.histogram(name, nil)
	now.count -= then.count
	for bound, n := range then.buckets {
		now.buckets[bound] -= n
	}
	if now.count <= 0 {
		return 0
	}
	return now.quantile(q)
}

// values are the values that a label has among the samples of a metric.
func (s Samples) values(name, label string, l labels) []string {
	seen := map[string]bool{}
	for _, m := range s[metrics.Prefix+name].GetMetric() {
		for _, pair := range m.GetLabel() {
			if pair.GetName() == label && l.fit(m) {
				seen[pair.GetValue()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// histogram is the sum of several.
type histogram struct {
	count   float64
	seconds float64
	// buckets are cumulative counts by upper bound.
	buckets map[float64]float64
}

// histogram adds up those of a metric.
func (s Samples) histogram(name string, l labels) histogram {
	h := histogram{buckets: map[float64]float64{}}
	for _, m := range s[metrics.Prefix+name].GetMetric() {
		if !l.fit(m) {
			continue
		}
		h.count += float64(m.GetHistogram().GetSampleCount())
		h.seconds += m.GetHistogram().GetSampleSum()
		for _, b := range m.GetHistogram().GetBucket() {
			h.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	return h
}

// quantile estimates one as PromQL's histogram_quantile does: within a bucket all
// values are taken to be spread evenly. NaN without any; the highest finite bound for
// what lies above it.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank := q * h.count
	lower, below := 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(h.buckets)) {
		upTo := h.buckets[bound]
		if upTo >= rank {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(rank-below)/(upTo-below)
		}
		if !math.IsInf(bound, 1) {
			lower = bound
		}
		below = upTo
	}
	return lower
}
