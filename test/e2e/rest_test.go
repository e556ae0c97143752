package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/test/kube"
)

// TestRest: nothing at all is written once a cluster has converged. The
// benchmarks look for longer, and count reads too.
func TestRest(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.made(`{metadata: {name: orders}, spec: {replicas: 3, storage: {size: 64Mi}}}`)
	const (
		settle = 5 * time.Second
		rest   = time.Minute
	)
	last, since := map[string]string{}, time.Now()
	u.await(time.Minute, "all is quiet", func(ctx context.Context) (string, error) {
		now, err := cluster.Inventory(ctx, u.ns)
		if err != nil {
			return "", err
		}
		if changes := kube.Changes(last, now); len(changes) > 0 {
			last, since = now, time.Now()
		}
		if time.Since(since) < settle {
			return "something was written a moment ago", nil
		}
		return "", nil
	})
	notes := u.eventCount(u.Context())
	u.hold(rest, "nothing is written", func(ctx context.Context) (string, error) {
		now, err := cluster.Inventory(ctx, u.ns)
		if err != nil {
			return "", err
		}
		if n := u.eventCount(ctx); n != notes {
			return "there is a new Event", nil
		}
		return strings.Join(kube.Changes(last, now), ", "), nil
	})
	u.awaitWhole(rc)
}
