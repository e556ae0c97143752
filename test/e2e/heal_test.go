package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// made gives a cluster that has converged.
func (u *user) made(manifest string) *redisv1.RedisCluster {
	u.Helper()
	c := u.create(manifest)
	u.awaitRunning(c)
	u.awaitWhole(c)
	return c
}

// TestPodDeleted deletes one Pod under load. It comes back at another address.
func TestPodDeleted(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		primary        bool
	}{
		{"a replica of three shards", `{metadata: {name: orders}, spec: {replicas: 6}}`, false},
		{"a primary of three shards", `{metadata: {name: orders}, spec: {replicas: 6}}`, true},
		{"the primary of one shard of three", `{metadata: {name: orders}, spec: {replicas: 3}}`, true},
		{"a primary of two shards", `{metadata: {name: orders}, spec: {replicas: 4}}`, true},
		{"the primary of one shard of three, Valkey", `{metadata: {name: orders}, spec: {replicas: 3, engine: Valkey, version: "9.1"}}`, true},
		{"a primary of three shards with storage", `{metadata: {name: orders}, spec: {replicas: 6, storage: {size: 64Mi}}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			w := u.write(rc)
			victim := u.victim(rc, c.primary)
			u.Logf("deleting %s", victim.Name)
			u.remove(&victim)
			u.awaitReplaced(rc, map[string]corev1.Pod{victim.Name: victim})
			u.awaitWhole(rc)
			u.nothingLost(rc, w)
			u.works(rc)
		})
	}
}

// victim is the primary of shard 0, or a replica of it.
func (u *user) victim(c *redisv1.RedisCluster, primary bool) corev1.Pod {
	u.Helper()
	for name, pod := range u.pods(c) {
		if pod.Labels[redisv1.LabelShard] == "0" && (name == c.Status.ShardStatuses[0].Primary) == primary {
			return pod
		}
	}
	u.Fatalf("shard 0 has no Pod that is a primary: %t", primary)
	return corev1.Pod{}
}

// TestOutsider heals a node that is not, or not rightly, in the cluster.
func TestOutsider(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		spoil          func(*user, map[string]*member, *member)
	}{
		{"forgotten by all others", `{metadata: {name: orders}, spec: {replicas: 4}}`, (*user).forgetOnAll},
		{"forgotten by all others, Redis 7.0", `{metadata: {name: orders}, spec: {replicas: 4, version: "7.0"}}`, (*user).forgetOnAll},
		{"reset to a stranger", `{metadata: {name: orders}, spec: {replicas: 4}}`, func(u *user, _ map[string]*member, m *member) {
			u.command(m, "CLUSTER", "RESET", "HARD")
		}},
		{"reset to a stranger, Valkey", `{metadata: {name: orders}, spec: {replicas: 4, engine: Valkey, version: "9.1"}}`, func(u *user, _ map[string]*member, m *member) {
			u.command(m, "CLUSTER", "RESET", "HARD")
		}},
		{"following another shard's primary", `{metadata: {name: orders}, spec: {replicas: 4}}`, (*user).misattach},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			keys := u.fill(rc)
			all := u.members(rc)
			victim := u.victim(rc, false)
			u.Logf("spoiling %s", victim.Name)
			c.spoil(u, all, all[victim.Name])
			u.await(toHeal, "all nodes agree again", func(ctx context.Context) (string, error) { return notWhole(ctx, rc) })
			u.awaitWhole(rc)
			if lost := u.lost(rc, keys); len(lost) > 0 {
				u.Errorf("the keys of shards %s are lost", lost)
			}
			u.works(rc)
		})
	}
}

// forgetOnAll makes all nodes but one forget that one. It still knows them.
func (u *user) forgetOnAll(all map[string]*member, outsider *member) {
	u.Helper()
	id := outsider.me().id
	for name, m := range all {
		if m == outsider {
			continue
		}
		// Since Redis 7.2 the word spreads, so that some have heard it already.
		if err := m.Do(u.Context(), "CLUSTER", "FORGET", id).Err(); err != nil && err.Error() != "ERR Unknown node "+id {
			u.Fatalf("CLUSTER FORGET on %s: %v", name, err)
		}
	}
}

// misattach makes a replica of shard 0 follow the primary of shard 1.
func (u *user) misattach(all map[string]*member, replica *member) {
	u.Helper()
	for _, m := range all {
		if me := m.me(); me.follows == "" && m.pod.Labels[redisv1.LabelShard] == "1" {
			u.command(replica, "CLUSTER", "REPLICATE", me.id)
			return
		}
	}
	u.Fatal("shard 1 has no primary")
}

// command sends a command that must succeed.
func (u *user) command(m *member, words ...any) {
	u.Helper()
	if err := m.Do(u.Context(), words...).Err(); err != nil {
		u.Fatalf("%s on %s: %v", fmt.Sprint(words...), m.pod.Name, err)
	}
}
