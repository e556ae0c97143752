package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// slotCount is the number of slots of a Redis Cluster.
const slotCount = 16384

// node is one line of a CLUSTER NODES answer.
type node struct {
	id, ip string
	flags  []string
	// follows is the id of a replica's primary.
	follows string
	// slots that the node owns, sorted; open ones ([…]) make the line invalid.
	slots []int
}

func (n node) is(flag string) bool { return slices.Contains(n.flags, flag) }

// view is the cluster as one node sees it, by id.
type view map[string]node

// parseView reads CLUSTER NODES: id ip:port@bus flags primary ping pong epoch link slots…
func parseView(text string) (view, error) {
	v := view{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("no line of CLUSTER NODES: %q", line)
		}
		n := node{id: f[0], flags: strings.Split(f[2], ",")}
		n.ip, _, _ = strings.Cut(f[1], ":")
		if f[3] != "-" {
			n.follows = f[3]
		}
		for _, part := range f[8:] {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			a, errA := strconv.Atoi(first)
			b, errB := strconv.Atoi(last)
			if errA != nil || errB != nil {
				return nil, fmt.Errorf("a slot is on its way: %q", line)
			}
			for s := a; s <= b; s++ {
				n.slots = append(n.slots, s)
			}
		}
		slices.Sort(n.slots)
		v[n.id] = n
	}
	return v, nil
}

// String tells who is what and owns how much, the same for all that agree.
func (v view) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(v)) {
		n := v[id]
		role := "primary"
		if n.follows != "" {
			role = "replica of " + n.follows
		}
		fmt.Fprintf(&b, "%s %s %s %s\n", id, n.ip, role, ranges(n.slots))
	}
	return b.String()
}

// ranges writes sorted slots as "0-5460 7000".
func ranges(slots []int) string {
	var parts []string
	for i := 0; i < len(slots); {
		j := i
		for j+1 < len(slots) && slots[j+1] == slots[j]+1 {
			j++
		}
		part := strconv.Itoa(slots[i])
		if j > i {
			part += "-" + strconv.Itoa(slots[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, " ")
}

// member is a Pod, and what the server in it says.
type member struct {
	pod corev1.Pod
	*redis.Client
	view view
}

// me is the node's own line.
func (m *member) me() node {
	for _, n := range m.view {
		if n.is("myself") {
			return n
		}
	}
	return node{}
}

// members asks every Pod of a cluster how it sees the cluster, by Pod name. The
// caller ends the connections with hangUp. missing tells who does not answer.
func members(ctx context.Context, c *redisv1.RedisCluster) (all map[string]*member, missing string, err error) {
	password, err := cluster.Password(ctx, c)
	if err != nil {
		return nil, "", err
	}
	pods, err := cluster.Pods(ctx, c)
	if err != nil {
		return nil, "", err
	}
	all = map[string]*member{}
	for _, pod := range pods {
		if pod.Status.PodIP == "" {
			return all, pod.Name + " has no address", nil
		}
		m := &member{pod: pod, Client: kube.Dial(pod.Status.PodIP, password)}
		all[pod.Name] = m
		text, err := m.ClusterNodes(ctx).Result()
		if err != nil {
			return all, fmt.Sprintf("%s does not answer: %v", pod.Name, err), nil
		}
		if m.view, err = parseView(text); err != nil {
			return all, fmt.Sprintf("%s: %v", pod.Name, err), nil
		}
	}
	return all, "", nil
}

func hangUp(all map[string]*member) {
	for _, m := range all {
		_ = m.Close() // nothing is pending on it
	}
}

// members asks every Pod of a cluster that must be whole. Connections end with
// the case.
func (u *user) members(c *redisv1.RedisCluster) map[string]*member {
	u.Helper()
	all, missing, err := members(u.Context(), c)
	if err != nil || missing != "" {
		u.Fatal(missing, err)
	}
	u.Cleanup(func() { hangUp(all) })
	return all
}

// ids are the node ids by Pod.
func ids(all map[string]*member) map[string]string {
	out := map[string]string{}
	for name, m := range all {
		out[name] = m.me().id
	}
	return out
}
