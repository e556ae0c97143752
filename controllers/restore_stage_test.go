package controllers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// taken is a real backup of a real cluster of three shards, in a folder.
func taken(t *testing.T) (folder, id string) {
	t.Helper()
	three := int32(3)
	s := newShapeStage(t, redisv1.RedisClusterSpec{Replicas: &three, Shards: &three})
	s.until(operators["steady"], 3)
	s.fill()
	folder, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
	s.must(os.WriteFile(password, []byte(s.password), 0o600))
	task := backup.Task{Operation: backup.OperationBackup, Destination: backup.Destination{Directory: folder}, ID: "nightly-1", Username: manifests.OperatorUser, PasswordFile: password}
	for _, server := range s.servers {
		task.Seeds = append(task.Seeds, server.Addr())
	}
	if r := backup.Do(t.Context(), task); r.Reason != "" || r.Shards != 3 {
		t.Fatalf("%+v", r)
	}
	return folder, task.ID
}

// restoreStage does what the kubelet does with the tasks of Jobs and init containers,
// by the code that does it there.
type restoreStage struct {
	*shapeStage
	folder string
	seeded []string
}

func newRestoreStage(t *testing.T, folder, id string, replicas, shards int32) *restoreStage {
	t.Helper()
	r := &restoreStage{folder: folder}
	r.shapeStage = newShapeStage(t, redisv1.RedisClusterSpec{Replicas: &replicas, Shards: &shards, RestoreFrom: &redisv1.RestoreSource{
		ID: id, Destination: &redisv1.BackupDestination{PersistentVolumeClaim: &redisv1.ClaimDestination{ClaimName: "backups"}},
	}})
	r.makeClaim("backups")
	r.prepare = r.seed
	return r
}

func (r *restoreStage) task(c *corev1.Container) backup.Task {
	r.Helper()
	var task backup.Task
	for _, e := range c.Env {
		if e.Name == backup.TaskVariable {
			r.must(json.Unmarshal([]byte(e.Value), &task))
		}
	}
	task.Destination = backup.Destination{Directory: r.folder}
	return task
}

func (r *restoreStage) seed(set *appsv1.StatefulSet, pod, dir string) {
	r.Helper()
	if !manifests.Seeds(&set.Spec.Template) {
		return
	}
	task := r.task(&set.Spec.Template.Spec.InitContainers[0])
	if task.OnlyPod != pod {
		return
	}
	task.OnlyPod, task.DataDir = "", dir
	if result := backup.Do(r.Context(), task); result.Reason != "" {
		r.Fatalf("fill %s: %+v", pod, result)
	}
	r.seeded = append(r.seeded, pod)
	if !r.get(&batchv1.Job{}, "orders-restore-store") || !r.get(&corev1.Service{}, "orders-restore-store") {
		r.Error("nobody serves the backup on the volume")
	}
}

// inspect runs the Job that looks at the backup, if there is one that has not ended.
func (r *restoreStage) inspect() {
	r.Helper()
	job := &batchv1.Job{}
	if !r.get(job, "orders-restore") {
		return
	}
	if endOf(job) != nil {
		return
	}
	task := r.task(&job.Spec.Template.Spec.Containers[0])
	result := backup.Do(r.Context(), task)
	if result.Reason == "" {
		r.end(job.Name, &result, batchv1.JobComplete, "")
	} else {
		r.end(job.Name, &result, batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy)
	}
}

// TestAClusterStartsFromABackup, of fewer and of more shards, with operators that
// live through it, start anew, and lose writes.
func TestAClusterStartsFromABackup(t *testing.T) {
	folder, id := taken(t)
	for name, before := range operators {
		for _, shards := range []int32{2, 5} {
			t.Run(fmt.Sprintf("%s, into %d shards", name, shards), func(t *testing.T) {
				t.Parallel()
				r := newRestoreStage(t, folder, id, shards, shards)
				r.until(func(s *stage, pass int) {
					before(s, pass)
					r.inspect()
					r.nothingBefore()
				}, int(shards))
				r.checkKeys()
				if got := strings.Join(r.seeded, " "); len(r.seeded) != 3 {
					t.Errorf("filled: %s; want the first Pods of three shards, once each", got)
				}
				if want := max(3, int(shards)); r.starts != want {
					t.Errorf("%d Pods were made, want %d", r.starts, want)
				}
				r.restored(t, int(shards))
			})
		}
	}
}

// nothingBefore: until the backup is in its place nothing is served, and nobody has
// met anybody.
func (r *restoreStage) nothingBefore() {
	r.Helper()
	r.get(r.cluster, r.cluster.Name)
	if meta.IsStatusConditionTrue(r.cluster.Status.Conditions, redisv1.ConditionRestored) {
		return
	}
	if r.get(&corev1.Service{}, r.cluster.Name) {
		r.Error("clients are let in before the backup is in its place")
	}
	if meta.IsStatusConditionTrue(r.cluster.Status.Conditions, redisv1.ConditionAvailable) || r.cluster.Status.Phase == redisv1.PhaseRunning {
		r.Errorf("phase %s, %+v", r.cluster.Status.Phase, r.cluster.Status.Conditions)
	}
	for _, server := range r.servers {
		if text := fmt.Sprint(server.Do("CLUSTER", "INFO")); !strings.Contains(text, "cluster_known_nodes:1\r") {
			r.Errorf("%s has met somebody: %s", server.Addr(), text)
		}
	}
}

// restored checks a cluster that is restored: a Pod that is lost is not filled again.
func (r *restoreStage) restored(t *testing.T, nodes int) {
	t.Helper()
	c := meta.FindStatusCondition(r.cluster.Status.Conditions, redisv1.ConditionRestored)
	if c == nil || c.Reason != redisv1.ReasonRestored || r.cluster.Status.Restore == nil || r.cluster.Status.Restore.Shards != 3 {
		t.Errorf("%+v, %+v", c, r.cluster.Status.Restore)
	}
	pod := &corev1.Pod{}
	r.get(pod, "orders-0-0")
	r.must(r.admin.Delete(t.Context(), pod))
	filled := len(r.seeded)
	redistest.Eventually(t, time.Minute, func() error {
		r.kubernetes()
		again := &corev1.Pod{}
		if !r.get(again, "orders-0-0") || again.UID == pod.UID {
			return errors.New("the Pod is not there again")
		}
		return nil
	})
	if len(r.seeded) != filled {
		t.Error("a Pod of a restored cluster is filled from the backup again")
	}
	if job := (&batchv1.Job{}); r.get(job, "orders-restore-store") && job.DeletionTimestamp.IsZero() {
		t.Error("the backup is still served")
	}
	if len(r.servers) != nodes {
		t.Errorf("%d servers", len(r.servers))
	}
}

// TestARestoreIsRefused: nothing of the cluster is made, and it is said why.
func TestARestoreIsRefused(t *testing.T) {
	folder, id := taken(t)
	object := filepath.Join(folder, id, "shard-0001.rdb.zst")
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(reason string, setup func(*restoreStage), id string) *restoreStage {
		t.Helper()
		r := newRestoreStage(t, folder, id, 3, 3)
		if setup != nil {
			setup(r)
		}
		phase := redisv1.PhaseFailed
		if reason == redisv1.ReasonVolumesExist || reason == redisv1.ReasonClaimNotFound {
			phase = redisv1.PhasePending
		}
		redistest.Eventually(t, time.Minute, func() error {
			r.must(r.pass())
			r.inspect()
			r.kubernetes()
			ready := r.ready()
			c := meta.FindStatusCondition(r.cluster.Status.Conditions, redisv1.ConditionRestored)
			if r.cluster.Status.Phase != phase || c == nil || c.Reason != reason || ready.Reason != reason {
				return fmt.Errorf("phase %s, %+v, Ready %s", r.cluster.Status.Phase, c, ready.Reason)
			}
			return nil
		})
		var sets appsv1.StatefulSetList
		r.must(r.admin.List(t.Context(), &sets, client.InNamespace(r.cluster.Namespace)))
		if len(sets.Items) > 0 || r.starts > 0 {
			t.Errorf("%s: %d StatefulSets and %d Pods were made", reason, len(sets.Items), r.starts)
		}
		return r
	}
	refused("BackupNotFound", nil, "no-such-1")
	refused(redisv1.ReasonClaimNotFound, func(r *restoreStage) {
		claim := &corev1.PersistentVolumeClaim{}
		r.get(claim, "backups")
		claim.Finalizers = nil
		r.must(r.admin.Update(t.Context(), claim))
		r.must(r.admin.Delete(t.Context(), claim))
	}, id)
	if err := os.WriteFile(object, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	r := refused("BackupDamaged", nil, id)

	// It is looked at again, which changes nothing until the backup is put right.
	job := r.job("orders-restore")
	later := time.Now()
	r.r.clock = func() time.Time { return later }
	redistest.Eventually(t, time.Minute, func() error {
		later = later.Add(2 * retryInspection)
		r.must(r.pass())
		if r.ready(); r.cluster.Status.Phase != redisv1.PhaseFailed {
			t.Fatalf("phase %s while it is looked at again", r.cluster.Status.Phase)
		}
		again := &batchv1.Job{}
		if !r.get(again, job.Name) || again.UID == job.UID {
			return errors.New("there is no other Job")
		}
		return nil
	})
	if err := os.WriteFile(object, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	r.r.clock = nil
	r.until(func(*stage, int) { r.inspect() }, 3)
	r.checkKeys()
}
