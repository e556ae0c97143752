package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// clusterClient gives a client as users have it, for the rest of the case.
func (u *user) clusterClient(c *redisv1.RedisCluster) *redis.ClusterClient {
	u.Helper()
	rdb, err := cluster.ClusterClient(u.Context(), c)
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// fill writes one key to the primary of each shard and gives the keys by shard.
// The value of a key is its name.
func (u *user) fill(c *redisv1.RedisCluster) map[string]string {
	u.Helper()
	keys := map[string]string{}
	for name, m := range u.members(c) {
		if m.me().follows != "" {
			continue
		}
		shard := m.pod.Labels[redisv1.LabelShard]
		key, err := kube.SetInShard(u.Context(), m.Client, "shard-"+shard, "value of shard "+shard)
		if err != nil {
			u.Fatalf("write to %s: %v", name, err)
		}
		keys[shard] = key
	}
	if len(keys) != c.Spec.ShardCount() {
		u.Fatalf("%d shards took a key, want %d", len(keys), c.Spec.ShardCount())
	}
	return keys
}

// lost reads keys back through a cluster client and gives the shards whose key
// is not there any more.
func (u *user) lost(c *redisv1.RedisCluster, keys map[string]string) []string {
	u.Helper()
	rdb := u.clusterClient(c)
	var lost []string
	for shard, key := range keys {
		value, err := rdb.Get(u.Context(), key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			lost = append(lost, shard)
		case err != nil:
			u.Fatalf("read %s: %v", key, err)
		case value != "value of shard "+shard:
			u.Errorf("%s holds %q", key, value)
		}
	}
	return lost
}

// works makes sure that the cluster asks for a password, unless it is not to,
// and takes and gives back a key in each shard.
func (u *user) works(c *redisv1.RedisCluster) {
	u.Helper()
	for name, pod := range u.pods(c) {
		stranger := kube.Dial(pod.Status.PodIP, "")
		err := stranger.Get(u.Context(), "anything").Err()
		_ = stranger.Close()
		refused := err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
		if refused == c.Spec.AuthDisabled() {
			u.Errorf("%s answers a client without a password: %v", name, err)
		}
	}
	if lost := u.lost(c, u.fill(c)); len(lost) > 0 {
		u.Errorf("the keys of shards %s were not read back", lost)
	}
}

// writer writes keys all the time and remembers which were acknowledged.
type writer struct {
	rdb  *redis.ClusterClient
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	// acknowledged keys; the value of each is its name.
	acknowledged []string
	// last is when a write was last acknowledged, in Unix nanoseconds; gap is
	// the longest time between two of them so far.
	last, gap atomic.Int64
}

// write starts to write through a cluster client, four keys at a time. Each is
// written until it is acknowledged.
func (u *user) write(c *redisv1.RedisCluster) *writer {
	u.Helper()
	ctx, stop := context.WithCancel(u.Context())
	w := &writer{rdb: u.clusterClient(c), stop: stop}
	u.Cleanup(stop)
	w.last.Store(time.Now().UnixNano())
	for i := range 4 {
		w.wg.Go(func() { w.run(ctx, i) })
	}
	u.await(20*time.Second, "keys are being written", func(context.Context) (string, error) {
		if n := w.count(); n < 100 {
			return "too few yet", nil
		}
		return "", nil
	})
	return w
}

func (w *writer) run(ctx context.Context, worker int) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("written-%d-%d", worker, i)
		for w.rdb.Set(ctx, key, key, 0).Err() != nil {
			if ctx.Err() != nil {
				return
			}
		}
		now := time.Now().UnixNano()
		gap := now - w.last.Swap(now)
		for old := w.gap.Load(); gap > old && !w.gap.CompareAndSwap(old, gap); old = w.gap.Load() {
		}
		w.mu.Lock()
		w.acknowledged = append(w.acknowledged, key)
		w.mu.Unlock()
		// A few hundred writes a second show a loss as well as all that the
		// machine can do, and leave it to the others.
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// nothingLost stops the writer and reads every acknowledged key back.
func (u *user) nothingLost(c *redisv1.RedisCluster, w *writer) {
	u.Helper()
	w.stop()
	w.wg.Wait()
	rdb := u.clusterClient(c)
	var lost []string
	for _, key := range w.acknowledged {
		value, err := rdb.Get(u.Context(), key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			lost = append(lost, key)
		case err != nil:
			u.Fatalf("read %s: %v", key, err)
		case value != key:
			u.Errorf("%s holds %q", key, value)
		}
	}
	u.Logf("%d writes were acknowledged, the longest gap between two was %s", len(w.acknowledged), time.Duration(w.gap.Load()).Round(time.Millisecond))
	if len(lost) > 0 {
		u.Errorf("%d of %d acknowledged writes are lost, as %s", len(lost), len(w.acknowledged), lost[0])
	}
}
