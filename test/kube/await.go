package kube

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// look is how often a condition is looked at that nothing tells about.
const look = 200 * time.Millisecond

// Condition looks once. It says what is still missing, nothing when the
// condition holds, and gives an error when waiting on is of no use.
type Condition func(ctx context.Context) (missing string, err error)

// Await blocks until the condition holds. It calls progress, unless that is nil,
// each time that something else is missing, with its first line. When the context
// ends first, the error says all of what was missing last.
func Await(ctx context.Context, progress func(string), what string, condition Condition) error {
	start := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, said := "", ""
	for {
		missing, err := condition(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case err == nil && missing == "":
			return nil
		case err == nil:
			last = missing
			line, _, _ := strings.Cut(missing, "\n")
			if progress != nil && line != said {
				progress(fmt.Sprintf("[%5.1f s] until %s: %s", time.Since(start).Seconds(), what, line))
			}
			said = line
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not so after %.0f s that %s: %s", time.Since(start).Seconds(), what, last)
		case <-tick.C:
		}
	}
}

// Hold blocks for a duration and fails as soon as the condition does not hold.
func Hold(ctx context.Context, d time.Duration, what string, condition Condition) error {
	start := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for time.Since(start) < d {
		missing, err := condition(ctx)
		if err != nil {
			return fmt.Errorf("see whether %s: %w", what, err)
		}
		if missing != "" {
			return fmt.Errorf("after %.1f s it was no longer so that %s: %s", time.Since(start).Seconds(), what, missing)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("see whether %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
