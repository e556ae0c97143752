//go:build linux

package stand

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/internal/manifests"
)

// statefulSets plays the StatefulSet controller: all Pods at once, OnDelete, no claims.
type statefulSets struct{ *Stand }

// Reconcile makes the Pods that a StatefulSet wants, and deletes those that it does not.
func (s *statefulSets) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &appsv1.StatefulSet{}
	err := s.client.Get(ctx, req.NamespacedName, set)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, s.collect(ctx, req)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if set.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)); err != nil {
		return ctrl.Result{}, err
	}
	wanted, have := int(*set.Spec.Replicas), map[int]bool{}
	ready := int32(0)
	for i := range pods.Items {
		pod := &pods.Items[i]
		ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
		if err != nil || !metav1.IsControlledBy(pod, set) {
			continue
		}
		have[ordinal] = true
		if isReady(pod) {
			ready++
		}
		if ordinal >= wanted && pod.DeletionTimestamp == nil {
			if err := client.IgnoreNotFound(s.client.Delete(ctx, pod)); err != nil {
				return ctrl.Result{}, fmt.Errorf("delete Pod: %w", err)
			}
		}
	}
	for ordinal := range wanted {
		if have[ordinal] {
			continue
		}
		if err := s.client.Create(ctx, podOf(set, ordinal)); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, fmt.Errorf("create Pod: %w", err)
		}
	}
	return ctrl.Result{}, s.report(ctx, set, int32(len(have)), ready)
}

// collect plays the garbage collector: the Pods of a StatefulSet that is no more go.
func (s *statefulSets) collect(ctx context.Context, req ctrl.Request) error {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(req.Namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "StatefulSet" || owner.Name != req.Name || pod.DeletionTimestamp != nil {
			continue
		}
		if err := client.IgnoreNotFound(s.client.Delete(ctx, pod)); err != nil {
			return fmt.Errorf("delete Pod: %w", err)
		}
	}
	return nil
}

// podOf makes a Pod as the template says, scheduled already.
func podOf(set *appsv1.StatefulSet, ordinal int) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = set.Namespace, fmt.Sprintf("%s-%d", set.Name, ordinal)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Spec.NodeName = NodeName
	return pod
}

// report writes the status, if it changed.
func (s *statefulSets) report(ctx context.Context, set *appsv1.StatefulSet, replicas, ready int32) error {
	revision := set.Spec.Template.Annotations[manifests.TemplateAnnotation]
	if set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == replicas && set.Status.ReadyReplicas == ready && set.Status.UpdateRevision == revision {
		return nil
	}
	base := set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.Replicas, set.Status.ReadyReplicas, set.Status.UpdateRevision = set.Generation, replicas, ready, revision
	if err := client.IgnoreNotFound(s.client.Status().Patch(ctx, set, client.MergeFrom(base))); err != nil {
		return fmt.Errorf("patch status of StatefulSet: %w", err)
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
