//go:build full

package e2e

import (
	"context"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// TestPrimaryKilled kills the primary's process again and again. Nothing that was
// acknowledged is lost, with and without volumes, also where no majority is left to
// elect another.
func TestPrimaryKilled(t *testing.T) {
	for _, c := range []struct{ name, manifest string }{
		{"three shards", `{metadata: {name: orders}, spec: {replicas: 6}}`},
		{"one shard", `{metadata: {name: orders}, spec: {replicas: 2, version: "7.0"}}`},
		{"two shards, storage", `{metadata: {name: orders}, spec: {replicas: 4, storage: {size: 64Mi}}}`},
		{"Valkey, one shard of three, storage", `{metadata: {name: orders}, spec: {replicas: 3, engine: Valkey, version: "9.1", storage: {size: 64Mi}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := load(t, c.manifest)
			for range 10 {
				l.reread(l.rc)
				pod, err := cluster.Primary(t.Context(), l.rc, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := kube.KillServer(string(pod.UID)); err != nil {
					t.Fatal(err)
				}
				l.await(toHeal, "another Pod leads shard 0", func(ctx context.Context) (string, error) {
					if err := cluster.Get(ctx, client.ObjectKeyFromObject(l.rc), l.rc); err != nil {
						return "", err
					}
					if now, err := cluster.Primary(ctx, l.rc, 0); err != nil || now.Name == pod.Name {
						return "it is still " + pod.Name, nil
					}
					return "", nil
				})
				l.await(10*time.Minute, "the killed Pod is back", l.phaseIs(l.rc, redisv1.PhaseRunning))
			}
			l.awaitEvent(l.rc, redisv1.EventFailedOver)
			l.intact()
		})
	}
}

// TestEviction: a primary that is evicted, as by a drain, hands over before it ends.
// A second member of its shard is not evicted meanwhile.
func TestEviction(t *testing.T) {
	t.Parallel()
	l := load(t, `{metadata: {name: orders}, spec: {replicas: 6}}`)
	pod, err := cluster.Primary(t.Context(), l.rc, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := l.pods(l.rc)
	evict := func(name string) error {
		pod := before[name]
		return cluster.SubResource("eviction").Create(t.Context(), &pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.ns}})
	}
	if err := evict(pod.Name); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"orders-0-0": "orders-0-1", "orders-0-1": "orders-0-0"}[pod.Name]
	if err := evict(other); err == nil {
		t.Errorf("%s was evicted too", other)
	}
	for name := range before {
		if name != pod.Name {
			delete(before, name)
		}
	}
	l.awaitReplaced(l.rc, before)
	l.awaitChanged(l.rc)
	if report := l.intact(); report.Gap > 5*time.Second {
		t.Errorf("clients could not write for %s", report.Gap)
	}
}
