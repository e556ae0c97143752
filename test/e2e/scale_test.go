//go:build full

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
	"github.com/example/redis-operator/test/kube"
)

// toChange is for what takes Pods one after the other.
const toChange = 8 * time.Minute

// awaitChanged waits for a change that takes its time.
func (u *user) awaitChanged(c *redisv1.RedisCluster) {
	u.Helper()
	u.awaitRunningFor(c, toChange)
}

// loaded is a running cluster with writers on it, and data of several kinds.
type loaded struct {
	*user
	rc      *redisv1.RedisCluster
	writers *kube.Writers
	data    map[string]string
}

// load makes a cluster, fills it, and has clients write to it.
func load(t *testing.T, manifest string) *loaded {
	t.Helper()
	u := newUser(t)
	l := &loaded{user: u, rc: u.made(manifest), data: map[string]string{}}
	rdb := u.clusterClient(l.rc)
	ctx := t.Context()
	for i := range 2000 {
		key := fmt.Sprintf("key-%d", i)
		l.data[key] = strings.Repeat(key, 10)
		if err := rdb.Set(ctx, key, l.data[key], 0).Err(); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
	for i := range 100 {
		key := fmt.Sprintf("{tag-%d}lasting", i)
		l.data[key] = "lasting"
		if err := rdb.Set(ctx, key, "lasting", time.Hour).Err(); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
	w, err := cluster.StartWriters(ctx, l.rc, 8, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	l.writers = w
	return l
}

// intact stops the writers and reads all data back.
func (l *loaded) intact() kube.Report {
	l.Helper()
	report, err := l.writers.Stop(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	l.Logf("%d writes were acknowledged, %d are lost, the longest gap was %s", report.Acknowledged, report.Lost, report.Gap.Round(time.Millisecond))
	if report.Lost > 0 {
		l.Errorf("%d acknowledged writes are lost: %s", report.Lost, report.Example)
	}
	rdb := l.clusterClient(l.rc)
	for key, want := range l.data {
		if got, err := rdb.Get(l.Context(), key).Result(); err != nil || got != want {
			l.Fatalf("%s is %q, %v", key, got, err)
		}
		if strings.HasSuffix(key, "lasting") {
			if ttl := rdb.TTL(l.Context(), key).Val(); ttl < 30*time.Minute || ttl > time.Hour {
				l.Errorf("%s lives for %s", key, ttl)
			}
		}
	}
	return report
}

// even makes sure that the shards' slots differ by one at most.
func (u *user) even(c *redisv1.RedisCluster, shards int) {
	u.Helper()
	u.reread(c)
	var sizes []int
	for _, s := range c.Status.ShardStatuses {
		sizes = append(sizes, slotsIn(u, s.Slots).Count())
	}
	if len(sizes) != shards || slices.Max(sizes)-slices.Min(sizes) > 1 {
		u.Errorf("the shards have %v slots, want %d of equal size", sizes, shards)
	}
}

// slotsIn reads the form of the status.
func slotsIn(u *user, text string) topology.Slots {
	u.Helper()
	var ranges []topology.Range
	for _, part := range strings.Fields(text) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		var r topology.Range
		if _, err := fmt.Sscan(first+" "+last, &r.First, &r.Last); err != nil {
			u.Fatalf("read slots %q: %v", text, err)
		}
		ranges = append(ranges, r)
	}
	return topology.SlotsOf(ranges...)
}

// claims are the names of the cluster's claims that stay.
func (u *user) claims(c *redisv1.RedisCluster) []string {
	u.Helper()
	var list corev1.PersistentVolumeClaimList
	err := cluster.List(u.Context(), &list, client.InNamespace(u.ns), client.MatchingLabels{"app.kubernetes.io/instance": c.Name})
	if err != nil {
		u.Fatalf("list claims: %v", err)
	}
	var names []string
	for _, claim := range list.Items {
		if claim.DeletionTimestamp == nil {
			names = append(names, claim.Name)
		}
	}
	return names
}

// TestScale goes out and in with clients writing: by the total, by the shards
// alone, by uneven numbers, and back before it is done.
func TestScale(t *testing.T) {
	for _, c := range []struct{ name, manifest string }{
		{"Redis 8.0", `{metadata: {name: orders}, spec: {replicas: 6}}`},
		{"Redis 7.0, storage", `{metadata: {name: orders}, spec: {replicas: 6, version: "7.0", storage: {size: 64Mi}}}`},
		{"Valkey 9.1, storage", `{metadata: {name: orders}, spec: {replicas: 6, engine: Valkey, version: "9.1", storage: {size: 64Mi}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := load(t, c.manifest)
			before := l.slotsByShard(l.rc)
			l.scale(l.rc, 8)
			l.awaitEvent(l.rc, redisv1.EventScaling)
			l.awaitChanged(l.rc)
			l.awaitEvent(l.rc, redisv1.EventScaled)
			l.even(l.rc, 4)
			for shard, slots := range l.slotsByShard(l.rc) {
				if gained := slotsIn(l.user, slots).Minus(slotsIn(l.user, before[shard])); shard < 3 && !gained.Empty() {
					l.Errorf("shard %d has got slots %s although a new shard needed some", shard, gained)
				}
			}
			l.edit(l.rc, `{spec: {replicas: 7, shards: 3}}`) // uneven, and in
			l.awaitChanged(l.rc)
			l.even(l.rc, 3)
			l.edit(l.rc, `{spec: {replicas: 10, shards: 5}}`)
			l.await(toRun, "slots are on their way", l.phaseIs(l.rc, redisv1.PhaseScaling))
			l.edit(l.rc, `{spec: {replicas: 4, shards: 2}}`) // reversed in the middle
			l.awaitChanged(l.rc)
			l.even(l.rc, 2)
			l.intact()
			if l.rc.Spec.Storage != nil {
				if claims := l.claims(l.rc); len(claims) != 4 {
					l.Errorf("after scaling in the claims are %v", claims)
				}
			}
		})
	}
}
