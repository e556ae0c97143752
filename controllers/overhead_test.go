package controllers

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis/redistest"
	"github.com/example/redis-operator/test/apiserver"
)

// How the cost of measuring is measured: pairs of short blocks of passes over a resting
// cluster, with and without, one after the other, so that what else the machine does
// falls on both.
const (
	pairs        = 300
	passesABlock = 10
)

// TestMeasuringCostsLittle: a pass over a resting cluster of three real servers, with its
// children in a cache as in the manager, takes hardly more processor time with all the
// measuring than without. The figure is printed for the benchmarks; what fails here is
// far above it, because other tests share the machine.
func TestMeasuringCostsLittle(t *testing.T) {
	three := int32(3)
	s := newStage(t, redisv1.RedisClusterSpec{Replicas: &three})
	s.form()
	s.readFromCache()
	pass := func() {
		if err := s.pass(); err != nil {
			t.Fatal(err)
		}
	}
	defer metrics.Enable(true)
	for range 20 * passesABlock {
		pass() // until the cache and the connections are warm
	}
	block := func(on bool) float64 {
		metrics.Enable(on)
		start := processorTime(t)
		for range passesABlock {
			pass()
		}
		return (processorTime(t) - start).Seconds() / passesABlock
	}
	var more, without []float64
	for i := range pairs {
		first := block(i%2 == 0)
		second := block(i%2 == 1)
		if i%2 == 1 {
			first, second = second, first
		}
		more, without = append(more, first-second), append(without, second)
	}
	slices.Sort(more)
	slices.Sort(without)
	percent := more[pairs/2] / without[pairs/2] * 100
	fmt.Printf("overhead %.2f percent: a pass takes %.0f µs of processor time, and %.0f µs more with measuring (medians of %d pairs)\n", percent,
		without[pairs/2]*1e6, more[pairs/2]*1e6, pairs)
	if percent > 15 {
		t.Errorf("measuring costs %.1f%% of a pass", percent)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// form brings the cluster to where nothing is left to do.
func (s *stage) form() {
	s.Helper()
	for range 4 {
		if err := s.pass(); err != nil {
			s.Fatal(err)
		}
	}
	s.runServers()
	redistest.Eventually(s, time.Minute, func() error {
		if err := s.pass(); err != nil {
			return err
		}
		if ready := s.ready(); s.cluster.Status.Phase != redisv1.PhaseRunning {
			return fmt.Errorf("%s: %s", s.cluster.Status.Phase, ready.Message)
		}
		return nil
	})
}

// readFromCache lets the operator read as it does in the manager.
func (s *stage) readFromCache() {
	s.Helper()
	c, err := cluster.New(apiserver.Config(s), func(o *cluster.Options) {
		o.Scheme = s.admin.Scheme()
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{s.cluster.Namespace: {}}}
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	s.r = &RedisClusterReconciler{Client: c.GetClient(), APIReader: s.admin, Recorder: discard{}, OperatorImage: "operator:1"}
	s.r.applier = &Applier{Client: s.r.Client, APIReader: s.admin}
	if _, err := s.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.cluster)}); err != nil {
		s.Fatal(err)
	}
}
