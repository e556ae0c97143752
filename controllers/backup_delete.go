package controllers

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

// remove removes the objects of a backup that is being deleted, if its policy says
// so, and then lets it go. What keeps that from being done must not keep the backup,
// and its namespace, for ever: then the objects are left, and an Event says so.
func (r *RedisBackupReconciler) remove(ctx context.Context, b *redisv1.RedisBackup) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(b, redisv1.FinalizerObjects) {
		return ctrl.Result{}, nil
	}
	if b.Spec.DeletionPolicy != redisv1.DeletionDelete {
		return ctrl.Result{}, r.finalizer(ctx, b, false)
	}
	existed, ended, err := r.stop(ctx, b)
	if err != nil || !ended {
		return ctrl.Result{RequeueAfter: soonest}, err
	}
	if b.Status.StartTime == nil && !existed {
		return ctrl.Result{}, r.finalizer(ctx, b, false) // it has written nothing
	}
	job := &batchv1.Job{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: manifests.DeleteJobName(b)}, job)
	switch {
	case apierrors.IsNotFound(err):
		return r.startRemoval(ctx, b)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("get Job: %w", err)
	case job.Annotations[uidAnnotation] != string(b.UID): // of an earlier backup of this name
		return ctrl.Result{RequeueAfter: soonest}, deleteExactly(ctx, r.Client, job)
	}
	end := endOf(job)
	switch {
	case end == nil:
		return ctrl.Result{RequeueAfter: backupInterval}, nil
	case end.Type == batchv1.JobFailed:
		pods, err := podsOf(ctx, r.APIReader, job)
		if err != nil {
			return ctrl.Result{}, err
		}
		why := "its Job failed"
		if result := resultOf(pods); result != nil && result.Reason != "" {
			why = result.Message
		}
		r.left(b, why)
	}
	return ctrl.Result{}, r.finalizer(ctx, b, false)
}

// uidAnnotation, on the Job that removes objects, holds the UID of its backup: that
// is not its owner.
const uidAnnotation = "redis.example.com/backup-uid"

// startRemoval makes the Job that removes the objects.
func (r *RedisBackupReconciler) startRemoval(ctx context.Context, b *redisv1.RedisBackup) (ctrl.Result, error) {
	if r.OperatorImage == "" {
		r.left(b, noOperatorImage().Message)
		return ctrl.Result{}, r.finalizer(ctx, b, false)
	}
	cluster := &redisv1.RedisCluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.ClusterName}, cluster); apierrors.IsNotFound(err) {
		cluster = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get RedisCluster %s: %w", b.Spec.ClusterName, err)
	}
	job := manifests.DeleteJob(b, cluster, r.OperatorImage)
	job.Annotations = map[string]string{uidAnnotation: string(b.UID)}
	err := createOnce(ctx, r.Client, r.APIReader, job)
	// In a namespace that is being deleted this is Forbidden.
	if problem, refused := refusal(err); refused {
		r.left(b, problem.Message)
		return ctrl.Result{}, r.finalizer(ctx, b, false)
	}
	return ctrl.Result{RequeueAfter: backupInterval}, err
}

// stop ends the Job that takes the backup. It tells whether there is one, and whether
// nothing of it works any more: it would write what is being removed.
func (r *RedisBackupReconciler) stop(ctx context.Context, b *redisv1.RedisBackup) (existed, ended bool, err error) {
	job := &batchv1.Job{}
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: manifests.BackupJobName(b)}, job)
	switch {
	case apierrors.IsNotFound(err):
		return false, true, nil
	case err != nil:
		return false, false, fmt.Errorf("get Job: %w", err)
	case !isControlledBy(job, b.UID):
		return false, true, nil
	}
	if endOf(job) != nil {
		return true, true, nil
	}
	if b.Status.StartTime == nil {
		// It is the only sign that something was written: it is noted before the sign goes.
		base := b.DeepCopy()
		b.Status.StartTime, b.Status.ID = &job.CreationTimestamp, manifests.BackupID(b)
		if err := r.Client.Status().Patch(ctx, b, client.MergeFrom(base)); err != nil {
			return true, false, fmt.Errorf("patch status of RedisBackup: %w", err)
		}
	}
	// In the foreground: the Job is gone when its Pods are.
	err = r.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	return true, false, client.IgnoreNotFound(err)
}

// left tells that objects of a backup may still be in the store.
func (r *RedisBackupReconciler) left(b *redisv1.RedisBackup, why string) {
	r.Recorder.Eventf(b, nil, corev1.EventTypeWarning, redisv1.EventObjectsLeft, "Delete",
		"the objects of the backup may still be in the store, under %s: %s", b.Status.ID, why)
}
