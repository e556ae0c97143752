package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// meet joins nodes, and waits until each knows all. Each meets each, because
// gossip alone takes seconds.
func meet(pods ...*pod) {
	for i, p := range pods {
		for _, other := range pods[i+1:] {
			p.do("CLUSTER", "MEET", other.ip.String(), RedisPort)
		}
	}
	for _, p := range pods {
		p.shows(fmt.Sprintf("cluster_known_nodes:%d", len(pods)), "CLUSTER", "INFO")
		redistest.Eventually(p.t, 20*time.Second, func() error {
			if nodes := p.do("CLUSTER", "NODES"); strings.Contains(nodes, "handshake") {
				return fmt.Errorf("still shaking hands: %s", nodes)
			}
			return nil
		})
	}
}

// startShards starts shards of the given number of members each, primary first,
// and waits until slots are served and every replica is counted and up to date.
func startShards(t *testing.T, sh shell, v redistest.Version, shards, members int) [][]*pod {
	t.Helper()
	return startShardsOf(t, sh, v, redisv1.RedisClusterSpec{}, shards, members)
}

// startShardsOf is startShards with a spec, for its storage.
func startShardsOf(t *testing.T, sh shell, v redistest.Version, spec redisv1.RedisClusterSpec, shards, members int) [][]*pod {
	t.Helper()
	cluster := make([][]*pod, shards)
	names := t.TempDir()
	var all []*pod
	for i := range cluster {
		for j := range members {
			// Pings of the primary would make the replicas' offsets differ now and then.
			p := newPod(t, sh, v, spec, "repl-ping-replica-period 3600")
			p.named(names, fmt.Sprintf("orders-%d-%d", i, j))
			p.start()
			p.do("CLUSTER", "SET-CONFIG-EPOCH", len(all)+1)
			cluster[i] = append(cluster[i], p)
			all = append(all, p)
		}
	}
	meet(all...)
	for i, shard := range cluster {
		shard[0].do("CLUSTER", "ADDSLOTSRANGE", 16384*i/shards, 16384*(i+1)/shards-1)
		for _, replica := range shard[1:] {
			replica.do("CLUSTER", "REPLICATE", shard[0].do("CLUSTER", "MYID"))
		}
	}
	for _, shard := range cluster {
		for _, p := range shard {
			p.shows("cluster_state:ok", "CLUSTER", "INFO")
			p.shows("cluster_slots_assigned:16384", "CLUSTER", "INFO")
		}
		for _, replica := range shard[1:] {
			replica.shows("master_link_status:up", "INFO", "replication")
			shard[0].shows("slave "+shard[0].do("CLUSTER", "MYID"), "CLUSTER", "NODES")
		}
		redistest.Eventually(t, 20*time.Second, func() error {
			if info := shard[0].do("INFO", "replication"); strings.Count(info, "state=online") != members-1 {
				return fmt.Errorf("not all replicas are online: %s", info)
			}
			return nil
		})
	}
	return cluster
}

// handsOver runs prestop.sh, which must end well and in time.
func (p *pod) handsOver(limit time.Duration, args ...string) outcome {
	p.t.Helper()
	got := p.run(preStopFile, args...)
	if got.code != 0 || got.stdout+got.stderr != "" {
		p.t.Errorf("prestop.sh: exit %d, %q %q", got.code, got.stdout, got.stderr)
	}
	if got.took > limit {
		p.t.Errorf("prestop.sh took %s, want at most %s", got.took, limit)
	}
	return got
}

func (p *pod) hasRole(want string) {
	p.t.Helper()
	if info := p.do("INFO", "replication"); !strings.Contains(info, "role:"+want+"\r\n") {
		p.t.Errorf("%s is not role %s: %s", p.ip, want, info)
	}
}

// TestPreStopLosesNoWrite deletes a primary while clients write, as Kubernetes
// does: preStop, then SIGTERM. Every write that was acknowledged must be there.
func TestPreStopLosesNoWrite(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
				cluster := startShards(t, sh, v, shards, 2)
				primary, replica := cluster[0][0], cluster[0][1]
				w := startWriters(t, slices.Concat(cluster...))
				w.awaitWrites(200)

				took := primary.handsOver(3 * time.Second).took
				if took < time.Second {
					t.Errorf("prestop.sh took %s: no time for clients to learn the new primary", took)
				}
				primary.hasRole("slave")
				replica.hasRole("master")
				primary.stop(syscall.SIGTERM)
				w.awaitWrites(200)

				w.stopAndVerify()
				if failed := w.tried - len(w.acked); failed > 0 {
					t.Errorf("%d of %d writes failed", failed, w.tried)
				}
				t.Logf("prestop.sh took %s; of %d writes the longest took %s", took, w.tried, w.longest)
			})
		})
	}
}

// writers write keys to the whole cluster, one after the other each, and note
// what was acknowledged.
type writers struct {
	t      *testing.T
	client *goredis.ClusterClient
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	acked   []string
	tried   int
	longest time.Duration
}

func startWriters(t *testing.T, pods []*pod) *writers {
	t.Helper()
	var addrs []string
	for _, p := range pods {
		addrs = append(addrs, p.addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &writers{t: t, cancel: cancel, client: goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs, Password: clientPassword})}
	t.Cleanup(func() { cancel(); w.wg.Wait(); _ = w.client.Close() })
	for worker := range 4 {
		w.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("key-%d-%d", worker, i)
				begin := time.Now()
				err := w.client.Set(t.Context(), key, key, 0).Err()
				w.mu.Lock()
				w.tried++
				w.longest = max(w.longest, time.Since(begin))
				if err == nil {
					w.acked = append(w.acked, key)
				}
				w.mu.Unlock()
			}
		})
	}
	return w
}

// awaitWrites waits until so many more writes are acknowledged.
func (w *writers) awaitWrites(n int) {
	w.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked)
	}
	begin := count()
	redistest.Eventually(w.t, 20*time.Second, func() error {
		if now := count(); now < begin+n {
			return fmt.Errorf("%d writes of %d", now-begin, n)
		}
		return nil
	})
}

// stopAndVerify reads every acknowledged key.
func (w *writers) stopAndVerify() {
	w.t.Helper()
	w.cancel()
	w.wg.Wait()
	for _, key := range w.acked {
		if value, err := w.client.Get(w.t.Context(), key).Result(); err != nil || value != key {
			w.t.Fatalf("the acknowledged write of %s reads %q: %v", key, value, err)
		}
	}
}

// TestPreStopTriesTheNextReplica has the first replica refuse.
func TestPreStopTriesTheNextReplica(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShards(t, sh, v, 1, 3)[0]
		primary := shard[0]
		// Offsets alike: the replica that is listed first is asked first.
		redistest.Eventually(t, 20*time.Second, func() error {
			info := primary.do("INFO", "replication")
			offset := func(name string) string { return between(between(info, name+":", "\r\n"), "offset=", ",") }
			if a, b := offset("slave0"), offset("slave1"); a == "" || a != b {
				return fmt.Errorf("offsets differ: %s", info)
			}
			return nil
		})
		first, second := shard[1], shard[2]
		if !strings.Contains(primary.do("INFO", "replication"), "slave0:ip="+first.ip.String()+",") {
			first, second = second, first
		}
		first.do("ACL", "SETUSER", OperatorUser, "-cluster|failover")

		primary.handsOver(3 * time.Second)
		primary.hasRole("slave")
		second.hasRole("master")
		if log := first.do("ACL", "LOG"); !strings.Contains(log, "cluster|failover") {
			t.Errorf("the first replica was not asked: %s", log)
		}
	})
}

// between is what stands in a text after one mark and before another.
func between(text, after, before string) string {
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, before)
	return text
}

// TestPreStopEndsAtOnce holds where there is nothing to hand over, or nobody to.
func TestPreStopEndsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShards(t, sh, v, 1, 2)[0]
		primary, replica := shard[0], shard[1]

		replica.handsOver(time.Second)
		replica.hasRole("slave")

		fresh := newPod(t, sh, v, redisv1.RedisClusterSpec{})
		fresh.handsOver(time.Second) // no server at all
		fresh.start()
		other := newPod(t, sh, v, redisv1.RedisClusterSpec{})
		other.start()
		meet(fresh, other)
		other.do("CLUSTER", "REPLICATE", fresh.do("CLUSTER", "MYID"))
		fresh.shows("state=online", "INFO", "replication")
		fresh.handsOver(time.Second) // a replica, but no slots
		fresh.hasRole("master")

		replica.stop(syscall.SIGTERM)
		primary.handsOver(time.Second)
		primary.hasRole("master")
	})
}

// TestPreStopOfAWholeCluster ends all Pods at once, as the deletion of the
// cluster does: each runs its preStop and then gets SIGTERM.
func TestPreStopOfAWholeCluster(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		pods := slices.Concat(startShards(t, sh, v, 3, 2)...)
		var wg sync.WaitGroup
		for _, p := range pods {
			wg.Go(func() {
				// A replica may have accepted and then ended: 5 s at most.
				p.handsOver(8 * time.Second)
				p.stop(syscall.SIGTERM)
			})
		}
		begin := time.Now()
		wg.Wait()
		t.Logf("all ended after %s", time.Since(begin))
	})
}

// TestPreStopIsBounded freezes what it needs an answer from.
func TestPreStopIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShards(t, sh, v, 1, 2)[0]
		primary, replica := shard[0], shard[1]
		// Three seconds, three questions of a second each.
		const seconds, limit = "3", 6500 * time.Millisecond

		replica.signal(syscall.SIGSTOP)
		primary.handsOver(limit, seconds)
		primary.hasRole("master")
		replica.signal(syscall.SIGCONT)

		primary.signal(syscall.SIGSTOP)
		primary.handsOver(limit, seconds)
		primary.signal(syscall.SIGCONT)
	})
}

// TestPreStopAsksOnlyCountedReplicas has a replica that the primary does not
// know in the cluster: it would ignore the request, and writes would wait.
func TestPreStopAsksOnlyCountedReplicas(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShards(t, sh, v, 1, 2)[0]
		primary, replica := shard[0], shard[1]
		primary.do("CLUSTER", "FORGET", replica.do("CLUSTER", "MYID"))
		primary.handsOver(4500 * time.Millisecond)
		primary.hasRole("master")
		if log := replica.log(); strings.Contains(log, "Manual failover user request") {
			t.Errorf("the replica was asked:\n%s", log)
		}
	})
}

// TestPreStopWaitsForTheVote keeps the voters from answering for a while.
func TestPreStopWaitsForTheVote(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		cluster := startShards(t, sh, v, 3, 2)
		primary, replica := cluster[0][0], cluster[0][1]
		voters := []*pod{cluster[1][0], cluster[2][0]}
		for _, voter := range voters {
			voter.signal(syscall.SIGSTOP)
		}
		done := make(chan outcome)
		go func() { done <- primary.handsOver(5 * time.Second) }()
		select {
		case <-done:
			t.Error("prestop.sh did not wait")
		case <-time.After(700 * time.Millisecond): // several looks of the script
			for _, voter := range voters {
				voter.signal(syscall.SIGCONT)
			}
			<-done
		}
		primary.hasRole("slave")
		replica.hasRole("master")
	})
}
