package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	redisv1 "github.com/example/redis-operator/api/v1"
)

const (
	// clients write at the same time, each with a pause: a machine that clients keep
	// busy by themselves would say nothing of what a backup does to them.
	clients = 8
	pause   = 5 * time.Millisecond
)

// latencies writes to a cluster until the context ends, and gives how long each write
// took.
func (b *bench) latencies(ctx context.Context, c *redisv1.RedisCluster) ([]time.Duration, error) {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			var own []time.Duration
			var err error
			for n := 0; ctx.Err() == nil && err == nil; n++ {
				start := time.Now()
				err = rdb.Set(ctx, "{client-"+strconv.Itoa(i)+"}:"+strconv.Itoa(n%1000), n, 0).Err()
				own = append(own, time.Since(start))
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, own...); ctx.Err() == nil {
				failed = errors.Join(failed, err)
			}
		})
	}
	wg.Wait()
	return all, failed
}

// p99 is the 99th percentile of durations, 0 without any.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, len(sorted)*99/100)]
}
