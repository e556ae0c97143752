package e2e

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// removeAllPods deletes every Pod at once and waits for the new ones.
func (u *user) removeAllPods(c *redisv1.RedisCluster, options ...client.DeleteAllOfOption) {
	u.Helper()
	before := u.pods(c)
	options = append(options, client.InNamespace(u.ns), client.MatchingLabels{"app.kubernetes.io/instance": c.Name})
	if err := cluster.DeleteAllOf(u.Context(), &corev1.Pod{}, options...); err != nil {
		u.Fatalf("delete all Pods: %v", err)
	}
	u.awaitReplaced(c, before)
}

// TestAllPodsDeletedWithStorage: every node comes back at another address with
// its id, its slots and its data.
func TestAllPodsDeletedWithStorage(t *testing.T) {
	for _, c := range []struct{ name, manifest string }{
		{"Redis 8.0", `{metadata: {name: stored}, spec: {replicas: 6, storage: {size: 64Mi}}}`},
		{"Redis 7.0, one shard", `{metadata: {name: stored}, spec: {replicas: 3, version: "7.0", storage: {size: 64Mi}}}`},
		{"Valkey 9.1", `{metadata: {name: stored}, spec: {replicas: 4, engine: Valkey, version: "9.1", storage: {size: 64Mi}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			keys := u.fill(rc)
			before := u.slotsByShard(rc)
			idsBefore := ids(u.members(rc))
			for range 2 {
				u.removeAllPods(rc)
				u.awaitWhole(rc)
				if got := ids(u.members(rc)); !maps.Equal(got, idsBefore) {
					u.Errorf("node ids were %v and are %v", idsBefore, got)
				}
				if got := u.slotsByShard(rc); !maps.Equal(got, before) {
					u.Errorf("slots were %v and are %v", before, got)
				}
				if lost := u.lost(rc, keys); len(lost) > 0 {
					u.Errorf("the keys of shards %s are lost", lost)
				}
			}
			if notes, err := events(u.Context(), rc, redisv1.EventFormedAnew); err != nil || len(notes) > 0 {
				u.Errorf("Events say that it was formed anew: %q, %v", notes, err)
			}
			u.works(rc)
		})
	}
}

// slotsByShard are the slots of each shard, by the status.
func (u *user) slotsByShard(c *redisv1.RedisCluster) map[int32]string {
	u.Helper()
	u.reread(c)
	slots := map[int32]string{}
	for _, s := range c.Status.ShardStatuses {
		slots[s.Index] = s.Slots
	}
	return slots
}

// TestAllPodsDeletedWithoutStorage: nothing is left, so the cluster is formed
// anew, says so, and works.
func TestAllPodsDeletedWithoutStorage(t *testing.T) {
	for _, c := range []struct{ name, manifest string }{
		{"no replicas", `{metadata: {name: bare}, spec: {replicas: 3, shards: 3}}`},
		{"one node", `{metadata: {name: one}, spec: {replicas: 1}}`},
		{"six nodes", `{metadata: {name: orders}, spec: {replicas: 6}}`},
		{"one shard of three, Valkey", `{metadata: {name: cache}, spec: {replicas: 3, engine: Valkey, version: "9.1"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			keys := u.fill(rc)
			u.removeAllPods(rc, client.GracePeriodSeconds(0))
			u.awaitWhole(rc)
			// Pods do not end all in the same moment: one that comes back while
			// another of its shard still runs may save that shard's data.
			lost := u.lost(rc, keys)
			u.Logf("the data of shards %v is lost", lost)
			if rc.Spec.Nodes() == rc.Spec.ShardCount() && len(lost) != rc.Spec.ShardCount() {
				u.Errorf("keys were read back although no Pod was left that could hold them")
			}
			if len(lost) > 0 {
				u.Logf("the Event says: %s", u.awaitEvent(rc, redisv1.EventFormedAnew))
			}
			u.works(rc)
		})
	}
}
