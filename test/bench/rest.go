package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// rest measures what the operator costs while it has one converged cluster and
// nothing to do: its requests and its memory.
func rest(ctx context.Context, b *bench) ([]figure, error) {
	c := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict(readyManifest, c); err != nil {
		return nil, fmt.Errorf("read ready.yaml: %w", err)
	}
	c.Namespace = b.namespace
	if err := b.Create(ctx, c); err != nil {
		return nil, fmt.Errorf("create the RedisCluster: %w", err)
	}
	if err := b.awaitRunning(ctx, c); err != nil {
		return nil, err
	}
	manager, err := b.Manager(ctx)
	if err != nil {
		return nil, err
	}
	b.progress("rest: the cluster is Running; it is left alone for %s, then watched for %s", b.settle, b.rest)
	if _, err := b.requestsAfter(ctx, b.settle); err != nil {
		return nil, err
	}
	if err := b.audit.skip(); err != nil {
		return nil, err
	}
	rss, err := b.watchMemory(ctx, string(manager.UID))
	if err != nil {
		return nil, err
	}
	requests, err := b.audit.operatorRequests()
	if err != nil {
		return nil, err
	}
	// Figures of a cluster that was not whole, or of another manager, are void.
	if err := b.awaitRunning(ctx, c); err != nil {
		return nil, err
	}
	again, err := b.Manager(ctx)
	if err != nil {
		return nil, err
	}
	if again.UID != manager.UID || restarts(again) != restarts(manager) {
		return nil, errors.New("the manager was restarted while it was measured")
	}
	for i := range requests {
		if kind := requests[i].class(); kind == read || kind == change {
			b.progress("rest: a %s at %s: %s", kind, requests[i].Received.Format(time.TimeOnly), &requests[i])
		}
	}
	counts, minutes := count(requests), b.rest.Minutes()
	return []figure{
		newFigure("rest", "writes", float64(counts[change]), "requests"),
		newFigure("rest", "reads_per_min", float64(counts[read])/minutes, "requests/min"),
		newFigure("rest", "watches_per_min", float64(counts[watch])/minutes, "requests/min"),
		newFigure("rest", "leases_per_min", float64(counts[lease])/minutes, "requests/min"),
		newFigure("rest", "reviews_per_min", float64(counts[review])/minutes, "requests/min"),
		newFigure("rest", "rss_mb", float64(rss)/1e6, "MB"),
	}, nil
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, s := range pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

func (b *bench) awaitRunning(ctx context.Context, c *redisv1.RedisCluster) error {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	return kube.Await(ctx, func(s string) { b.progress("rest: %s", s) }, c.Name+" is Running", func(ctx context.Context) (string, error) {
		if err := b.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if c.Status.Phase != redisv1.PhaseRunning {
			return "phase " + string(c.Status.Phase), nil
		}
		return "", nil
	})
}

// watchMemory looks at the manager's resident memory every few seconds for the
// time of rest and gives the highest value, in bytes.
func (b *bench) watchMemory(ctx context.Context, podUID string) (highest int64, err error) {
	const every = 5 * time.Second
	end := time.After(b.rest)
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := time.Now()
	for {
		rss, err := residentMemory(podUID)
		if err != nil {
			return 0, err
		}
		highest = max(highest, rss)
		if time.Since(said) > time.Minute {
			said = time.Now()
			b.progress("rest: the manager has %.1f MB", float64(rss)/1e6)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-end:
			return highest, nil
		case <-tick.C:
		}
	}
}
