package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

//go:embed ready.yaml
var readyManifest []byte

//go:embed floor.yaml
var floorManifest []byte

const (
	// tooLong ends a run that does not get anywhere.
	tooLong = 3 * time.Minute
	// afterwards is how long requests are counted after a cluster is ready: its
	// last status, labels and Events belong to the creation.
	afterwards = 5 * time.Second
)

// ready measures how long a cluster of six takes from its apply until it serves,
// and how many requests that costs, against a bare StatefulSet. The two take
// turns, and the first turn, which warms the machine up, does not count.
func ready(ctx context.Context, b *bench) ([]figure, error) {
	var floors, seconds, totals []float64
	verbs := map[string][]float64{}
	for turn := range b.runs + 1 {
		floor, err := b.floor(ctx)
		if err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
		took, requests, err := b.ready(ctx)
		if err != nil {
			return nil, err
		}
		counts := byVerb(requests)
		total := 0
		for _, n := range counts {
			total += n
		}
		which := fmt.Sprintf("run %d of %d", turn, b.runs)
		if turn == 0 {
			which = "warm-up"
		}
		b.progress("ready, %s: floor %.2f s, ready %.2f s, %d requests %v", which, floor.Seconds(), took.Seconds(), total, counts)
		if turn == 0 {
			continue
		}
		floors, seconds, totals = append(floors, floor.Seconds()), append(seconds, took.Seconds()), append(totals, float64(total))
		for _, verb := range []string{"create", "delete", "get", "list", "patch", "update"} {
			verbs[verb] = append(verbs[verb], float64(counts[verb]))
		}
	}
	figures := []figure{
		newFigure("ready", "seconds", median(seconds), "s"),
		newFigure("ready", "floor_seconds", median(floors), "s"),
		newFigure("ready", "ratio", median(seconds)/median(floors), "1"),
		newFigure("ready", "api_requests", median(totals), "requests"),
	}
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		figures = append(figures, newFigure("ready", "api_requests_"+verb, median(verbs[verb]), "requests"))
	}
	return figures, nil
}

// floor is the time from the apply of the bare StatefulSet until all of its
// Pods are ready. It leaves nothing behind.
func (b *bench) floor(ctx context.Context) (time.Duration, error) {
	set := &appsv1.StatefulSet{}
	if err := yaml.UnmarshalStrict(floorManifest, set); err != nil {
		return 0, fmt.Errorf("read floor.yaml: %w", err)
	}
	return b.timeStatefulSet(ctx, set)
}

// timeStatefulSet applies a StatefulSet, waits for its Pods, and removes it.
func (b *bench) timeStatefulSet(ctx context.Context, set *appsv1.StatefulSet) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	set.Namespace = b.namespace
	watch, err := b.Watch(ctx, &appsv1.StatefulSetList{}, client.InNamespace(b.namespace))
	if err != nil {
		return 0, fmt.Errorf("watch StatefulSets: %w", err)
	}
	defer watch.Stop()
	start := time.Now()
	if err := b.Create(ctx, set); err != nil {
		return 0, fmt.Errorf("create the StatefulSet: %w", err)
	}
	err = follow(ctx, watch, func(o *appsv1.StatefulSet) bool {
		return o.Name == set.Name && o.Status.ReadyReplicas == *set.Spec.Replicas
	})
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("wait for %d ready Pods: %w", *set.Spec.Replicas, err)
	}
	return took, b.remove(ctx, set)
}

// ready is the time from the apply of the RedisCluster until its phase is
// Running and each shard has acknowledged a SET, and the operator's requests
// for it. It leaves nothing behind.
func (b *bench) ready(ctx context.Context) (time.Duration, []request, error) {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	c := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict(readyManifest, c); err != nil {
		return 0, nil, fmt.Errorf("read ready.yaml: %w", err)
	}
	c.Namespace = b.namespace
	watch, err := b.Watch(ctx, &redisv1.RedisClusterList{}, client.InNamespace(b.namespace))
	if err != nil {
		return 0, nil, fmt.Errorf("watch RedisClusters: %w", err)
	}
	defer watch.Stop()
	line, err := b.timeline(ctx)
	if err != nil {
		return 0, nil, err
	}
	if err := b.audit.skip(); err != nil {
		return 0, nil, err
	}
	start := time.Now()
	if err := b.Create(ctx, c); err != nil {
		return 0, nil, fmt.Errorf("create the RedisCluster: %w", err)
	}
	err = follow(ctx, watch, func(o *redisv1.RedisCluster) bool {
		line.status(o)
		return o.Name == c.Name && o.Status.Phase == redisv1.PhaseRunning
	})
	if err != nil {
		return 0, nil, fmt.Errorf("wait for the phase Running: %w", err)
	}
	if err := b.setInEachShard(ctx, c, line); err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	requests, err := b.requestsAfter(ctx, afterwards)
	if err != nil {
		return 0, nil, err
	}
	if b.verbose {
		line.requests(requests)
		line.print(b, start)
	}
	return took, requests, b.remove(ctx, c)
}

// requestsAfter waits and gives the operator's requests since the last skip.
func (b *bench) requestsAfter(ctx context.Context, d time.Duration) ([]request, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(d):
	}
	return b.audit.operatorRequests()
}

// setInEachShard writes a key to each primary.
func (b *bench) setInEachShard(ctx context.Context, c *redisv1.RedisCluster, line *timeline) error {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	var mu sync.Mutex
	written := 0
	err = rdb.ForEachMaster(ctx, func(ctx context.Context, primary *redis.Client) error {
		key, err := kube.SetInShard(ctx, primary, "bench", "1")
		if err != nil {
			return err
		}
		line.note("%s took %s", strings.TrimSuffix(primary.Options().Addr, ":6379"), key)
		mu.Lock()
		defer mu.Unlock()
		written++
		return nil
	})
	if err == nil && written != c.Spec.ShardCount() {
		err = fmt.Errorf("%d primaries took a key, want %d", written, c.Spec.ShardCount())
	}
	if err != nil {
		return fmt.Errorf("write to each shard although the phase is Running: %w", err)
	}
	return nil
}

// remove deletes an object and waits until nothing is left in the namespace.
func (b *bench) remove(ctx context.Context, o client.Object) error {
	if err := b.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return kube.Await(ctx, nil, "nothing is left of "+o.GetName(), func(ctx context.Context) (string, error) {
		left, err := b.Inventory(ctx, b.namespace)
		return strings.Join(slices.Sorted(maps.Keys(left)), ", "), err
	})
}

// follow takes what a watch tells until it is enough.
func follow[T client.Object](ctx context.Context, w apiwatch.Interface, enough func(T) bool) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return errors.New("the API server ended the watch")
			}
			if o, ok := event.Object.(T); ok && enough(o) {
				return nil
			}
		}
	}
}
