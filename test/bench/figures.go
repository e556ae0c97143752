package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// figure is one measured value.
type figure struct {
	// Scenario and Figure name it together, as "ready ratio".
	Scenario string  `json:"scenario"`
	Figure   string  `json:"figure"`
	Value    float64 `json:"value"`
	// Unit of Value; "1" for a ratio.
	Unit string `json:"unit"`
	// Bar is the highest value that is good enough, nil where there is none.
	Bar *float64 `json:"bar,omitempty"`
	// AtLeast is the lowest value that is good enough, nil where there is none.
	AtLeast *float64 `json:"atLeast,omitempty"`
}

// bars are the promises of docs/benchmarks.md: the highest value of each.
var bars = map[string]float64{
	"ready ratio":        2.0,
	"ready api_requests": 35,
	"rest writes":        0,
	"rest reads_per_min": 2,
	"rest rss_mb":        60,

	"scaleout-empty seconds":      10,
	"scaleout-empty ratio":        3,
	"scaleout-data seconds":       15,
	"scaleout-data gap_ms":        100,
	"delete-primary gap_ms":       250,
	"force-delete-primary gap_ms": 1000,
	"kill-primary gap_ms":         500,
	"kill-primary-storage gap_ms": 500,
	"all-pods-deleted ratio":      3,
	"roll gap_ms":                 250,
	"scaleout-empty lost":         0,
	"scaleout-data lost":          0,
	"delete-primary lost":         0,
	"force-delete-primary lost":   0,
	"kill-primary lost":           0,
	"kill-primary-storage lost":   0,
	"all-pods-deleted lost":       0,
	"roll lost":                   0,

	"backup rss_mb":     64,
	"backup p99_ratio":  1.5,
	"restore ratio":     1.5,
	"restore keys_lost": 0,
}

// floors are the promises that are a lowest value.
var floors = map[string]float64{"backup ratio": 0.9}

// newFigure is a figure with its bar, if it has one.
func newFigure(scenario, name string, value float64, unit string) figure {
	f := figure{Scenario: scenario, Figure: name, Value: value, Unit: unit}
	if bar, ok := bars[scenario+" "+name]; ok {
		f.Bar = &bar
	}
	if floor, ok := floors[scenario+" "+name]; ok {
		f.AtLeast = &floor
	}
	return f
}

// withBar is a figure whose bar depends on what was measured.
func withBar(f figure, bar float64) figure {
	f.Bar = &bar
	return f
}

// broken tells whether the figure misses its bar.
func (f figure) broken() bool {
	return f.Bar != nil && f.Value > *f.Bar || f.AtLeast != nil && f.Value < *f.AtLeast
}

// String is the figure's line: scenario, figure, value, unit.
func (f figure) String() string {
	return fmt.Sprintf("%s %s %s %s", f.Scenario, f.Figure, number(f.Value), f.Unit)
}

// number writes whole numbers as such and others with two digits.
func number(v float64) string {
	if v == float64(int64(v)) {
		return fmt.Sprint(int64(v))
	}
	return fmt.Sprintf("%.2f", v)
}

// median of values, the mean of the middle two if their number is even; 0
// without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// write prints the figures, one a line or all as JSON.
func write(w io.Writer, figures []figure, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(figures)
	}
	for _, f := range figures {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	return nil
}

// check says which bars the figures miss.
func check(figures []figure) error {
	for _, f := range figures {
		if !f.broken() {
			continue
		}
		if f.AtLeast != nil {
			return fmt.Errorf("%s, the bar is at least %s", f, number(*f.AtLeast))
		}
		return fmt.Errorf("%s, the bar is %s", f, number(*f.Bar))
	}
	return nil
}
