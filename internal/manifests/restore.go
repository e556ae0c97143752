package manifests

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
)

// Seeding is a backup that the first Pods of a new cluster are filled from.
type Seeding struct {
	// Destination and ID are where the backup is.
	Destination *redisv1.BackupDestination
	ID          string
	// Image is the operator's own, which does the work.
	Image string
}

// InspectJobName is the name of the Job that looks at a cluster's backup before
// anything is made of it.
func InspectJobName(c *redisv1.RedisCluster) string { return c.Name + "-restore" }

// inspectDeadline bounds the look at a backup, in seconds.
const inspectDeadline = 600

// InspectJob builds the Job that checks whether a backup is whole and can be read
// by the cluster's servers. The cluster is its owner.
func InspectJob(c *redisv1.RedisCluster, s Seeding) *batchv1.Job {
	st := storeOf(s.Destination)
	task := s.task(c, backup.OperationInspect, st)
	container := taskContainer("restore", s.Image, task)
	container.VolumeMounts = st.mounts
	labels := map[string]string{LabelName: AppBackup, LabelManagedBy: ManagedBy, LabelComponent: "restore", redisv1.LabelRestoreOf: c.Name}
	job := taskJob(c.Namespace, InspectJobName(c), labels, taskPod(c, container, st.volumes), deleteRetries, inspectDeadline)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, redisv1.GroupVersion.WithKind("RedisCluster"))}
	return job
}

func (s Seeding) task(c *redisv1.RedisCluster, operation backup.Operation, st store) *backup.Task {
	return &backup.Task{
		Operation: operation, Destination: st.destination, ID: s.ID, Engine: string(c.Spec.Engine), Version: c.Spec.Version,
	}
}

// Seed has the first Pod of a shard put its part of the backup into its data
// volume before its server starts for the first time. It is no part of the
// template's hash: when it is taken off, no Pod is made anew.
func (s Seeding) Seed(set *appsv1ac.StatefulSetApplyConfiguration, c *redisv1.RedisCluster, shard int) {
	st := storeOf(s.Destination)
	task := s.task(c, backup.OperationSeed, st)
	task.Shard, task.DataDir, task.AppendOnly, task.OnlyPod = shard, DataDir, appendOnly(&c.Spec), PodName(c, shard, 0)
	container := taskContainer("restore", s.Image, task)
	container.VolumeMounts = append(st.mounts, corev1.VolumeMount{Name: DataVolume, MountPath: DataDir})
	pod := set.Spec.Template.Spec
	pod.WithInitContainers(converted[corev1ac.ContainerApplyConfiguration](container))
	for _, v := range st.volumes {
		pod.WithVolumes(converted[corev1ac.VolumeApplyConfiguration](v))
	}
}

// SeedStatus is the status of the container that fills a Pod from a backup; nil
// when there is none, or none was reported.
func SeedStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.InitContainerStatuses {
		if pod.Status.InitContainerStatuses[i].Name == TaskContainer {
			return &pod.Status.InitContainerStatuses[i]
		}
	}
	return nil
}

// Seeds tells whether a template fills Pods from a backup.
func Seeds(template *corev1.PodTemplateSpec) bool {
	for i := range template.Spec.InitContainers {
		if template.Spec.InitContainers[i].Name == TaskContainer {
			return true
		}
	}
	return false
}

// appendOnly tells whether the servers keep an append-only file.
func appendOnly(spec *redisv1.RedisClusterSpec) bool {
	value, ok := UserDirectives(spec)["appendonly"]
	if !ok {
		value = defaults(spec)["appendonly"]
	}
	return strings.EqualFold(strings.Trim(value, `"`), "yes")
}
