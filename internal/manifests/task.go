package manifests

import (
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
)

// What a container that carries out a task of internal/backup finds in its Pod.
const (
	credentialsVolume = "store-credentials"
	authorityVolume   = "store-ca"
	storeVolume       = "store"
	programVolume     = "program"
	scratchVolume     = "scratch"

	credentialsDir = "/etc/redis-operator/store/credentials"
	authorityDir   = "/etc/redis-operator/store/ca"
	storeDir       = "/backups"
	programDir     = "/program"
	scratchDir     = "/tmp"
)

// TaskContainer is the name of the container that carries out a task, in a Job
// as in a Pod that is filled from a backup.
const TaskContainer = "backup"

// taskResources are those of a task. It streams: it needs the same memory whatever the
// size of the data. It asks for hardly any processor, so that where one is scarce the
// servers come first. Pods that ask for nothing share what pods that ask for something
// leave over, so that a task asks for nothing where its cluster does.
func taskResources(spec *redisv1.RedisClusterSpec) corev1.ResourceRequirements {
	if len(spec.Resources.Requests) == 0 && len(spec.Resources.Limits) == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// store is a destination as a task knows it, and what its container mounts for it.
type store struct {
	destination backup.Destination
	volumes     []corev1.Volume
	mounts      []corev1.VolumeMount
}

// storeOf mounts the Secrets and the claim that a destination names.
func storeOf(d *redisv1.BackupDestination) store {
	var s store
	if claim := d.PersistentVolumeClaim; claim != nil {
		s.destination.Directory = storeDir
		s.add(corev1.Volume{Name: storeVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.ClaimName},
		}}, corev1.VolumeMount{MountPath: storeDir, SubPath: claim.SubPath})
	}
	if s3 := d.S3; s3 != nil {
		s.destination.S3 = &backup.S3{
			Bucket: s3.Bucket, Prefix: s3.Prefix, Endpoint: s3.Endpoint, Region: s3.Region, PathStyle: s3.PathStyle, CredentialsDir: credentialsDir,
		}
		// All its keys: the session token is there or not.
		s.add(corev1.Volume{Name: credentialsVolume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: s3.CredentialsSecretName, DefaultMode: new(int32(0o440))},
		}}, corev1.VolumeMount{MountPath: credentialsDir, ReadOnly: true})
		if s3.CASecretName != "" {
			s.destination.S3.CAFile = path.Join(authorityDir, redisv1.S3CAKey)
			s.add(secretFile(authorityVolume, s3.CASecretName, redisv1.S3CAKey, redisv1.S3CAKey), corev1.VolumeMount{MountPath: authorityDir, ReadOnly: true})
		}
	}
	return s
}

func (s *store) add(v corev1.Volume, m corev1.VolumeMount) {
	m.Name = v.Name
	s.volumes, s.mounts = append(s.volumes, v), append(s.mounts, m)
}

// secretFile mounts one key of a Secret as a file.
func secretFile(volume, secret, key, file string) corev1.Volume {
	return *converted[corev1.Volume](secretVolume(volume, secret, key, file))
}

// taskContainer carries out a task with a subcommand of the operator's program, in a
// Pod that has the security context of a cluster's.
func taskContainer(spec *redisv1.RedisClusterSpec, subcommand, image string, task *backup.Task) corev1.Container {
	return corev1.Container{
		Name: TaskContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		// Without a command of its own an image's entrypoint would decide.
		Command: []string{"/manager", subcommand},
		Env: []corev1.EnvVar{
			{Name: backup.TaskVariable, Value: task.Encode()},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		},
		Resources:                taskResources(spec),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          converted[corev1.SecurityContext](containerSecurity(spec)),
	}
}

// passwordFile is where a task finds the operator's password.
var passwordFile = path.Join(operatorDir, passwordName)

// passwordMount mounts it.
var passwordMount = corev1.VolumeMount{Name: operatorVolume, MountPath: operatorDir, ReadOnly: true}

// passwordVolume is the volume of passwordMount.
func passwordVolume(c *redisv1.RedisCluster) corev1.Volume {
	return secretFile(operatorVolume, OperatorSecretName(c), OperatorPasswordKey, passwordName)
}

// seeds are where a task finds nodes of a cluster.
func seeds(c *redisv1.RedisCluster) []string {
	return []string{HeadlessServiceName(c) + "." + c.Namespace + ".svc:" + strconv.Itoa(RedisPort)}
}
