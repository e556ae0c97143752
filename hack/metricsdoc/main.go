// Command metricsdoc prints docs/metrics.md.
package main

import (
	"fmt"

	"github.com/example/redis-operator/internal/metrics"
)

func main() { fmt.Print(metrics.Markdown()) }
