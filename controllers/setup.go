package controllers

import (
	"context"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
)

// workers is the number of clusters that are worked on at once. A pass mostly
// waits for answers, so there may be more of them than cores.
const workers = 8

// SetupWithManager registers the reconciler and what wakes it: changes of a
// RedisCluster's spec, of its children, and of the Pods of its StatefulSets.
func (r *RedisClusterReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.applier = &Applier{Client: r.Client, APIReader: r.APIReader}
	r.sentries.broken = make(chan event.GenericEvent)
	queue := metrics.NewQueue("rediscluster")
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("rediscluster").
		For(&redisv1.RedisCluster{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
			UpdateFunc: handOverAsked,
		})), builder.WithPredicates(bySpec(queue))).
		Owns(&appsv1.StatefulSet{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: statefulSetChanged})).
		Owns(&policyv1.PodDisruptionBudget{}, specChanged).
		Owns(&networkingv1.NetworkPolicy{}, specChanged).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&batchv1.Job{}).
		Watches(&redisv1.RedisBackup{}, handler.EnqueueRequestsFromMapFunc(clusterOfBackup), builder.WithPredicates(predicate.Funcs{UpdateFunc: phaseChanged})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(clusterOfPod), builder.WithPredicates(predicate.Funcs{UpdateFunc: podChanged})).
		WatchesRawSource(source.Channel(r.sentries.broken, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: newQueue(queue)}).
		Complete(r)
}

// handOverAsked lets a request for a hand-over through, which changes no generation.
func handOverAsked(e event.UpdateEvent) bool {
	asked := e.ObjectNew.GetAnnotations()[redisv1.AnnotationHandOver]
	return asked != "" && asked != e.ObjectOld.GetAnnotations()[redisv1.AnnotationHandOver]
}

// clusterOfPod finds a Pod's cluster by its labels: the Pod's owner is a
// StatefulSet.
func clusterOfPod(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[manifests.LabelInstance]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// clusterOfBackup is the cluster that a backup is of.
func clusterOfBackup(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*redisv1.RedisBackup)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.ClusterName}}}
}

// phaseChanged lets through the beginning and the end of a backup's work.
func phaseChanged(e event.UpdateEvent) bool {
	a, okA := e.ObjectOld.(*redisv1.RedisBackup)
	b, okB := e.ObjectNew.(*redisv1.RedisBackup)
	return !okA || !okB || a.Status.Phase != b.Status.Phase
}

// statefulSetChanged lets through what a pass looks at: the spec, labels,
// owners, and the revision that new Pods get.
func statefulSetChanged(e event.UpdateEvent) bool {
	a, okA := e.ObjectOld.(*appsv1.StatefulSet)
	b, okB := e.ObjectNew.(*appsv1.StatefulSet)
	return !okA || !okB || a.Generation != b.Generation ||
		a.Status.UpdateRevision != b.Status.UpdateRevision || a.Status.ObservedGeneration != b.Status.ObservedGeneration ||
		!reflect.DeepEqual(a.Labels, b.Labels) || !reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// podChanged lets through what a pass looks at: address, readiness, scheduling,
// containers, deletion, labels. The kubelet writes more than that.
func podChanged(e event.UpdateEvent) bool {
	a, okA := e.ObjectOld.(*corev1.Pod)
	b, okB := e.ObjectNew.(*corev1.Pod)
	return !okA || !okB || a.Status.PodIP != b.Status.PodIP || a.Status.Phase != b.Status.Phase ||
		podReady(a) != podReady(b) || a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		!reflect.DeepEqual(redisStatus(a), redisStatus(b)) || !reflect.DeepEqual(manifests.SeedStatus(a), manifests.SeedStatus(b)) ||
		!reflect.DeepEqual(scheduled(a), scheduled(b)) || !reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences) || !reflect.DeepEqual(a.Labels, b.Labels)
}

// scheduled is the condition that tells whether a node was found for a Pod.
func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return &corev1.PodCondition{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	return nil
}
