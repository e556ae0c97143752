package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/topology"
)

// What internal/metrics measures is told here and by one line in each step.

// watched are the kinds whose informers tell when they deliver a write.
var watched = map[string]client.Object{
	"redisclusters": &redisv1.RedisCluster{}, "redisbackups": &redisv1.RedisBackup{}, "statefulsets": &appsv1.StatefulSet{},
	"services": &corev1.Service{}, "configmaps": &corev1.ConfigMap{}, "pods": &corev1.Pod{}, "persistentvolumeclaims": &corev1.PersistentVolumeClaim{},
	"poddisruptionbudgets": &policyv1.PodDisruptionBudget{}, "networkpolicies": &networkingv1.NetworkPolicy{}, "jobs": &batchv1.Job{},
}

// MeasureWatches has the informers of a cache, which has not started, tell what they
// deliver.
func MeasureWatches(ctx context.Context, c cache.Cache) error {
	for resource, kind := range watched {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("find the informer of %s: %w", resource, err)
		}
		metrics.Watching(resource)
		if _, err := informer.AddEventHandler(deliveryOf(resource)); err != nil {
			return fmt.Errorf("listen to the informer of %s: %w", resource, err)
		}
	}
	return nil
}

func deliveryOf(resource string) toolscache.ResourceEventHandler {
	shown := func(o any) {
		if object, ok := o.(client.Object); ok {
			metrics.Delivered(resource, object.GetNamespace(), object.GetName(), object.GetResourceVersion())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    shown,
		UpdateFunc: func(_, o any) { shown(o) },
		DeleteFunc: func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			if object, ok := o.(client.Object); ok {
				metrics.Removed(resource, object.GetNamespace(), object.GetName())
			}
		},
	}
}

// wrote notes the API server's answer to a write for a cluster; o is what it answered.
func wrote(cluster string, o client.Object) {
	metrics.Wrote(cluster, resourceOf(o), o.GetNamespace(), o.GetName(), o.GetResourceVersion())
}

func resourceOf(o client.Object) string {
	switch o.(type) {
	case *redisv1.RedisCluster:
		return "redisclusters"
	case *redisv1.RedisBackup:
		return "redisbackups"
	case *appsv1.StatefulSet:
		return "statefulsets"
	case *corev1.Service:
		return "services"
	case *corev1.ConfigMap:
		return "configmaps"
	case *corev1.Pod:
		return "pods"
	case *corev1.PersistentVolumeClaim:
		return "persistentvolumeclaims"
	case *policyv1.PodDisruptionBudget:
		return "poddisruptionbudgets"
	case *networkingv1.NetworkPolicy:
		return "networkpolicies"
	case *batchv1.Job:
		return "jobs"
	}
	return metrics.Other
}

// queue is a controller's queue that is measured. It is controller-runtime's own
// otherwise.
type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	measured *metrics.Queue
	limiter  workqueue.TypedRateLimiter[reconcile.Request]
}

// newQueue is the NewQueue of controller.Options.
func newQueue(measured *metrics.Queue) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		inner := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) {
			o.Log = ctrl.Log.WithValues("controller", name)
			o.RateLimiter = limiter
		})
		return &queue{PriorityQueue: inner, measured: measured, limiter: limiter}
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(r reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, r)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(r reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
}

// AddWithOpts implements priorityqueue.PriorityQueue. The delay of a retry is decided
// here, so that it is known.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, r := range requests {
		o := o
		cause := metrics.ChildChanged
		switch {
		case o.RateLimited:
			cause, o.RateLimited, o.After = metrics.Retry, false, q.limiter.When(r)
		case o.After > 0:
			cause = metrics.Timer
		}
		q.measured.Added(r.Namespace, r.Name, cause, o.After)
		q.PriorityQueue.AddWithOpts(o, r)
	}
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (reconcile.Request, bool) {
	r, _, shutdown := q.GetWithPriority()
	return r, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (reconcile.Request, int, bool) {
	r, priority, shutdown := q.PriorityQueue.GetWithPriority()
	if !shutdown {
		q.measured.Got(r.Namespace, r.Name)
	}
	return r, priority, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(r reconcile.Request) {
	q.measured.Done(r.Namespace, r.Name)
	q.PriorityQueue.Done(r)
}

// bySpec notes that the object itself is what wakes its controller. It stands behind
// the other predicates and lets all through.
func bySpec(measured *metrics.Queue) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		measured.SpecChanged(o.GetNamespace(), o.GetName())
		return true
	})
}

// meter is told of the commands of the pass; nil when nothing is measured.
func (p *pass) meter() redis.Meter {
	if p.watch == nil {
		return nil
	}
	return p.watch
}

// seen is the cluster as the pass leaves it, for the metrics.
func (p *pass) seen(s *redisv1.RedisClusterStatus, converged bool) metrics.Cluster {
	c := metrics.Cluster{
		Namespace: p.cluster.Namespace, Name: p.cluster.Name, Generation: p.cluster.Generation, Phase: s.Phase, Converged: converged,
	}
	for _, n := range p.facts.Observed.Nodes {
		if n.Knowledge == topology.Answered {
			c.View = p.view(s, converged)
			break
		}
	}
	var ended time.Time
	for _, b := range p.backups {
		at := b.Status.CompletionTime
		if at == nil || !b.Done() {
			continue
		}
		failed := b.Status.Phase == redisv1.BackupFailed
		if !at.Time.Before(ended) {
			ended, c.BackupEnded, c.BackupFailed = at.Time, true, failed
		}
		if !failed && at.After(c.LastBackup) {
			c.LastBackup = at.Time
		}
	}
	c.BackupDue = p.backupDue(c.LastBackup)
	return c
}

// backupDue is the first tick of the schedule after the last backup, or after the
// cluster was made; zero when nothing is scheduled.
func (p *pass) backupDue(last time.Time) time.Time {
	spec := p.cluster.Spec.Backup
	if spec == nil || spec.Suspend {
		return time.Time{}
	}
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil {
		return time.Time{} // a condition tells of it
	}
	schedule, err := backup.ParseSchedule(spec.Schedule, zone)
	if err != nil {
		return time.Time{}
	}
	if last.Before(p.cluster.CreationTimestamp.Time) {
		last = p.cluster.CreationTimestamp.Time
	}
	return schedule.Next(last)
}

// view is what Redis says of the cluster.
func (p *pass) view(s *redisv1.RedisClusterStatus, converged bool) *metrics.View {
	d, o := p.facts.Desired, p.facts.Observed
	v := &metrics.View{Shards: len(d.Members)}
	if converged { // nothing is missing, and there is nothing to compute
		v.ShardsOK = v.Shards
		for _, members := range d.Members {
			v.Replicas += members - 1
		}
		v.ReplicasInSync = v.Replicas
		return v
	}
	v.SlotsUnassigned, v.SlotsMoving = topology.AllSlots.Minus(o.Owned()).Count(), topology.SlotsToMove(d, o)
	synced := map[int]int{}
	for i := range o.Nodes {
		if n := &o.Nodes[i]; !n.Primary && o.HoldsRole(n) {
			synced[n.Shard]++
			v.ReplicasInSync++
		}
	}
	for shard, members := range d.Members {
		v.Replicas += members - 1
		if members > 1 && synced[shard] == 0 {
			v.Uncovered++
		}
	}
	for _, shard := range s.ShardStatuses {
		if shard.Replicas > 0 && shard.ReadyReplicas == shard.Replicas {
			v.ShardsOK++
		}
	}
	return v
}
