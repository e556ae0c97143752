package metrics

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// all holds the metrics of this test process.
var all = prometheus.NewRegistry()

func TestMain(m *testing.M) {
	if err := Register(all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sample is the value of one series, the sum of a histogram, and how many it counted;
// labels are written name=value. There is none when nothing was measured.
func sample(t *testing.T, name string, labels ...string) (value float64, count uint64, found bool) {
	t.Helper()
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != Prefix+name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			fits := true
			for _, l := range labels {
				fits = fits && has[l]
			}
			if fits {
				found = true
				value += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
				count += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return value, count, found
}

// since gives what a series has grown by since the call.
func since(t *testing.T, name string, labels ...string) func() (float64, uint64) {
	t.Helper()
	value, count, _ := sample(t, name, labels...)
	return func() (float64, uint64) {
		t.Helper()
		v, c, _ := sample(t, name, labels...)
		return v - value, c - count
	}
}

// grew fails the test unless a series has grown by so much.
func grew(t *testing.T, what string, growth func() (float64, uint64), want float64) {
	t.Helper()
	if got, _ := growth(); math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// TestDocumentationIsUpToDate: docs/metrics.md is what the code says.
func TestDocumentationIsUpToDate(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Markdown() {
		t.Error("docs/metrics.md is not what the code says: run `make generate`")
	}
	for _, name := range Names() {
		if strings.Count(string(page), "## "+name+"\n") != 1 {
			t.Errorf("docs/metrics.md does not describe %s once", name)
		}
	}
}
