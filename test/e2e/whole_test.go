package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// awaitWhole waits until both the operator and every Redis node say that the
// cluster is as it should be, then reads the status into c.
func (u *user) awaitWhole(c *redisv1.RedisCluster) {
	u.Helper()
	u.await(toHeal, c.Name+" is whole", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if missing := notRunning(c); missing != "" {
			return missing, nil
		}
		return notWhole(ctx, c)
	})
}

// notWhole compares what the spec asks for with what status, Pods and all Redis
// nodes say, without the operator's own eyes. It names the first difference.
func notWhole(ctx context.Context, c *redisv1.RedisCluster) (string, error) {
	all, missing, err := members(ctx, c)
	defer hangUp(all)
	if err != nil || missing != "" {
		return missing, err
	}
	for _, check := range []func(context.Context, *redisv1.RedisCluster, map[string]*member) string{
		counts, agreement, shardShapes, slotsOnce, health,
	} {
		if missing := check(ctx, c, all); missing != "" {
			return missing, nil
		}
	}
	return "", nil
}

// counts: as many Pods, all ready, as the spec and the status say.
func counts(_ context.Context, c *redisv1.RedisCluster, all map[string]*member) string {
	want, s := c.Spec.Nodes(), c.Status
	if len(all) != want || int(s.ReadyReplicas) != want || int(s.Replicas) != want || int(s.Shards) != c.Spec.ShardCount() {
		return fmt.Sprintf("want %d nodes in %d shards; there are %d Pods, and the status says %d ready of %d in %d shards",
			want, c.Spec.ShardCount(), len(all), s.ReadyReplicas, s.Replicas, s.Shards)
	}
	for name, m := range all {
		if !kube.Ready(&m.pod) {
			return name + " is not ready"
		}
	}
	return ""
}

// agreement: every node sees the same nodes, in the same roles, with the same
// slots, at the addresses that the Pods have, by CLUSTER NODES and by CLUSTER
// SHARDS, and nobody that is no Pod.
func agreement(ctx context.Context, _ *redisv1.RedisCluster, all map[string]*member) string {
	var first, firstPod string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if m.me().ip != m.pod.Status.PodIP {
			return fmt.Sprintf("%s announces %s and has %s", name, m.me().ip, m.pod.Status.PodIP)
		}
		if len(m.view) != len(all) {
			return fmt.Sprintf("%s sees %d nodes of %d:\n%s", name, len(m.view), len(all), m.view)
		}
		for _, n := range m.view {
			if n.is("fail") || n.is("fail?") || n.is("handshake") || n.is("noaddr") {
				return fmt.Sprintf("%s has %s of %s", name, strings.Join(n.flags, ","), n.id)
			}
		}
		if first == "" {
			first, firstPod = m.view.String(), name
		}
		if m.view.String() != first {
			return fmt.Sprintf("%s and %s disagree:\n%s\n%s", firstPod, name, first, m.view)
		}
		shards, err := m.ClusterShards(ctx).Result()
		if err != nil {
			return fmt.Sprintf("%s does not answer CLUSTER SHARDS: %v", name, err)
		}
		if v := viewOf(shards); v.String() != first {
			return fmt.Sprintf("CLUSTER SHARDS of %s differs from CLUSTER NODES:\n%s\n%s", name, v, first)
		}
	}
	return ""
}

// viewOf puts CLUSTER SHARDS into the terms of CLUSTER NODES.
func viewOf(shards []redis.ClusterShard) view {
	v := view{}
	for _, s := range shards {
		primary := ""
		for _, n := range s.Nodes {
			if n.Role == "master" {
				primary = n.ID
			}
		}
		for _, n := range s.Nodes {
			line := node{id: n.ID, ip: n.IP}
			if n.ID != primary {
				line.follows = primary
			} else {
				for _, r := range s.Slots {
					for slot := r.Start; slot <= r.End; slot++ {
						line.slots = append(line.slots, int(slot))
					}
				}
			}
			slices.Sort(line.slots)
			v[n.ID] = line
		}
	}
	return v
}

// shardShapes: in each shard one primary, followed by all other members of that
// shard, as the labels of the Pods and the status say too.
func shardShapes(_ context.Context, c *redisv1.RedisCluster, all map[string]*member) string {
	for shard, want := range c.Spec.Members() {
		var primaries, replicas []*member
		for _, m := range all {
			switch {
			case m.pod.Labels[redisv1.LabelShard] != fmt.Sprint(shard):
			case m.me().follows == "":
				primaries = append(primaries, m)
			default:
				replicas = append(replicas, m)
			}
		}
		if len(primaries) != 1 || len(replicas) != want-1 {
			return fmt.Sprintf("shard %d has %d primaries and %d replicas, want 1 and %d", shard, len(primaries), len(replicas), want-1)
		}
		p := primaries[0]
		if role := p.pod.Labels[redisv1.LabelRole]; role != redisv1.RolePrimary {
			return fmt.Sprintf("%s is a primary and labelled %q", p.pod.Name, role)
		}
		for _, r := range replicas {
			if r.me().follows != p.me().id {
				return fmt.Sprintf("%s does not follow %s, its shard's primary", r.pod.Name, p.pod.Name)
			}
			if role := r.pod.Labels[redisv1.LabelRole]; role != redisv1.RoleReplica {
				return fmt.Sprintf("%s is a replica and labelled %q", r.pod.Name, role)
			}
		}
		if len(c.Status.ShardStatuses) <= shard {
			return fmt.Sprintf("the status has no entry of shard %d", shard)
		}
		s := c.Status.ShardStatuses[shard]
		if s.Primary != p.pod.Name || int(s.ReadyReplicas) != want || s.Slots != ranges(p.me().slots) {
			return fmt.Sprintf("the status of shard %d is %+v; its primary is %s with %s", shard, s, p.pod.Name, ranges(p.me().slots))
		}
	}
	return ""
}

// slotsOnce: every slot has one owner, and no shard has more than one slot more
// than another.
func slotsOnce(_ context.Context, _ *redisv1.RedisCluster, all map[string]*member) string {
	owner := map[int]string{}
	least, most := slotCount, 0
	for name, m := range all {
		slots := m.me().slots
		for _, s := range slots {
			if owner[s] != "" {
				return fmt.Sprintf("slot %d belongs to %s and to %s", s, owner[s], name)
			}
			owner[s] = name
		}
		if len(slots) > 0 {
			least, most = min(least, len(slots)), max(most, len(slots))
		}
	}
	if len(owner) != slotCount || most-least > 1 {
		return fmt.Sprintf("%d slots have an owner; the shards have between %d and %d", len(owner), least, most)
	}
	return ""
}

// health: each node finds the cluster in order, each replica's link is up.
func health(ctx context.Context, _ *redisv1.RedisCluster, all map[string]*member) string {
	for name, m := range all {
		info, err := m.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return fmt.Sprintf("%s does not find the cluster in order: %v\n%s", name, err, info)
		}
		if m.me().follows == "" {
			continue
		}
		replication, err := m.Info(ctx, "replication").Result()
		if err != nil || !strings.Contains(replication, "master_link_status:up") {
			return fmt.Sprintf("the link of %s to its primary is down: %v", name, err)
		}
	}
	return ""
}
