package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
)

// backupInterval is the beat at which a backup that waits or works is looked at.
// Most of what it waits for wakes it earlier.
const backupInterval = 3 * time.Second

// RedisBackupReconciler takes the backups that RedisBackups ask for, each in a Job
// of the operator's own image. It makes Jobs and reports; the data never passes
// through it.
type RedisBackupReconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads live what is not watched, and what decides whose turn it is.
	APIReader client.Reader
	// Recorder writes Events (events.k8s.io/v1).
	Recorder recorder.EventRecorder
	// OperatorImage is the image of the Jobs. Empty: backups wait, and say so.
	OperatorImage string
	// Images replace those of Docker Hub for what a cluster's spec.image leaves out.
	Images manifests.Images

	clock clock
}

// +kubebuilder:rbac:groups=redis.example.com,resources=redisbackups/status,verbs=patch
// +kubebuilder:rbac:groups=redis.example.com,resources=redisbackups/finalizers,verbs=update

// SetupWithManager registers the reconciler and what wakes it: new backups and
// those that are to go, their Jobs, and the end of another backup of the cluster.
func (r *RedisBackupReconciler) SetupWithManager(mgr ctrl.Manager) error {
	queue := metrics.NewQueue("redisbackup")
	return ctrl.NewControllerManagedBy(mgr).
		Named("redisbackup").
		For(&redisv1.RedisBackup{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}, bySpec(queue))).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(backupOfJob)).
		Watches(&redisv1.RedisBackup{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: phaseChanged,
		})).
		// One at a time: whose turn it is must not be decided twice at once.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, NewQueue: newQueue(queue)}).
		Complete(r)
}

// backupOfJob finds the backup that a Job works for. The Job that removes objects
// has no owner, so its label is what counts.
func backupOfJob(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[redisv1.LabelBackup]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// waiting are the backups of a cluster whose turn may have come when another one
// has ended.
func (r *RedisBackupReconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	ended, ok := o.(*redisv1.RedisBackup)
	if !ok {
		return nil
	}
	var all redisv1.RedisBackupList
	if err := r.Client.List(ctx, &all, client.InNamespace(ended.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list RedisBackups")
		return nil // they look again by themselves
	}
	var out []reconcile.Request
	for i := range all.Items {
		if b := &all.Items[i]; b.Spec.ClusterName == ended.Spec.ClusterName && !b.Done() && b.Name != ended.Name {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return out
}

// Reconcile is one look at one backup. It blocks for its API calls only.
func (r *RedisBackupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, watch := metrics.StartPass(ctx, "redisbackup", req.Namespace, req.Name)
	defer watch.End()
	b := &redisv1.RedisBackup{}
	if err := r.Client.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, b, watch)
	var conflict *NameConflictError
	if apierrors.IsConflict(err) || errors.As(err, &conflict) && conflict.Leftover {
		return ctrl.Result{RequeueAfter: soonest}, nil // somebody else's write, or what is on its way
	}
	return result, err
}

func (r *RedisBackupReconciler) reconcile(ctx context.Context, b *redisv1.RedisBackup, watch *metrics.Pass) (ctrl.Result, error) {
	if !b.DeletionTimestamp.IsZero() {
		return r.remove(ctx, b)
	}
	// Before anything is written that would have to be removed.
	if err := r.finalizer(ctx, b, b.Spec.DeletionPolicy == redisv1.DeletionDelete); err != nil {
		return ctrl.Result{}, err
	}
	if b.Done() {
		return ctrl.Result{}, nil
	}
	watch.At(metrics.ObserveKubernetes)
	facts, job, cluster, err := r.observe(ctx, b)
	watch.At(metrics.Plan)
	decision := backup.Next(facts)
	watch.At(metrics.Act)
	switch {
	case err != nil:
	case decision.Step == backup.Start:
		job, err = r.start(ctx, b, cluster, facts)
	case decision.Step == backup.Again:
		err = deleteExactly(ctx, r.Client, job)
	}
	if problem, refused := refusal(err); refused {
		facts.Obstacle = &backup.Obstacle{Reason: problem.Reason, Message: problem.Message}
		decision, err = backup.Next(facts), nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	watch.At(metrics.Status)
	if err := r.report(ctx, b, decision, facts.Result, job); err != nil || b.Done() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: backupInterval}, nil
}

// finalizer puts the finalizer on a backup, or takes it off.
func (r *RedisBackupReconciler) finalizer(ctx context.Context, b *redisv1.RedisBackup, wanted bool) error {
	base := b.DeepCopy()
	if wanted && !controllerutil.AddFinalizer(b, redisv1.FinalizerObjects) || !wanted && !controllerutil.RemoveFinalizer(b, redisv1.FinalizerObjects) {
		return nil
	}
	// Somebody else's finalizers are in the same list: a change of it in between is a conflict.
	if err := r.Client.Patch(ctx, b, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch finalizers of RedisBackup: %w", client.IgnoreNotFound(err))
	}
	return nil
}

// start makes the Job. It has what is left of the backup's time.
func (r *RedisBackupReconciler) start(ctx context.Context, b *redisv1.RedisBackup, cluster *redisv1.RedisCluster, f backup.Facts) (*batchv1.Job, error) {
	left := max(int64((f.Deadline-f.Age)/time.Second), 1)
	r.Images.Fill(cluster)
	job := manifests.BackupJob(b, cluster, r.OperatorImage, left)
	if err := createOnce(ctx, r.Client, r.APIReader, job); err != nil {
		return nil, err
	}
	return job, nil
}

// report writes the status if it changed, and an Event for what a person should
// know of.
func (r *RedisBackupReconciler) report(ctx context.Context, b *redisv1.RedisBackup, d backup.Decision, result *backup.Result, job *batchv1.Job) error {
	base := b.DeepCopy()
	r.tell(b, d, result, job)
	if equality.Semantic.DeepEqual(base.Status, b.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, b, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("patch status of RedisBackup: %w", err)
	}
	wrote(b.Spec.ClusterName, b)
	complete := meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete)
	before := meta.FindStatusCondition(base.Status.Conditions, redisv1.ConditionComplete)
	if before != nil && before.Reason == complete.Reason {
		return nil
	}
	kind := corev1.EventTypeNormal
	if b.Status.Phase == redisv1.BackupFailed || b.Status.Phase == redisv1.BackupPending && complete.Reason != redisv1.ReasonQueued && complete.Reason != redisv1.ReasonSlotsMoving {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(b, nil, kind, complete.Reason, "Backup", "%s", complete.Message)
	return nil
}

// tell puts a decision into the status.
func (r *RedisBackupReconciler) tell(b *redisv1.RedisBackup, d backup.Decision, result *backup.Result, job *batchv1.Job) {
	s := &b.Status
	s.ObservedGeneration = b.Generation
	set := func(typ string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation})
	}
	verified := func(status metav1.ConditionStatus, reason, message string) {
		if b.Spec.Verify == redisv1.VerifyRestore {
			set(redisv1.ConditionVerified, status, reason, message)
		}
	}
	switch d.Step {
	case backup.Wait:
		s.Phase = redisv1.BackupPending
		set(redisv1.ConditionComplete, metav1.ConditionFalse, d.Reason, d.Message)
	case backup.Start, backup.Follow, backup.Again:
		s.Phase, s.ID = redisv1.BackupRunning, manifests.BackupID(b)
		if s.StartTime == nil && job != nil {
			s.StartTime = &job.CreationTimestamp
		}
		message := "the data is being read and stored"
		if d.Message != "" {
			message = d.Message
		}
		set(redisv1.ConditionComplete, metav1.ConditionFalse, redisv1.ReasonInProgress, message)
		verified(metav1.ConditionFalse, redisv1.ReasonInProgress, "it is verified once it is stored")
	case backup.Succeed:
		r.finish(b, redisv1.BackupSucceeded, job)
		s.ID, s.Location, s.RedisVersion = manifests.BackupID(b), result.Location, result.RedisVersion
		s.TotalBytes, s.Size, s.Keys = result.TotalBytes, humanize.IBytes(uint64(max(0, result.TotalBytes))), result.Keys
		s.Shards, s.ManifestSHA256 = int32(result.Shards), result.ManifestSHA256
		set(redisv1.ConditionComplete, metav1.ConditionTrue, redisv1.ReasonSucceeded, fmt.Sprintf("%d keys of %d shards are stored in %s", s.Keys, s.Shards, s.Location))
		if result.Verified {
			verified(metav1.ConditionTrue, redisv1.ReasonSucceeded, "every shard was loaded into a server and holds the keys that it should")
		}
	case backup.Fail:
		r.finish(b, redisv1.BackupFailed, job)
		set(redisv1.ConditionComplete, metav1.ConditionFalse, d.Reason, d.Message)
		verified(metav1.ConditionFalse, d.Reason, d.Message)
	}
}

// finish notes the end of the work.
func (r *RedisBackupReconciler) finish(b *redisv1.RedisBackup, phase redisv1.BackupPhase, job *batchv1.Job) {
	s := &b.Status
	end := metav1.NewTime(r.clock.now())
	if job != nil {
		if c := endOf(job); c != nil {
			end = c.LastTransitionTime
		}
		if s.StartTime == nil {
			s.StartTime = &job.CreationTimestamp
		}
	}
	s.Phase, s.CompletionTime = phase, &end
	if s.StartTime != nil {
		s.Duration = end.Sub(s.StartTime.Time).Round(time.Second).String()
	}
}
