package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// A new cluster is filled from a backup in four steps, which the condition
// Restored goes through, each written before the next one begins:
//
//   - Inspecting: a Job looks whether the backup is whole and can be read. Nothing
//     else is made.
//   - Restoring: the first Pod of each of the backup's shards is filled before its
//     server starts. Nobody meets anybody, and clients find nobody.
//   - Seeded: all of them were seen with all slots. The templates no longer fill
//     anything, so that no Pod that is made later comes up with old data.
//   - Restored: the StatefulSets have taken these templates. From here on it is an
//     ordinary cluster, whose shards are brought to the number that is wanted.

// retryInspection is how long after its failure a look at the backup is repeated: the
// backup may have been put right.
const retryInspection = time.Minute

// prepareRestore tells whether the cluster may be made, or goes on being. Before
// that it looks at the backup; while it lasts it sets what the Pods are filled from.
func (p *pass) prepareRestore(ctx context.Context) (bool, error) {
	if p.cluster.Spec.RestoreFrom == nil {
		return true, nil
	}
	latest := p.mem.latestStatus(p.cluster)
	restored := meta.FindStatusCondition(latest.Conditions, redisv1.ConditionRestored)
	if restored != nil && restored.Status == metav1.ConditionTrue {
		p.facts.Restore = status.Restore{Reason: restored.Reason, Message: restored.Message, Done: true}
		return true, p.stopServing(ctx)
	}
	p.facts.Restore = status.Restore{Reason: redisv1.ReasonInspecting, Message: "the backup is looked at before anything is made"}
	if latest.Restore == nil && latest.Phase == redisv1.PhaseFailed && restored != nil {
		// It stays what it is until another look has found the backup put right.
		p.facts.Restore = status.Restore{Reason: restored.Reason, Message: restored.Message, Failed: true}
	}
	if latest.Restore != nil {
		p.facts.Desired.Seeds = int(latest.Restore.Shards)
		p.facts.Restore = status.Restore{Reason: redisv1.ReasonRestoring, Message: p.filling()}
		if restored != nil && restored.Reason == redisv1.ReasonSeeded {
			p.seeded = true
			p.facts.Restore = status.Restore{Reason: restored.Reason, Message: restored.Message}
		}
	}
	switch {
	case p.cluster.Spec.Paused && latest.Restore == nil:
		p.restoreWaits(p.facts.Restore.Reason, p.facts.Restore.Message)
		return false, nil
	case p.cluster.Spec.Paused, p.seeded:
		return true, nil
	}
	seeding, problem, err := p.source(ctx)
	switch {
	case err != nil:
		return false, err
	case problem != nil:
		p.restoreWaits(problem.Reason, problem.Message)
		p.facts.Problems = append([]status.Problem{*problem}, p.facts.Problems...)
		return false, nil
	case latest.Restore == nil:
		return false, p.applyAll([]func() error{func() error { return p.inspect(ctx, *seeding) }})
	}
	seeding.ID = latest.Restore.ID
	p.seeding = seeding
	return true, p.applyAll([]func() error{func() error { return p.serveBackup(ctx) }})
}

// serveBackup has a Job hand a backup on a volume to the Pods that are filled from it.
func (p *pass) serveBackup(ctx context.Context) error {
	if !p.seeding.Served() {
		return nil
	}
	key := client.ObjectKey{Namespace: p.cluster.Namespace, Name: manifests.ServeName(p.cluster)}
	job := &batchv1.Job{}
	err := p.r.Client.Get(ctx, key, job)
	switch {
	case apierrors.IsNotFound(err):
		job = manifests.ServeJob(p.cluster, *p.seeding)
		if err := createOnce(ctx, p.r.Client, p.r.APIReader, job); err != nil || job.UID == "" {
			return err // the cache does not show it yet: its Service comes with the next pass
		}
	case err != nil:
		return fmt.Errorf("get Job: %w", err)
	case !isControlledBy(job, p.cluster.UID):
		return &NameConflictError{Kind: "Job", Name: job.Name, Leftover: job.DeletionTimestamp != nil}
	case endOf(job) != nil:
		return deleteExactly(ctx, p.r.Client, job) // the next pass makes another one
	}
	err = p.r.Client.Get(ctx, key, &corev1.Service{})
	if apierrors.IsNotFound(err) {
		return createOnce(ctx, p.r.Client, p.r.APIReader, manifests.ServeService(p.cluster, job))
	}
	return err
}

// stopServing takes away the Job that handed the backup to the Pods, with its Service.
func (p *pass) stopServing(ctx context.Context) error {
	job := &batchv1.Job{}
	err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: manifests.ServeName(p.cluster)}, job)
	if err != nil || !isControlledBy(job, p.cluster.UID) || job.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	return deleteExactly(ctx, p.r.Client, job)
}

func (p *pass) filling() string {
	return fmt.Sprintf("%d shards are being filled from the backup", p.facts.Desired.Seeds)
}

// restoreWaits notes why the restore does not go on.
func (p *pass) restoreWaits(reason, message string) {
	p.facts.Restore.Reason, p.facts.Restore.Message = reason, message
	p.facts.Plan = topology.Plan{Wait: topology.WaitPods, Why: message}
}

// source finds the backup that spec.restoreFrom names, or tells what is missing.
func (p *pass) source(ctx context.Context) (*manifests.Seeding, *status.Problem, error) {
	from := p.cluster.Spec.RestoreFrom
	s := &manifests.Seeding{Destination: from.Destination, ID: from.ID, Image: p.r.OperatorImage}
	if from.BackupName != "" {
		b := &redisv1.RedisBackup{}
		err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: from.BackupName}, b)
		switch {
		case apierrors.IsNotFound(err):
			return nil, &status.Problem{Reason: redisv1.ReasonBackupNotReady, Message: fmt.Sprintf(
				"RedisBackup %q of spec.restoreFrom does not exist", from.BackupName)}, nil
		case err != nil:
			return nil, nil, fmt.Errorf("get RedisBackup %s: %w", from.BackupName, err)
		case b.Status.Phase != redisv1.BackupSucceeded:
			return nil, &status.Problem{Reason: redisv1.ReasonBackupNotReady, Message: fmt.Sprintf(
				"RedisBackup %q of spec.restoreFrom has not succeeded", from.BackupName)}, nil
		}
		s.Destination, s.ID = b.Spec.Destination.DeepCopy(), b.Status.ID
	}
	if s.Image == "" {
		return nil, noOperatorImage(), nil
	}
	if p.mem.checkedSource {
		return s, nil, nil
	}
	problem, err := checkDestination(ctx, p.r.APIReader, p.cluster.Namespace, s.Destination)
	p.mem.checkedSource = err == nil && problem == nil
	return s, problem, err
}

// inspect has a Job look at the backup, and notes what it says. Until then nothing
// of the cluster exists, so volumes of its name are of an earlier one.
func (p *pass) inspect(ctx context.Context, s manifests.Seeding) error {
	if len(p.kube.claims) > 0 {
		problem := status.Problem{Reason: redisv1.ReasonVolumesExist, Message: "volumes of an earlier cluster of this name exist, and a restore would " +
			"have to overwrite them: delete these PersistentVolumeClaims, or restore into a cluster of another name"}
		p.restoreWaits(problem.Reason, problem.Message)
		p.facts.Problems = append(p.facts.Problems, problem)
		return nil
	}
	job := &batchv1.Job{}
	err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: manifests.InspectJobName(p.cluster)}, job)
	switch {
	case apierrors.IsNotFound(err):
		p.restoreWaits(p.facts.Restore.Reason, p.facts.Restore.Message)
		return createOnce(ctx, p.r.Client, p.r.APIReader, manifests.InspectJob(p.cluster, s))
	case err != nil:
		return fmt.Errorf("get Job: %w", err)
	case !isControlledBy(job, p.cluster.UID):
		return &NameConflictError{Kind: "Job", Name: job.Name, Leftover: job.DeletionTimestamp != nil}
	}
	pods, err := podsOf(ctx, p.r.APIReader, job)
	if err != nil {
		return err
	}
	p.restoreWaits(p.facts.Restore.Reason, p.facts.Restore.Message)
	end, result := endOf(job), resultOf(pods)
	switch {
	case end == nil:
		if problem := taskProblem(pods); problem != "" && !p.facts.Restore.Failed {
			p.restoreWaits(redisv1.ReasonInspecting, problem)
		}
		return nil
	case end.Type != batchv1.JobFailed && result != nil && result.Shards > 0:
		p.facts.Restore.Failed = false
		p.facts.Restore.Backup = &redisv1.RestoreStatus{ID: s.ID, Shards: int32(result.Shards), ManifestSHA256: result.ManifestSHA256}
		p.restoreWaits(redisv1.ReasonRestoring, fmt.Sprintf("the backup is whole; %d shards are to be filled from it", result.Shards))
		return nil
	case result != nil && result.Reason != "":
		p.restoreWaits(string(result.Reason), "the backup cannot be restored: "+result.Message)
	default:
		p.restoreWaits(redisv1.ReasonJobFailed, fmt.Sprintf("Job %s ended without a word: look at its Pods", job.Name))
	}
	p.facts.Restore.Failed = true
	if p.facts.Now.Sub(end.LastTransitionTime.Time) > retryInspection {
		return deleteExactly(ctx, p.r.Client, job)
	}
	return nil
}

// judgeRestore says how far the restore is, after the nodes were asked.
func (p *pass) judgeRestore() {
	r := &p.facts.Restore
	if r.Reason == "" || r.Done || p.facts.Desired.Seeds == 0 {
		return
	}
	for _, pod := range p.kube.pods {
		if s := manifests.SeedStatus(pod); s != nil {
			if result := resultIn(s); result != nil && result.Permanent && (s.State.Terminated == nil || s.State.Terminated.ExitCode != 0) {
				r.Failed = true
			}
		}
	}
	switch {
	case !topology.Seeded(p.facts.Desired, p.facts.Observed):
		r.Reason, r.Message = redisv1.ReasonRestoring, p.filling()
		if len(p.facts.Problems) > 0 {
			r.Reason, r.Message = p.facts.Problems[0].Reason, p.facts.Problems[0].Message
		}
	case !p.seeded || !p.unseeded():
		r.Reason, r.Message = redisv1.ReasonSeeded, "every shard of the backup was seen in its place; from now on no Pod is filled from it"
	default:
		r.Reason, r.Message, r.Done = redisv1.ReasonRestored, fmt.Sprintf("%d shards were filled from the backup", p.facts.Desired.Seeds), true
	}
}

// unseeded tells whether every StatefulSet makes its Pods from a template that
// fills nothing.
func (p *pass) unseeded() bool {
	for _, set := range p.kube.statefulSets {
		if manifests.Seeds(&set.Spec.Template) || set.Status.ObservedGeneration != set.Generation {
			return false
		}
	}
	return true
}
