package manifests

import (
	"strconv"
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
	container := taskContainer(&c.Spec, "restore", s.Image, task)
	container.VolumeMounts = st.mounts
	return restoreJob(c, InspectJobName(c), "restore", taskPod(&c.Spec, container, st.volumes), deleteRetries, inspectDeadline)
}

func restoreJob(c *redisv1.RedisCluster, name, component string, pod *corev1.PodSpec, retries int32, deadline int64) *batchv1.Job {
	job := taskJob(c.Namespace, name, restoreLabels(c, component), pod, retries, deadline)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, redisv1.GroupVersion.WithKind("RedisCluster"))}
	return job
}

func restoreLabels(c *redisv1.RedisCluster, component string) map[string]string {
	return map[string]string{LabelName: AppBackup, LabelManagedBy: ManagedBy, LabelComponent: component, redisv1.LabelRestoreOf: c.Name}
}

const (
	// servers is the value of LabelComponent of what serves a backup on a volume.
	servers = "restore-store"
	// serveDeadline bounds that, in seconds: if it is not enough it begins again.
	serveDeadline = 24 * 60 * 60
)

// ServeName is the name of the Job and of the Service that hand a backup on a volume
// to the Pods that are filled from it.
func ServeName(c *redisv1.RedisCluster) string { return c.Name + "-restore-store" }

// Served tells whether the backup is handed to the Pods by a Job: a volume can often be
// mounted on one node only, and would stay with the Pods as long as they live.
func (s Seeding) Served() bool { return s.Destination.PersistentVolumeClaim != nil }

// ServeJob builds that Job. The cluster is its owner.
func ServeJob(c *redisv1.RedisCluster, s Seeding) *batchv1.Job {
	st := storeOf(s.Destination)
	task := s.task(c, backup.OperationServe, st)
	task.Username, task.PasswordFile = OperatorUser, passwordFile
	container := taskContainer(&c.Spec, "restore", s.Image, task)
	container.VolumeMounts = append(st.mounts, passwordMount)
	container.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: backup.ServePort, Protocol: corev1.ProtocolTCP}}
	pod := taskPod(&c.Spec, container, append(st.volumes, passwordVolume(c)))
	return restoreJob(c, ServeName(c), servers, pod, backupRetries, serveDeadline)
}

// ServeService builds the Service of that Job, which is its owner: it goes with it.
func ServeService(c *redisv1.RedisCluster, job *batchv1.Job) *corev1.Service {
	labels := restoreLabels(c, servers)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: ServeName(c), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: labels,
			Ports: []corev1.ServicePort{{Name: "http", Port: backup.ServePort, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// store is where a Pod that is filled finds the backup.
func (s Seeding) store(c *redisv1.RedisCluster) store {
	if !s.Served() {
		return storeOf(s.Destination)
	}
	url := "http://" + ServeName(c) + "." + c.Namespace + ".svc:" + strconv.Itoa(backup.ServePort)
	return store{
		destination: backup.Destination{Remote: &backup.Remote{URL: url, Username: OperatorUser, PasswordFile: passwordFile}},
		mounts:      []corev1.VolumeMount{passwordMount},
	}
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
	st := s.store(c)
	task := s.task(c, backup.OperationSeed, st)
	task.Shard, task.DataDir, task.AppendOnly, task.OnlyPod = shard, DataDir, appendOnly(&c.Spec), PodName(c, shard, 0)
	container := taskContainer(&c.Spec, "restore", s.Image, task)
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
