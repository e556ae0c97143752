package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// disturbance is a scenario that does something to a running cluster, usually with
// clients that write meanwhile.
type disturbance struct {
	// nodes of the cluster at first.
	nodes int32
	// storage: the data is on volumes.
	storage bool
	// keys of 100 bytes that are in it.
	keys int
	// writers that write during the change; 0 for none.
	writers int
	// floor is the number of bare Pods whose readiness is compared with; 0 for none.
	floor int32
	// do begins the change.
	do func(ctx context.Context, b *bench, c *redisv1.RedisCluster) error
}

const (
	manyKeys    = 1_000_000
	manyWriters = 32
	// quiet is how long the operator is watched after a change, and calm how long it
	// is left alone before that.
	quiet = 20 * time.Second
	calm  = 15 * time.Second
)

var disturbances = map[string]disturbance{
	"scaleout-empty":       {nodes: 6, floor: 2, do: scaleTo(8)},
	"scaleout-data":        {nodes: 8, keys: manyKeys, writers: manyWriters, do: scaleTo(10)},
	"delete-primary":       {nodes: 6, writers: manyWriters, do: deletePrimary()},
	"force-delete-primary": {nodes: 6, writers: manyWriters, do: deletePrimary(client.GracePeriodSeconds(0))},
	"kill-primary":         {nodes: 6, writers: manyWriters, do: killPrimary},
	"kill-primary-storage": {nodes: 6, storage: true, writers: manyWriters, do: killPrimary},
	"all-pods-deleted":     {nodes: 6, storage: true, keys: 10_000, floor: 6, do: deleteAll},
	"roll":                 {nodes: 6, keys: manyKeys, writers: manyWriters, do: changeTemplate},
}

func init() {
	for name, c := range disturbances {
		scenarios[name] = func(ctx context.Context, b *bench) ([]figure, error) { return b.disturb(ctx, name, c) }
	}
}

// outcome is one run of a disturbance.
type outcome struct {
	floor, took time.Duration
	writes      int
	keysLost    int
	kube.Report
}

// disturb runs a scenario and gives the medians of its times, and the worst of what
// clients saw.
func (b *bench) disturb(ctx context.Context, name string, c disturbance) ([]figure, error) {
	var runs []outcome
	for turn := range b.runs {
		o, err := b.disturbOnce(ctx, name, c)
		if err != nil {
			return nil, err
		}
		b.progress("%s, run %d of %d: floor %.2f s, took %.2f s, %d writes acknowledged, %d lost, gap %s, %d requests afterwards; %v",
			name, turn+1, b.runs, o.floor.Seconds(), o.took.Seconds(), o.Acknowledged, o.Lost+o.keysLost, o.Gap.Round(time.Millisecond), o.writes, o.GapErr)
		runs = append(runs, o)
	}
	medianOf := func(value func(outcome) float64) float64 {
		var values []float64
		for _, o := range runs {
			values = append(values, value(o))
		}
		return median(values)
	}
	worst := func(value func(outcome) float64) float64 {
		highest := 0.0
		for _, o := range runs {
			highest = max(highest, value(o))
		}
		return highest
	}
	figures := []figure{newFigure(name, "seconds", medianOf(func(o outcome) float64 { return o.took.Seconds() }), "s")}
	if c.floor > 0 {
		floor := medianOf(func(o outcome) float64 { return o.floor.Seconds() })
		figures = append(figures, newFigure(name, "floor_seconds", floor, "s"),
			newFigure(name, "ratio", figures[0].Value/floor, "1"))
	}
	if c.writers > 0 {
		figures = append(figures,
			newFigure(name, "gap_ms", worst(func(o outcome) float64 { return float64(o.Gap.Milliseconds()) }), "ms"),
			newFigure(name, "acked", medianOf(func(o outcome) float64 { return float64(o.Acknowledged) }), "writes"))
	}
	return append(figures,
		newFigure(name, "lost", worst(func(o outcome) float64 { return float64(o.Lost + o.keysLost) }), "writes"),
		newFigure(name, "rest_writes", worst(func(o outcome) float64 { return float64(o.writes) }), "requests")), nil
}

// disturbOnce makes a cluster, does the change, waits until the cluster is as it
// should be, and removes it.
func (b *bench) disturbOnce(ctx context.Context, name string, c disturbance) (o outcome, err error) {
	if c.floor > 0 {
		if o.floor, err = b.floorOf(ctx, c.floor); err != nil {
			return o, fmt.Errorf("floor: %w", err)
		}
	}
	rc := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict(readyManifest, rc); err != nil {
		return o, fmt.Errorf("read ready.yaml: %w", err)
	}
	rc.Namespace, rc.Spec.Replicas = b.namespace, &c.nodes
	if c.storage {
		rc.Spec.Storage = &redisv1.StorageSpec{Size: resource.MustParse("1Gi")}
	}
	if err := b.Create(ctx, rc); err != nil {
		return o, fmt.Errorf("create the RedisCluster: %w", err)
	}
	if err := b.awaitRunning(ctx, rc); err != nil {
		return o, err
	}
	if err := b.fill(ctx, rc, c.keys); err != nil {
		return o, err
	}
	// What follows from the creation is over.
	if _, err := b.requestsAfter(ctx, calm); err != nil {
		return o, err
	}
	var writers *kube.Writers
	if c.writers > 0 {
		if writers, err = b.StartWriters(ctx, rc, c.writers, 0); err != nil {
			return o, err
		}
		if _, err := b.requestsAfter(ctx, time.Second); err != nil {
			return o, err
		}
		writers.Reset()
	}
	b.progress("%s: begins", name)
	start := time.Now()
	if err := c.do(ctx, b, rc); err != nil {
		return o, err
	}
	if err := b.awaitConverged(ctx); err != nil {
		return o, err
	}
	o.took = time.Since(start)
	if writers != nil {
		// A client may have yet to notice.
		if _, err := b.requestsAfter(ctx, time.Second); err != nil {
			return o, err
		}
		if o.Report, err = writers.Stop(ctx); err != nil {
			return o, err
		}
	}
	if o.keysLost, err = b.missing(ctx, rc, c.keys); err != nil {
		return o, err
	}
	if o.writes, err = b.writesAtRest(ctx); err != nil {
		return o, err
	}
	return o, b.removeWithVolumes(ctx, rc)
}

// writesAtRest counts the operator's writes once things have calmed down.
func (b *bench) writesAtRest(ctx context.Context) (int, error) {
	if _, err := b.requestsAfter(ctx, calm); err != nil {
		return 0, err
	}
	if err := b.audit.skip(); err != nil {
		return 0, err
	}
	requests, err := b.requestsAfter(ctx, quiet)
	if err != nil {
		return 0, err
	}
	for i := range requests {
		if requests[i].class() == change {
			b.progress("a write at rest: %s", &requests[i])
		}
	}
	return count(requests)[change], nil
}

// floorOf is the floor of a number of Pods.
func (b *bench) floorOf(ctx context.Context, pods int32) (time.Duration, error) {
	set := &appsv1.StatefulSet{}
	if err := yaml.UnmarshalStrict(floorManifest, set); err != nil {
		return 0, fmt.Errorf("read floor.yaml: %w", err)
	}
	set.Spec.Replicas = &pods
	return b.timeStatefulSet(ctx, set)
}

// awaitConverged waits until the cluster is Running as its present spec asks, all
// Pods being there that should be.
func (b *bench) awaitConverged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*tooLong)
	defer cancel()
	w, err := b.Watch(ctx, &redisv1.RedisClusterList{}, client.InNamespace(b.namespace))
	if err != nil {
		return fmt.Errorf("watch RedisClusters: %w", err)
	}
	defer w.Stop()
	last := ""
	return follow(ctx, w, func(o *redisv1.RedisCluster) bool {
		if line := fmt.Sprintf("%s, %d of %d ready", o.Status.Phase, o.Status.ReadyReplicas, o.Spec.Nodes()); line != last {
			last = line
			b.progress("   %s", line)
		}
		return o.Status.Phase == redisv1.PhaseRunning && o.Status.ObservedGeneration == o.Generation &&
			int(o.Status.ReadyReplicas) == o.Spec.Nodes()
	})
}

func scaleTo(nodes int32) func(context.Context, *bench, *redisv1.RedisCluster) error {
	return func(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
		return b.patch(ctx, c, fmt.Sprintf(`{"spec":{"replicas":%d}}`, nodes))
	}
}

func changeTemplate(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
	return b.patch(ctx, c, `{"spec":{"podAnnotations":{"example.com/rolled":"yes"}}}`)
}

func (b *bench) patch(ctx context.Context, c *redisv1.RedisCluster, patch string) error {
	if err := b.Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change the RedisCluster: %w", err)
	}
	return nil
}

func deletePrimary(options ...client.DeleteOption) func(context.Context, *bench, *redisv1.RedisCluster) error {
	return func(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
		pod, err := b.Primary(ctx, c, 0)
		if err != nil {
			return err
		}
		if err := b.Delete(ctx, pod, options...); err != nil {
			return fmt.Errorf("delete the primary: %w", err)
		}
		return b.awaitNew(ctx, c, map[string]corev1.Pod{pod.Name: *pod})
	}
}

func killPrimary(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
	pod, err := b.Primary(ctx, c, 0)
	if err != nil {
		return err
	}
	if err := kube.KillServer(string(pod.UID)); err != nil {
		return err
	}
	return kube.Await(ctx, nil, "the status names another primary", func(ctx context.Context) (string, error) {
		if err := b.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if c.Status.ShardStatuses[0].Primary == "" || c.Status.ShardStatuses[0].Primary == pod.Name {
			return "it is still " + pod.Name, nil
		}
		return "", nil
	})
}

func deleteAll(ctx context.Context, b *bench, c *redisv1.RedisCluster) error {
	pods, err := b.Pods(ctx, c)
	if err != nil {
		return err
	}
	before := map[string]corev1.Pod{}
	for _, pod := range pods {
		before[pod.Name] = pod
		if err := b.Delete(ctx, &pod); err != nil {
			return fmt.Errorf("delete %s: %w", pod.Name, err)
		}
	}
	return b.awaitNew(ctx, c, before)
}

// awaitNew waits until Pods have been made anew and are ready.
func (b *bench) awaitNew(ctx context.Context, c *redisv1.RedisCluster, before map[string]corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	return kube.Await(ctx, nil, "the Pods are back", func(ctx context.Context) (string, error) {
		pods, err := b.Pods(ctx, c)
		if err != nil {
			return "", err
		}
		missing := maps.Clone(before)
		for i := range pods {
			if old, ok := before[pods[i].Name]; ok && old.UID != pods[i].UID && kube.Ready(&pods[i]) {
				delete(missing, pods[i].Name)
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(missing)), ", "), nil
	})
}

// fillAtOnce is the number of keys that are written in one exchange.
const fillAtOnce = 1000

var filling = strings.Repeat("x", 100)

// fill writes keys, as fast as it can.
func (b *bench) fill(ctx context.Context, c *redisv1.RedisCluster, keys int) error {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	return inBatches(keys, func(first, last int) error {
		pipe := rdb.Pipeline()
		for i := first; i < last; i++ {
			pipe.Set(ctx, fmt.Sprintf("key:%d", i), filling, 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("fill the cluster: %w", err)
		}
		return nil
	})
}

// missing counts the keys that fill wrote and that are not there.
func (b *bench) missing(ctx context.Context, c *redisv1.RedisCluster, keys int) (int, error) {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	missing := 0
	err = inBatches(keys, func(first, last int) error {
		pipe := rdb.Pipeline()
		var found []*redis.IntCmd
		for i := first; i < last; i++ {
			found = append(found, pipe.StrLen(ctx, fmt.Sprintf("key:%d", i)))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("read the keys back: %w", err)
		}
		for _, cmd := range found {
			if cmd.Val() != int64(len(filling)) {
				missing++
			}
		}
		return nil
	})
	return missing, err
}

func inBatches(n int, do func(first, last int) error) error {
	for first := 0; first < n; first += fillAtOnce {
		if err := do(first, min(first+fillAtOnce, n)); err != nil {
			return err
		}
	}
	return nil
}

// removeWithVolumes removes a cluster and what it leaves by intent.
func (b *bench) removeWithVolumes(ctx context.Context, c *redisv1.RedisCluster) error {
	if err := b.Delete(ctx, c, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("delete %s: %w", c.Name, err)
	}
	err := b.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(b.namespace))
	return errors.Join(err, kube.Await(ctx, nil, "nothing is left of "+c.Name, func(ctx context.Context) (string, error) {
		left, err := b.Inventory(ctx, b.namespace)
		return strings.Join(slices.Sorted(maps.Keys(left)), ", "), err
	}))
}
