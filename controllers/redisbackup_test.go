package controllers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
)

// vault is a stage with a cluster that serves, a claim to keep backups in, and the
// reconciler of RedisBackups. Nobody runs Jobs there: a test plays their end.
type vault struct {
	*stage
	r *RedisBackupReconciler
}

func newVault(t *testing.T) *vault {
	t.Helper()
	s := newStage(t, redisv1.RedisClusterSpec{})
	v := &vault{stage: s, r: &RedisBackupReconciler{Client: s.admin, APIReader: s.admin, Recorder: discard{}, OperatorImage: "operator:1"}}
	v.report(redisv1.ConditionAvailable, metav1.ConditionTrue, redisv1.ReasonSlotsServed)
	s.makeClaim("backups")
	return v
}

func (v *stage) makeClaim(name string) {
	v.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v.cluster.Namespace}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if err := v.admin.Create(v.Context(), claim); err != nil {
		v.Fatal(err)
	}
}

// report sets a condition of the cluster, as its own reconciler does.
func (v *vault) report(typ string, status metav1.ConditionStatus, reason string) {
	v.Helper()
	meta.SetStatusCondition(&v.cluster.Status.Conditions, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: "as it is"})
	if err := v.admin.Status().Update(v.Context(), v.cluster); err != nil {
		v.Fatal(err)
	}
}

// ask makes a RedisBackup.
func (v *vault) ask(name string, change func(*redisv1.RedisBackupSpec)) *redisv1.RedisBackup {
	v.Helper()
	b := &redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v.cluster.Namespace}}
	b.Spec.ClusterName = v.cluster.Name
	b.Spec.Destination.PersistentVolumeClaim = &redisv1.ClaimDestination{ClaimName: "backups"}
	if change != nil {
		change(&b.Spec)
	}
	if err := v.admin.Create(v.Context(), b); err != nil {
		v.Fatal(err)
	}
	return b
}

// look has the reconciler look at a backup and reads it again; false when it is gone.
func (v *vault) look(b *redisv1.RedisBackup) bool {
	v.Helper()
	if _, err := v.r.Reconcile(v.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
		v.Fatalf("look at %s: %v", b.Name, err)
	}
	name := b.Name
	*b = redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v.cluster.Namespace}}
	return v.get(b, name)
}

func (v *vault) wants(b *redisv1.RedisBackup, phase redisv1.BackupPhase, reason, says string) {
	v.Helper()
	v.look(b)
	c := meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete)
	if c == nil || b.Status.Phase != phase || c.Reason != reason || !strings.Contains(c.Message, says) {
		v.Errorf("%s is %s, %+v; want %s, %s, %q", b.Name, b.Status.Phase, c, phase, reason, says)
	}
}

// job reads a Job that must be there.
func (v *stage) job(name string) *batchv1.Job {
	v.Helper()
	job := &batchv1.Job{}
	if !v.get(job, name) {
		v.Fatalf("there is no Job %s", name)
	}
	return job
}

// end plays the end of a Job and of its Pod.
func (v *stage) end(name string, result *backup.Result, condition batchv1.JobConditionType, reason string) {
	v.Helper()
	job := v.job(name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: job.Namespace, Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
	if err := v.admin.Create(v.Context(), pod); err != nil {
		v.Fatal(err)
	}
	code := int32(0)
	if condition == batchv1.JobFailed {
		code = 1
	}
	message := "killed"
	if result != nil {
		data, err := json.Marshal(result)
		if err != nil {
			v.Fatal(err)
		}
		message = string(data)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifests.TaskContainer, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
	}}}
	if err := v.admin.Status().Update(v.Context(), pod); err != nil {
		v.Fatal(err)
	}
	if condition == "" {
		return
	}
	now := metav1.Now()
	first := batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now}
	job.Status.Succeeded, job.Status.CompletionTime = 1, &now
	if condition == batchv1.JobFailed {
		first.Type = batchv1.JobFailureTarget
		first.Reason = reason
		job.Status.Succeeded, job.Status.CompletionTime = 0, nil
	}
	job.Status.StartTime = &now
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	job.Status.Conditions = []batchv1.JobCondition{first, {Type: condition, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now}}
	if err := v.admin.Status().Update(v.Context(), job); err != nil {
		v.Fatal(err)
	}
}

func TestBackupSucceeds(t *testing.T) {
	v := newVault(t)
	b := v.ask("one", func(s *redisv1.RedisBackupSpec) { s.Verify = redisv1.VerifyRestore })
	v.wants(b, redisv1.BackupRunning, redisv1.ReasonInProgress, "being read")
	if b.Status.StartTime == nil || b.Status.ID != "one-"+string(b.UID[:8]) {
		t.Errorf("%+v", b.Status)
	}
	job := v.job("one-b")
	if !isControlledBy(job, b.UID) || *job.Spec.ActiveDeadlineSeconds < 3590 {
		t.Errorf("owner %v, deadline %d", job.OwnerReferences, *job.Spec.ActiveDeadlineSeconds)
	}
	v.wants(b, redisv1.BackupRunning, redisv1.ReasonInProgress, "being read")
	v.end("one-b", &backup.Result{Location: "file:///backups/one", RedisVersion: "8.0.2", TotalBytes: 3 << 20, Keys: 42, Shards: 3, ManifestSHA256: "ab", Verified: true}, batchv1.JobComplete, "")
	v.wants(b, redisv1.BackupSucceeded, redisv1.ReasonSucceeded, "42 keys of 3 shards are stored in file:///backups/one")
	s := b.Status
	if s.Size != "3.0 MiB" || s.TotalBytes != 3<<20 || s.Keys != 42 || s.Shards != 3 || s.RedisVersion != "8.0.2" || s.ManifestSHA256 != "ab" || s.CompletionTime == nil || s.Duration == "" {
		t.Errorf("%+v", s)
	}
	if !meta.IsStatusConditionTrue(s.Conditions, redisv1.ConditionVerified) {
		t.Errorf("%+v", s.Conditions)
	}
	before := b.ResourceVersion
	v.look(b)
	if b.ResourceVersion != before {
		t.Error("a backup that has ended is written again")
	}
}

func TestBackupWaits(t *testing.T) {
	v := newVault(t)
	b := v.ask("nocluster", func(s *redisv1.RedisBackupSpec) { s.ClusterName = "nobody" })
	v.wants(b, redisv1.BackupPending, redisv1.ReasonClusterNotFound, `"nobody" does not exist`)
	b = v.ask("noclaim", func(s *redisv1.RedisBackupSpec) { s.Destination.PersistentVolumeClaim.ClaimName = "gone" })
	v.wants(b, redisv1.BackupPending, redisv1.ReasonClaimNotFound, `"gone"`)
	b = v.ask("nosecret", func(s *redisv1.RedisBackupSpec) {
		s.Destination = redisv1.BackupDestination{S3: &redisv1.S3Destination{Bucket: "bucket", CredentialsSecretName: "login"}}
	})
	v.wants(b, redisv1.BackupPending, redisv1.ReasonSecretNotFound, "accessKeyID and secretAccessKey")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: v.cluster.Namespace}, StringData: map[string]string{"accessKeyID": "a"}}
	if err := v.admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	v.wants(b, redisv1.BackupPending, redisv1.ReasonSecretInvalid, `no key "secretAccessKey"`)

	// None of these keeps another one from its turn.
	first := v.ask("a-first", nil)
	v.r.OperatorImage = ""
	v.wants(first, redisv1.BackupPending, redisv1.ReasonNoOperatorImage, "RELATED_IMAGE_OPERATOR")
	v.r.OperatorImage = "operator:1"
	v.report(redisv1.ConditionAvailable, metav1.ConditionFalse, redisv1.ReasonSlotsMissing)
	v.wants(first, redisv1.BackupPending, redisv1.ReasonClusterNotServing, "as it is")
	v.report(redisv1.ConditionAvailable, metav1.ConditionTrue, redisv1.ReasonSlotsServed)
	v.report(redisv1.ConditionProgressing, metav1.ConditionTrue, redisv1.ReasonMovingSlots)
	v.wants(first, redisv1.BackupPending, redisv1.ReasonSlotsMoving, "when they have arrived")
	v.report(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonSettled)

	second := v.ask("b-second", nil)
	v.wants(second, redisv1.BackupPending, redisv1.ReasonQueued, "a-first")
	v.wants(first, redisv1.BackupRunning, redisv1.ReasonInProgress, "")
	v.wants(second, redisv1.BackupPending, redisv1.ReasonQueued, "a-first")
	v.end("a-first-b", &backup.Result{Shards: 1}, batchv1.JobComplete, "")
	v.wants(first, redisv1.BackupSucceeded, redisv1.ReasonSucceeded, "")
	v.wants(second, redisv1.BackupRunning, redisv1.ReasonInProgress, "")
}

func TestBackupFails(t *testing.T) {
	v := newVault(t)
	b := v.ask("denied", nil)
	v.look(b)
	v.end("denied-b", &backup.Result{Reason: backup.ReasonAccessDenied, Permanent: true, Message: "the store refuses the credentials"}, batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy)
	v.wants(b, redisv1.BackupFailed, "AccessDenied", "refuses the credentials")

	b = v.ask("slow", nil)
	v.look(b)
	v.end("slow-b", nil, batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	v.wants(b, redisv1.BackupFailed, redisv1.ReasonDeadlineExceeded, "activeDeadlineSeconds")

	b = v.ask("late", func(s *redisv1.RedisBackupSpec) { s.ClusterName = "nobody" })
	v.look(b)
	v.r.clock = func() time.Time { return time.Now().Add(time.Hour) }
	v.wants(b, redisv1.BackupFailed, redisv1.ReasonDeadlineExceeded, `"nobody" does not exist`)
}

// TestBackupGoesOn: the Job is deleted, or what it said is lost, or the operator has
// ended between making it and saying so.
func TestBackupGoesOn(t *testing.T) {
	v := newVault(t)
	b := v.ask("one", nil)
	v.look(b)
	first := v.job("one-b")
	if err := v.admin.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	v.wants(b, redisv1.BackupRunning, redisv1.ReasonInProgress, "")
	second := v.job("one-b")
	if second.UID == first.UID {
		t.Fatal("the Job was not made again")
	}
	v.end("one-b", nil, batchv1.JobComplete, "")
	v.wants(b, redisv1.BackupRunning, redisv1.ReasonInProgress, "looks at what is there")
	v.wants(b, redisv1.BackupRunning, redisv1.ReasonInProgress, "")
	v.end("one-b", &backup.Result{Shards: 3, Keys: 1}, batchv1.JobComplete, "")
	v.wants(b, redisv1.BackupSucceeded, redisv1.ReasonSucceeded, "1 keys")
}

func TestForeignJobIsLeftAlone(t *testing.T) {
	v := newVault(t)
	// As the cache, which shows nothing that lacks the operator's label.
	v.r.Client = interceptor.NewClient(v.admin, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := w.Get(ctx, key, o, opts...)
			if job, ok := o.(*batchv1.Job); ok && err == nil && job.Labels[manifests.LabelManagedBy] == "" {
				return apierrors.NewNotFound(batchv1.Resource("jobs"), key.Name)
			}
			return err
		},
	})
	foreign := manifests.BackupJob(&redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: v.cluster.Namespace, UID: "x"},
		Spec: redisv1.RedisBackupSpec{ClusterName: "orders"}}, v.cluster, "other:1", 60)
	foreign.OwnerReferences, foreign.Labels, foreign.Spec.Template.Labels = nil, nil, nil
	remover := foreign.DeepCopy()
	remover.Name = "two-d"
	for _, job := range []*batchv1.Job{foreign, remover} {
		if err := v.admin.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	v.wants(v.ask("one", nil), redisv1.BackupPending, redisv1.ReasonNameConflict, `Job "one-b" exists`)

	// Nor does it keep a backup from going.
	b := v.ask("two", func(s *redisv1.RedisBackupSpec) { s.DeletionPolicy = redisv1.DeletionDelete })
	v.look(b)
	v.end("two-b", &backup.Result{Shards: 1}, batchv1.JobComplete, "")
	v.look(b)
	if err := v.admin.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if v.look(b) {
		t.Errorf("the backup stays: %+v", b)
	}
	if !v.get(&batchv1.Job{}, "two-d") {
		t.Error("somebody's Job was deleted")
	}
}

func TestBackupIsDeletedWithItsObjects(t *testing.T) {
	v := newVault(t)
	deleting := func(name string) *redisv1.RedisBackup {
		b := v.ask(name, func(s *redisv1.RedisBackupSpec) { s.DeletionPolicy = redisv1.DeletionDelete })
		v.look(b)
		v.end(name+"-b", &backup.Result{Shards: 1}, batchv1.JobComplete, "")
		v.look(b)
		if err := v.admin.Delete(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := deleting("done")
	if !v.look(b) || len(v.job("done-d").OwnerReferences) > 0 {
		t.Fatal("the backup goes before its objects do, or takes the Job along")
	}
	if !v.look(b) {
		t.Fatal("the backup goes while the Job works")
	}
	v.end("done-d", &backup.Result{}, batchv1.JobComplete, "")
	if v.look(b) {
		t.Error("the backup stays when its objects are gone")
	}

	// The store is gone: the objects are left, and the backup goes.
	b = deleting("lost")
	v.look(b)
	v.end("lost-d", &backup.Result{Reason: backup.ReasonStoreUnavailable}, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	if v.look(b) {
		t.Error("the backup stays because its store is gone")
	}

	// What is kept, and what has written nothing, needs no Job.
	for name, policy := range map[string]redisv1.DeletionPolicy{"kept": redisv1.DeletionRetain, "unborn": redisv1.DeletionDelete} {
		b := v.ask(name, func(s *redisv1.RedisBackupSpec) { s.DeletionPolicy = policy; s.ClusterName = "nobody" })
		v.look(b)
		if err := v.admin.Delete(t.Context(), b); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if v.look(b) || v.get(&batchv1.Job{}, name+"-d") {
			t.Errorf("%s stays, or has a Job that deletes", name)
		}
	}
}

// TestRunningBackupIsDeleted: its Job ends before the objects go.
func TestRunningBackupIsDeleted(t *testing.T) {
	v := newVault(t)
	b := v.ask("one", func(s *redisv1.RedisBackupSpec) { s.DeletionPolicy = redisv1.DeletionDelete })
	v.look(b)
	if err := v.admin.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	v.look(b)
	job := v.job("one-b")
	if job.DeletionTimestamp.IsZero() || v.get(&batchv1.Job{}, "one-d") {
		t.Fatal("the objects are removed while they are written")
	}
	// What the garbage collector and the Job controller do.
	job.Finalizers = nil
	if err := v.admin.Update(t.Context(), job); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if !v.look(b) || !v.get(&batchv1.Job{}, "one-d") {
		t.Error("the objects are not removed")
	}
}
