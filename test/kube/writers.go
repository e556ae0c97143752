package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	redisv1 "github.com/example/redis-operator/api/v1"
)

const (
	// hurry bounds each dial, read and write of a writer's client: longer than any
	// gap that is allowed, so that it does not hide one.
	hurry = 500 * time.Millisecond
	// ring is the number of keys of each writer. It goes around them.
	ring = 500
)

// Writers write to a RedisCluster all the time, as clients do that count on it:
// each in the slot of its own hash tag, one number after the other. What was
// acknowledged is remembered.
//
// After an error the client asks the cluster anew who owns what, as redis-py and
// Lettuce do. go-redis by itself would go on asking an address that refuses it for
// up to 10 seconds, whatever the cluster has done meanwhile.
type Writers struct {
	rdb    *redis.ClusterClient
	asking sync.Mutex
	asked  time.Time
	stop   context.CancelFunc
	wg     sync.WaitGroup
	all    []*writer
}

// writer is one of them. Its fields are its own until it has stopped.
type writer struct {
	tag string
	// acknowledged is, by key, the highest number that was.
	acknowledged [ring]int
	count        int
	last         time.Time
	gap          time.Duration
	gapAt        time.Time
	lastErr      error
	mu           sync.Mutex
}

// Report is what writers have seen.
type Report struct {
	// Acknowledged writes, and those of them that cannot be read any more.
	Acknowledged, Lost int
	// Gap is the longest time in which one of the writers had none acknowledged.
	Gap time.Duration
	// GapAt is when the longest gap ended, and GapErr the last error in it.
	GapAt  time.Time
	GapErr error
	// Example is one of the lost writes.
	Example string
}

// StartWriters starts n writers with a pause between two writes of each, zero for
// none, and returns when every one of them has had a write acknowledged.
func (k *Kube) StartWriters(ctx context.Context, c *redisv1.RedisCluster, n int, pause time.Duration) (*Writers, error) {
	password, err := k.Password(ctx, c)
	if err != nil {
		return nil, err
	}
	pods, err := k.Pods(ctx, c)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for i := range pods {
		if ip := pods[i].Status.PodIP; ip != "" {
			addresses = append(addresses, net.JoinHostPort(ip, redisPort))
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addresses, Password: password, DialTimeout: hurry, ReadTimeout: hurry, WriteTimeout: hurry, DialerRetries: 1,
		PoolSize: n, MaxRedirects: 3,
	})
	ctx, stop := context.WithCancel(ctx)
	w := &Writers{rdb: rdb, stop: stop}
	for i := range n {
		one := &writer{tag: fmt.Sprintf("{writer-%d}", i)}
		w.all = append(w.all, one)
		w.wg.Go(func() { one.run(ctx, w, pause) })
	}
	err = Await(ctx, func(string) {}, "all writers write", func(context.Context) (string, error) {
		for _, one := range w.all {
			one.mu.Lock()
			count, lastErr := one.count, one.lastErr
			one.mu.Unlock()
			if count == 0 {
				return fmt.Sprintf("%s has not yet: %v", one.tag, lastErr), nil
			}
		}
		return "", nil
	})
	if err != nil {
		stop()
		return nil, errors.Join(err, rdb.Close())
	}
	return w, nil
}

func (w *writer) run(ctx context.Context, all *Writers, pause time.Duration) {
	for number := 1; ctx.Err() == nil; number++ {
		began := time.Now()
		err := all.rdb.Set(ctx, w.key(number%ring), number, 0).Err()
		w.note(number, err)
		if err != nil {
			all.askAnew(ctx, began)
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// askAnew learns the cluster anew, unless another writer has done so since.
func (w *Writers) askAnew(ctx context.Context, since time.Time) {
	w.asking.Lock()
	defer w.asking.Unlock()
	if w.asked.After(since) {
		return
	}
	w.asked = time.Now()
	w.rdb.ReloadState(ctx)
}

func (w *writer) key(i int) string { return w.tag + ":" + strconv.Itoa(i) }

// note remembers how a write went.
func (w *writer) note(number int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			w.lastErr = err
		}
		return
	}
	now := time.Now()
	if gap := now.Sub(w.last); w.count > 0 && gap > w.gap {
		w.gap, w.gapAt = gap, now
	}
	w.last = now
	w.count++
	w.acknowledged[number%ring] = number
}

// Reset forgets the gaps so far, so that the next ones can be told apart.
func (w *Writers) Reset() {
	for _, one := range w.all {
		one.mu.Lock()
		one.gap, one.lastErr = 0, nil
		one.mu.Unlock()
	}
}

// Gap is the longest gap since the start or Reset, one that lasts still included.
func (w *Writers) Gap() time.Duration {
	var longest time.Duration
	for _, one := range w.all {
		one.mu.Lock()
		longest = max(longest, one.gap, time.Since(one.last))
		one.mu.Unlock()
	}
	return longest
}

// Stop ends the writers and reads everything back that was acknowledged: each key
// must hold the last number that was, or a later one.
func (w *Writers) Stop(ctx context.Context) (Report, error) {
	w.stop()
	w.wg.Wait()
	defer func() { _ = w.rdb.Close() }() // nothing is pending on it
	var r Report
	for _, one := range w.all {
		r.Acknowledged += one.count
		if one.gap > r.Gap {
			r.Gap, r.GapAt, r.GapErr = one.gap, one.gapAt, one.lastErr
		}
		for i, want := range one.acknowledged {
			if want == 0 {
				continue
			}
			got, err := w.read(ctx, one.key(i))
			if err != nil {
				return r, fmt.Errorf("read %s: %w", one.key(i), err)
			}
			if got < want {
				r.Lost++
				r.Example = fmt.Sprintf("%s is %d, and %d was acknowledged", one.key(i), got, want)
			}
		}
	}
	return r, nil
}

// read gives the number of a key, 0 for none, and tries again while the cluster is
// still at its work.
func (w *Writers) read(ctx context.Context, key string) (int, error) {
	var err error
	for range 20 {
		var got int
		got, err = w.rdb.Get(ctx, key).Int()
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, redis.Nil):
			return 0, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		}
		w.rdb.ReloadState(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(hurry):
		}
	}
	return 0, err
}
