package manifests

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
)

const (
	// backupRetries is how often a Job tries again; the first wait is 10 s, each
	// next one twice as long.
	backupRetries = 6
	deleteRetries = 3
	// deleteDeadline bounds the removal of a backup's objects, in seconds.
	deleteDeadline = 300
	// keepJobs is how long a Job that has ended can be looked at, in seconds.
	keepJobs = 24 * 60 * 60
	// tidyUp is what a task may take, in seconds, to remove what it has half written.
	tidyUp = 60
)

// AppBackup is the value of LabelName on the Jobs of backups and restores, and on
// their Pods. They have no LabelInstance: whoever selects a cluster's Pods by it
// means its servers.
const AppBackup = "redis-backup"

// BackupJobName is the name of the Job that takes a backup.
func BackupJobName(b *redisv1.RedisBackup) string { return b.Name + "-b" }

// DeleteJobName is the name of the Job that removes a backup's objects.
func DeleteJobName(b *redisv1.RedisBackup) string { return b.Name + "-d" }

// BackupID is the backup's folder in its destination: a RedisBackup that is made
// again under the same name has another one.
func BackupID(b *redisv1.RedisBackup) string {
	return b.Name + "-" + string(b.UID[:min(8, len(b.UID))])
}

// BackupLabels are on a backup's Jobs and Pods.
func BackupLabels(b *redisv1.RedisBackup) map[string]string {
	return map[string]string{
		LabelName: AppBackup, LabelManagedBy: ManagedBy, LabelComponent: "backup", redisv1.LabelBackup: b.Name, redisv1.LabelBackupOf: b.Spec.ClusterName,
	}
}

// BackupJob builds the Job that takes a backup of a cluster, and ends after so
// many seconds. The backup is its owner.
func BackupJob(b *redisv1.RedisBackup, c *redisv1.RedisCluster, operatorImage string, deadline int64) *batchv1.Job {
	s := storeOf(&b.Spec.Destination)
	task := &backup.Task{
		Operation: backup.OperationBackup, Destination: s.destination, ID: BackupID(b),
		Cluster: c.Namespace + "/" + c.Name, Seeds: seeds(c),
		Username: OperatorUser, PasswordFile: passwordFile,
		Compression: string(b.Spec.Compression), Verify: backup.Verification(b.Spec.Verify),
	}
	container := taskContainer(&c.Spec, "backup", operatorImage, task)
	container.VolumeMounts = append(s.mounts, passwordMount)
	pod := taskPod(&c.Spec, container, append(s.volumes, passwordVolume(c)))
	if b.Spec.Verify == redisv1.VerifyRestore {
		drill(pod, c)
	}
	job := taskJob(b.Namespace, BackupJobName(b), BackupLabels(b), pod, backupRetries, deadline)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b, redisv1.GroupVersion.WithKind("RedisBackup"))}
	return job
}

// DeleteJob builds the Job that removes a backup's objects. It has no owner: the
// backup is on its way, and must not take the Job along. c is the cluster, nil
// when there is none any more.
func DeleteJob(b *redisv1.RedisBackup, c *redisv1.RedisCluster, operatorImage string) *batchv1.Job {
	s := storeOf(&b.Spec.Destination)
	task := &backup.Task{Operation: backup.OperationDelete, Destination: s.destination, ID: BackupID(b)}
	spec := &redisv1.RedisClusterSpec{}
	if c != nil {
		spec = &c.Spec
	}
	container := taskContainer(spec, "backup", operatorImage, task)
	container.VolumeMounts = s.mounts
	return taskJob(b.Namespace, DeleteJobName(b), BackupLabels(b), taskPod(spec, container, s.volumes), deleteRetries, deleteDeadline)
}

// drill has the task run in the image of the cluster's servers, with the program
// put beside it, because it starts one of them.
func drill(pod *corev1.PodSpec, c *redisv1.RedisCluster) {
	main := &pod.Containers[0]
	program := corev1.VolumeMount{Name: programVolume, MountPath: programDir}
	install := *main.DeepCopy()
	install.Name, install.Command, install.Env = "install", []string{"/manager", "install", programDir}, nil
	install.VolumeMounts = []corev1.VolumeMount{program}
	pod.InitContainers = []corev1.Container{install}

	program.ReadOnly = true
	main.Image, main.Command[0] = Image(c), programDir+"/manager"
	if c.Spec.ImagePullPolicy != "" {
		main.ImagePullPolicy = c.Spec.ImagePullPolicy
	}
	main.VolumeMounts = append(main.VolumeMounts, program, corev1.VolumeMount{Name: scratchVolume, MountPath: scratchDir})
	// The server needs the memory that a node of the cluster does.
	main.Resources = *c.Spec.Resources.DeepCopy()
	main.Resources.Claims = nil // devices are the nodes' own
	for _, name := range []string{programVolume, scratchVolume} {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
}

// taskPod is a Pod that carries out one task, where the Pods of a cluster may run, and
// as they run: both can then read the same volumes.
func taskPod(spec *redisv1.RedisClusterSpec, container corev1.Container, volumes []corev1.Volume) *corev1.PodSpec {
	spec = spec.DeepCopy()
	return &corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}, Volumes: volumes,
		SecurityContext:              converted[corev1.PodSecurityContext](podSecurity(spec)),
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), TerminationGracePeriodSeconds: new(int64(tidyUp + 10)),
		ImagePullSecrets: spec.ImagePullSecrets, NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, PriorityClassName: spec.PriorityClassName,
	}
}

// taskJob is a Job of one Pod at a time. A task that trying again cannot help, by
// its exit code, ends it; a Pod that was taken away does not count as a failure.
func taskJob(namespace, name string, labels map[string]string, pod *corev1.PodSpec, retries int32, deadline int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: &retries, ActiveDeadlineSeconds: &deadline, TTLSecondsAfterFinished: new(int32(keepJobs)),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					ContainerName: new(TaskContainer), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{backup.ExitPermanent},
				}},
				{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
					{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
				}},
			}},
			// A new Pod only after the one before has ended: two would write the same objects.
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)}, Spec: *pod},
		},
	}
}
