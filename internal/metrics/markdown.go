package metrics

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown is docs/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Served at ` + "`/metrics`" + ` of the manager, on port 8443 with TLS, to those who may get that path (the ClusterRole
` + "`redis-operator-metrics-reader`" + `). What Go, controller-runtime and client-go add is not listed here. How the
metrics tell which step is slow: [latency.md](latency.md). Alerts: [runbooks](runbooks).

Times are in seconds. Label values are closed sets, so that the number of series does not grow with use; the series with
the name of a RedisCluster end with it.

This page is generated from ` + "`internal/metrics`" + `: ` + "`make generate`" + `.
`)
	sorted := slices.Clone(definitions)
	slices.SortFunc(sorted, func(a, b definition) int { return strings.Compare(a.name, b.name) })
	for _, d := range sorted {
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s.\n", d.name, strings.ToUpper(d.kind[:1])+d.kind[1:], d.help)
		for i, l := range d.labels {
			if i == 0 {
				b.WriteString("\n| label | values |\n| --- | --- |\n")
			}
			values := l.meaning
			if l.values != nil {
				values = "`" + strings.Join(l.values, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", l.name, values)
		}
	}
	return b.String()
}
