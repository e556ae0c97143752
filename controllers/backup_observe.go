package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
)

// observe looks at a backup's Job, or while there is none at what it needs. cluster
// is nil when there is no such RedisCluster.
func (r *RedisBackupReconciler) observe(ctx context.Context, b *redisv1.RedisBackup) (f backup.Facts, job *batchv1.Job, cluster *redisv1.RedisCluster, err error) {
	f.Age = r.clock.now().Sub(b.CreationTimestamp.Time)
	f.Deadline = time.Duration(b.Spec.ActiveDeadlineSeconds) * time.Second
	job = &batchv1.Job{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: manifests.BackupJobName(b)}, job)
	switch {
	case err == nil && !isControlledBy(job, b.UID):
		return f, nil, nil, &NameConflictError{Kind: "Job", Name: job.Name, Leftover: job.DeletionTimestamp != nil}
	case err == nil:
		err = r.follow(ctx, &f, job)
		return f, job, nil, err
	case !apierrors.IsNotFound(err):
		return f, nil, nil, fmt.Errorf("get Job: %w", err)
	}
	cluster = &redisv1.RedisCluster{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.ClusterName}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		cluster = nil
	case err != nil:
		return f, nil, nil, fmt.Errorf("get RedisCluster %s: %w", b.Spec.ClusterName, err)
	}
	f.Obstacle, err = r.obstacle(ctx, b, cluster)
	return f, nil, cluster, err
}

// follow learns how far a Job is.
func (r *RedisBackupReconciler) follow(ctx context.Context, f *backup.Facts, job *batchv1.Job) error {
	pods, err := podsOf(ctx, r.APIReader, job)
	if err != nil {
		return err
	}
	f.Result = resultOf(pods)
	end := endOf(job)
	switch {
	case end == nil:
		f.Work = backup.WorkGoesOn
	case end.Type != batchv1.JobFailed:
		f.Work = backup.WorkDone
	case end.Reason == batchv1.JobReasonDeadlineExceeded:
		f.Work = backup.WorkTimedOut
	default:
		f.Work = backup.WorkFailed
	}
	f.Trouble = taskProblem(pods)
	return nil
}

// obstacle is the first thing that is in a backup's way; nil for none. What only a
// person can mend comes first.
func (r *RedisBackupReconciler) obstacle(ctx context.Context, b *redisv1.RedisBackup, c *redisv1.RedisCluster) (*backup.Obstacle, error) {
	if c == nil || !c.DeletionTimestamp.IsZero() {
		return &backup.Obstacle{Reason: redisv1.ReasonClusterNotFound, Message: fmt.Sprintf(
			"RedisCluster %q does not exist in this namespace", b.Spec.ClusterName)}, nil
	}
	if r.OperatorImage == "" {
		p := noOperatorImage()
		return &backup.Obstacle{Reason: p.Reason, Message: p.Message}, nil
	}
	problem, err := checkDestination(ctx, r.APIReader, b.Namespace, &b.Spec.Destination)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		return &backup.Obstacle{Reason: problem.Reason, Message: problem.Message}, nil
	}
	if available := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionAvailable); available == nil || available.Status != metav1.ConditionTrue {
		message := "the cluster does not serve all slots yet"
		if available != nil {
			message = "the cluster does not serve all slots: " + available.Message
		}
		return &backup.Obstacle{Reason: redisv1.ReasonClusterNotServing, Message: message}, nil
	}
	if progressing := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionProgressing); progressing != nil && progressing.Reason == redisv1.ReasonMovingSlots {
		return &backup.Obstacle{Reason: redisv1.ReasonSlotsMoving, Message: "slots of the cluster are being moved; it begins when they have arrived"}, nil
	}
	return r.queued(ctx, b)
}

// unready are the reasons of a backup that waits for a person: others do not wait
// for it.
var unready = map[string]bool{
	redisv1.ReasonSecretNotFound: true, redisv1.ReasonSecretInvalid: true, redisv1.ReasonClaimNotFound: true, redisv1.ReasonNoOperatorImage: true,
	redisv1.ReasonNameConflict: true, redisv1.ReasonRejected: true,
}

// queued tells which backup of the cluster has its turn first. Jobs are looked at
// live: that is what makes it certain that there is one at a time.
func (r *RedisBackupReconciler) queued(ctx context.Context, b *redisv1.RedisBackup) (*backup.Obstacle, error) {
	behind := func(name string) *backup.Obstacle {
		return &backup.Obstacle{Reason: redisv1.ReasonQueued, Message: fmt.Sprintf("RedisBackup %s of the same cluster has its turn first", name)}
	}
	var all redisv1.RedisBackupList
	if err := r.Client.List(ctx, &all, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list RedisBackups: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Spec.ClusterName != b.Spec.ClusterName || other.UID == b.UID || other.Done() || !other.DeletionTimestamp.IsZero() {
			continue
		}
		complete := meta.FindStatusCondition(other.Status.Conditions, redisv1.ConditionComplete)
		if other.Status.Phase == redisv1.BackupRunning || before(other, b) && (complete == nil || !unready[complete.Reason]) {
			return behind(other.Name), nil
		}
	}
	var jobs batchv1.JobList
	labels := client.MatchingLabels{manifests.LabelName: manifests.AppBackup, manifests.LabelComponent: "backup", redisv1.LabelBackupOf: b.Spec.ClusterName}
	if err := r.APIReader.List(ctx, &jobs, client.InNamespace(b.Namespace), labels); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if endOf(job) == nil && !isControlledBy(job, b.UID) && metav1.GetControllerOf(job) != nil {
			return behind(job.Labels[redisv1.LabelBackup]), nil
		}
	}
	return nil, nil
}

// before tells whether a has its turn before b: the older one, and of two of the
// same second the one whose name comes first.
func before(a, b *redisv1.RedisBackup) bool {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c < 0
	}
	return a.Name < b.Name
}
