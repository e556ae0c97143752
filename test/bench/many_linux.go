package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/latency"
)

func init() { alone["many"] = many }

const (
	// manyNodes is the number of nodes of each cluster, in one shard.
	manyNodes = 3
	// dying is the part of the nodes that die at once.
	dying = .1
	// manyTooLong bounds the waits for all clusters to be Running.
	manyTooLong = 15 * time.Minute
)

// many measures what many clusters cost: for each number of them a control plane, a
// stand and a manager of their own.
func many(ctx context.Context, o options) ([]figure, error) {
	dir, err := os.MkdirTemp("", "bench-many-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var all []figure
	for _, n := range o.clusters {
		figures, err := manyOf(ctx, o, dir, n)
		all = append(all, figures...)
		if err != nil {
			return all, fmt.Errorf("with %d clusters: %w", n, err)
		}
	}
	overhead, err := overhead(ctx)
	if err != nil {
		return all, err
	}
	return append(all, withBar(newFigure("many", "overhead", overhead, "percent"), 2)), nil
}

// manyOf measures one number of clusters.
func manyOf(ctx context.Context, o options, dir string, n int) (figures []figure, err error) {
	w, err := openWorld(ctx, dir, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	add := func(name string, value float64, unit string) {
		figures = append(figures, newFigure("many", name, value, unit))
	}

	w.progress("%d clusters of %d nodes are created", n, manyNodes)
	start := time.Now()
	for i := range n {
		if err := w.create(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := w.awaitRunning(ctx, nil); err != nil {
		return nil, err
	}
	add("running_seconds", time.Since(start).Seconds(), "s")

	w.progress("all are Running after %.1f s; they are left alone for %s, then watched for %s", time.Since(start).Seconds(), o.manySettle, o.manyRest)
	rest, err := w.rest(ctx, o)
	if err != nil {
		return figures, err
	}
	perMinute := 1 / o.manyRest.Minutes()
	figures = append(figures, withBar(newFigure("many", "writes_at_rest", float64(rest.writes), "requests"), 0))
	add("reads_at_rest_per_min", float64(rest.reads)*perMinute, "requests/min")
	add("redis_commands_per_min", rest.commands*perMinute/float64(n), "commands/min/cluster")
	figures = append(figures,
		withBar(newFigure("many", "cpu_percent_at_rest", rest.cpu.Seconds()/o.manyRest.Seconds()*100, "percent"), float64(n)/10),
		withBar(newFigure("many", "rss_mb", float64(rest.rss)/1e6, "MB"), 60+.5*float64(n)))
	add("cpu_seconds_per_min", rest.cpu.Seconds()*perMinute, "s/min")
	add("queue_p99_ms", rest.queueP99*1e3, "ms")

	killed, err := w.kill(ctx, n)
	if err != nil {
		return figures, err
	}
	start = time.Now()
	if err := w.awaitRunning(ctx, killed); err != nil {
		return figures, err
	}
	add("recover_seconds", time.Since(start).Seconds(), "s")
	w.progress("%d nodes died at once; all is as it was after %.1f s", len(killed), time.Since(start).Seconds())
	return figures, nil
}

// create makes one cluster.
func (w *world) create(ctx context.Context, i int) error {
	c := &redisv1.RedisCluster{}
	c.Namespace, c.Name = w.namespace, fmt.Sprintf("many-%03d", i)
	replicas, shards := int32(manyNodes), int32(1)
	c.Spec = redisv1.RedisClusterSpec{Replicas: &replicas, Shards: &shards, Version: w.version}
	if err := w.admin.Create(ctx, c); err != nil {
		return fmt.Errorf("create RedisCluster %s: %w", c.Name, err)
	}
	return nil
}

// awaitRunning waits until all clusters are as their specs ask; killed are Pods whose
// servers must have been started again, with how often they had been before.
func (w *world) awaitRunning(ctx context.Context, killed map[types.NamespacedName]int32) error {
	ctx, cancel := context.WithTimeout(ctx, manyTooLong)
	defer cancel()
	said := time.Now()
	for {
		why, err := w.lacks(ctx, killed)
		if err != nil {
			return err
		}
		if why == "" {
			return nil
		}
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			w.progress("%s", why)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", why, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lacks says what is not as it should be; empty for nothing.
func (w *world) lacks(ctx context.Context, killed map[types.NamespacedName]int32) (string, error) {
	var pods corev1.PodList
	if len(killed) > 0 {
		if err := w.admin.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
			return "", fmt.Errorf("list Pods: %w", err)
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		before, died := killed[client.ObjectKeyFromObject(pod)]
		if died && (len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount <= before || !pod.Status.ContainerStatuses[0].Ready) {
			return fmt.Sprintf("Pod %s is not back", pod.Name), nil
		}
	}
	var list redisv1.RedisClusterList
	if err := w.admin.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		return "", fmt.Errorf("list RedisClusters: %w", err)
	}
	running := 0
	last := ""
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Phase == redisv1.PhaseRunning && c.Status.ReadyReplicas == manyNodes {
			running++
		} else {
			last = fmt.Sprintf("%s is %s", c.Name, c.Status.Phase)
		}
	}
	if running < len(list.Items) {
		return fmt.Sprintf("%d of %d clusters are Running; %s", running, len(list.Items), last), nil
	}
	return "", nil
}

// kill ends a tenth of all servers at once.
func (w *world) kill(ctx context.Context, n int) (map[types.NamespacedName]int32, error) {
	var pods corev1.PodList
	if err := w.admin.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	random := rand.New(rand.NewPCG(uint64(n), 6)) // the same ones each time
	killed := map[types.NamespacedName]int32{}
	for _, i := range random.Perm(len(pods.Items))[:max(1, int(float64(len(pods.Items))*dying))] {
		killed[client.ObjectKeyFromObject(&pods.Items[i])] = pods.Items[i].Status.ContainerStatuses[0].RestartCount
	}
	for pod := range killed {
		if err := w.stand.Kill(pod); err != nil {
			return nil, err
		}
	}
	return killed, nil
}

// resting is what was counted while nothing happened.
type resting struct {
	writes, reads int
	commands      float64
	cpu           time.Duration
	rss           int64
	queueP99      float64
}

// rest watches the manager while nothing happens.
func (w *world) rest(ctx context.Context, o options) (resting, error) {
	var r resting
	if err := waitFor(ctx, o.manySettle); err != nil {
		return r, err
	}
	if err := w.audit.skip(); err != nil {
		return r, err
	}
	before, err := w.samples(ctx)
	if err != nil {
		return r, err
	}
	cpu, err := processorTime(w.manager.Process.Pid)
	if err != nil {
		return r, err
	}
	for end := time.Now().Add(o.manyRest); time.Now().Before(end); {
		rss, err := statusLine(fmt.Sprintf("/proc/%d/status", w.manager.Process.Pid), "VmRSS:")
		if err != nil {
			return r, err
		}
		r.rss = max(r.rss, rss)
		if err := waitFor(ctx, min(time.Second, time.Until(end))); err != nil {
			return r, err
		}
	}
	after, err := processorTime(w.manager.Process.Pid)
	if err != nil {
		return r, err
	}
	r.cpu = after - cpu
	now, err := w.samples(ctx)
	if err != nil {
		return r, err
	}
	r.commands = now.Total("redis_commands_total") - before.Total("redis_commands_total")
	r.queueP99 = now.QuantileSince(before, "queue_duration_seconds", .99)
	requests, err := w.audit.operatorRequests()
	if err != nil {
		return r, err
	}
	for i := range requests {
		if kind := requests[i].class(); kind == read || kind == change {
			w.progress("at rest: a %s at %s: %s", kind, requests[i].Received.Format(time.TimeOnly), &requests[i])
		}
	}
	counts := count(requests)
	r.writes, r.reads = counts[change], counts[read]
	return r, nil
}

// samples are the manager's metrics now.
func (w *world) samples(ctx context.Context) (latency.Samples, error) {
	body, err := w.get(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return latency.Read(body)
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(0, d)):
		return nil
	}
}

var overheadLine = regexp.MustCompile(`overhead (-?[0-9.]+) percent`)

// overhead is what measuring adds to a pass, in percent, as a test of the controllers
// finds it by passes with and without.
func overhead(ctx context.Context) (float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "./controllers", "-run", "^TestMeasuringCostsLittle$", "-count=1", "-v").CombinedOutput()
	found := overheadLine.FindSubmatch(out)
	if err != nil || found == nil {
		return 0, fmt.Errorf("measure the cost of measuring: %w\n%s", err, out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
