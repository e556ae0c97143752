package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis/redistest"
	"github.com/example/redis-operator/test/apiserver"
)

// gathered finds series of the operator's metrics by name, as text: labels, then the
// value or the count.
type gathered struct {
	*prometheus.Registry
	testing.TB
}

func gather(t testing.TB) *gathered {
	t.Helper()
	g := &gathered{prometheus.NewRegistry(), t}
	if err := metrics.Register(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// series sums up the values, or the counts of histograms, of what has all the labels,
// written name=value, and tells how many series that are.
func (g *gathered) series(name string, labels ...string) (sum float64, n int) {
	g.Helper()
	families, err := g.Gather()
	if err != nil {
		g.Fatal(err)
	}
	for _, f := range families {
		if name != "" && f.GetName() != metrics.Prefix+name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := ","
			for _, l := range m.GetLabel() {
				has += l.GetName() + "=" + l.GetValue() + ","
			}
			fits := true
			for _, l := range labels {
				fits = fits && strings.Contains(has, ","+l+",")
			}
			if fits {
				n++
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum, n
}

// runManager runs the controllers as main does, until the test ends.
func (s *stage) runManager() {
	s.Helper()
	config := apiserver.Config(s)
	config.QPS = -1
	config.Wrap(metrics.Transport)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: s.admin.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		// The clusters of other tests have operators of their own.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.cluster.Namespace: {}}},
	})
	if err != nil {
		s.Fatal(err)
	}
	clusters := &RedisClusterReconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: discard{}, OperatorImage: "operator:1"}
	backups := &RedisBackupReconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: discard{}, OperatorImage: "operator:1"}
	if err := errors.Join(MeasureWatches(s.Context(), mgr.GetCache()), clusters.SetupWithManager(mgr), backups.SetupWithManager(mgr)); err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("the manager: %v", err)
		}
	})
}

// TestTheStepsOfAClusterAreMeasured on a real API server, with a manager, its
// informers and queue, and real Redis servers: what is measured adds up, and ends with
// the cluster.
func TestTheStepsOfAClusterAreMeasured(t *testing.T) {
	g := gather(t)
	three := int32(3)
	s := newStage(t, redisv1.RedisClusterSpec{Replicas: &three})
	s.runManager()
	here := []string{"namespace=" + s.cluster.Namespace, "name=orders"}
	redistest.Eventually(t, time.Minute, func() error {
		if !s.get(&appsv1.StatefulSet{}, "orders-0") || !s.get(&corev1.Secret{}, "orders-operator") {
			return errors.New("nothing is made yet")
		}
		return nil
	})
	s.runServers()
	redistest.Eventually(t, time.Minute, func() error {
		if v, _ := g.series("rediscluster_phase", append(here, "phase=Running")...); v != 1 {
			return fmt.Errorf("not Running: %s", s.ready().Message)
		}
		return nil
	})
	for _, c := range []struct {
		name   string
		labels []string
		least  float64
	}{
		{"api_request_duration_seconds", []string{"verb=apply", "resource=statefulsets", "result=ok"}, 1},
		{"api_request_duration_seconds", []string{"verb=create", "resource=secrets", "result=ok"}, 2},
		{"watch_lag_seconds", []string{"resource=statefulsets"}, 1},
		{"watch_lag_seconds", []string{"resource=redisclusters"}, 1},
		{"watch_lag_seconds", []string{"resource=pods"}, 3},
		{"queue_wakeups_total", []string{"controller=rediscluster", "cause=spec_changed"}, 1},
		{"queue_wakeups_total", []string{"controller=rediscluster", "cause=child_changed"}, 3},
		{"queue_wakeups_total", []string{"controller=rediscluster", "cause=timer"}, 1},
		{"queue_duration_seconds", []string{"controller=rediscluster"}, 3},
		{"pass_step_duration_seconds", []string{"controller=rediscluster", "step=observe_redis"}, 3},
		{"pass_step_duration_seconds", []string{"controller=rediscluster", "step=status"}, 3},
		{"pass_waits_seconds_total", []string{"controller=rediscluster", "step=act", "for=api_write"}, 1e-3},
		{"pass_waits_seconds_total", []string{"controller=rediscluster", "step=observe_redis", "for=redis"}, 1e-3},
		{"actions_total", []string{"kind=Meet", "result=ok"}, 1},
		{"actions_total", []string{"kind=AddSlots", "result=ok"}, 1},
		{"actions_total", []string{"kind=Replicate", "result=ok"}, 2},
		{"redis_commands_total", []string{"command=CLUSTER NODES", "result=ok"}, 9},
		{"convergence_seconds", []string{"change=create"}, 1},
		{"rediscluster_shards_ok", here, 1},
		{"rediscluster_replicas_in_sync", here, 2},
	} {
		if v, _ := g.series(c.name, c.labels...); v < c.least {
			t.Errorf("%s%v is %g, want at least %g", c.name, c.labels, v, c.least)
		}
	}
	for _, name := range []string{"rediscluster_slots_unassigned", "rediscluster_slots_moving", "rediscluster_shards_without_synced_replica",
		"rediscluster_not_converged_since_timestamp_seconds"} {
		if v, n := g.series(name, here...); v != 0 || n != 1 {
			t.Errorf("%s is %g in %d series, want one of 0", name, v, n)
		}
	}
	if v, _ := g.series("queue_wakeups_total", "cause=other"); v != 0 {
		t.Errorf("%g wake-ups have no known cause", v)
	}
	if err := s.admin.Delete(t.Context(), s.cluster); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, time.Minute, func() error {
		if _, n := g.series("", here...); n > 0 {
			return fmt.Errorf("%d series of a cluster that is gone", n)
		}
		return nil
	})
}
