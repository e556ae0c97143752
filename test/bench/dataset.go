package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// dataset is a number of keys whose values follow from their numbers: 1000 random
// hexadecimal digits, which compress to about a half. Every lastingEvery-th key has a
// lifetime.
type dataset struct {
	keys int
	// until is when the keys with a lifetime expire.
	until time.Time
}

const (
	valueSize    = 1000
	lastingEvery = 100
	// sampleEvery is the distance of the keys whose values are compared. It has no
	// divisor in common with lastingEvery, so that both kinds of keys are.
	sampleEvery = 97
	// fillers fill at the same time.
	fillers = 4
)

func (d dataset) value(i int) string {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	raw := make([]byte, 0, valueSize/2)
	for len(raw) < valueSize/2 {
		n := random.Uint64()
		raw = append(raw, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
	}
	return hex.EncodeToString(raw[:valueSize/2])
}

func (d dataset) key(i int) string { return "data:" + strconv.Itoa(i) }

// write writes all keys, as fast as it can.
func (d dataset) write(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
	return d.each(ctx, b, c, func(ctx context.Context, rdb *redis.ClusterClient, first, last int) error {
		pipe := rdb.Pipeline()
		for i := first; i < last; i++ {
			if i%lastingEvery == 0 {
				pipe.SetArgs(ctx, d.key(i), d.value(i), redis.SetArgs{ExpireAt: d.until})
			} else {
				pipe.Set(ctx, d.key(i), d.value(i), 0)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("fill the cluster: %w", err)
		}
		return nil
	})
}

// lost counts the keys that are not there, or, among the samples, not what they were.
func (d dataset) lost(ctx context.Context, b *bench, c *redisv1.RedisCluster) (int, error) {
	var lost atomic.Int64
	err := d.each(ctx, b, c, func(ctx context.Context, rdb *redis.ClusterClient, first, last int) error {
		pipe := rdb.Pipeline()
		sizes, values, ends := map[int]*redis.IntCmd{}, map[int]*redis.StringCmd{}, map[int]*redis.DurationCmd{}
		for i := first; i < last; i++ {
			sizes[i] = pipe.StrLen(ctx, d.key(i))
			if i%sampleEvery == 0 {
				values[i] = pipe.Get(ctx, d.key(i))
			}
			if i%lastingEvery == 0 {
				ends[i] = pipe.PExpireTime(ctx, d.key(i))
			}
		}
		// A key that is missing is told by what is compared below.
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read the keys back: %w", err)
		}
		for i := first; i < last; i++ {
			good := sizes[i].Val() == valueSize
			if v, ok := values[i]; ok {
				good = good && v.Val() == d.value(i)
			}
			if e, ok := ends[i]; ok {
				// MIGRATE hands over the remaining life.
				off := time.UnixMilli(e.Val().Milliseconds()).Sub(d.until)
				good = good && off.Abs() < time.Second
			}
			if !good {
				lost.Add(1)
			}
		}
		return nil
	})
	return int(lost.Load()), err
}

// each calls do for all keys, some at a time.
func (d dataset) each(ctx context.Context, b *bench, c *redisv1.RedisCluster, do func(ctx context.Context, rdb *redis.ClusterClient, first, last int) error) error {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	err = inBatches(d.keys, func(first, last int) error {
		group.Go(func() error { return do(ctx, rdb, first, last) })
		return ctx.Err()
	})
	if waited := group.Wait(); waited != nil {
		return waited
	}
	return err
}
