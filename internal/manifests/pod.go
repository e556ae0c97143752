package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// How long a Pod may take to end, in seconds.
const (
	// handOver bounds prestop.sh: 8 s, three questions of 1 s, 1 s for clients.
	handOver = 12
	// shutdownTimeout is Redis's own wait for its replicas.
	shutdownTimeout = 10
	// saveNothing is for a server that has nothing to save but its exit.
	saveNothing = 8
	// saveToDisk is for the last fsync of the append-only file, and for a
	// whole dump if spec.config asks for one (save).
	saveToDisk = 98
)

// podTemplate is the Pod of each member of a shard.
func podTemplate(c *redisv1.RedisCluster, shard int, restarts string) *corev1ac.PodTemplateSpecApplyConfiguration {
	labels := map[string]string{}
	for k, v := range c.Spec.PodLabels {
		labels[k] = string(v)
	}
	maps.Copy(labels, versionedLabels(c, shard))

	spec := corev1ac.PodSpec().
		WithContainers(redisContainer(c)).
		WithVolumes(volumes(c)...).
		WithSecurityContext(podSecurity(&c.Spec)).
		// The Pods never call the Kubernetes API, and variables of Services
		// would end in Redis's environment.
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(gracePeriod(&c.Spec))
	schedule(spec, c, shard)
	for _, s := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(s.Name))
	}
	template := corev1ac.PodTemplateSpec().
		WithLabels(labels).
		WithAnnotations(c.Spec.PodAnnotations).
		WithSpec(spec)
	if restarts != "" {
		template.WithAnnotations(map[string]string{RestartsAnnotation: restarts})
	}
	return template
}

// hashed adds the hash of a template to it.
func hashed(template *corev1ac.PodTemplateSpecApplyConfiguration) *corev1ac.PodTemplateSpecApplyConfiguration {
	data, err := json.Marshal(template)
	if err != nil {
		panic(fmt.Sprintf("encode a Pod template: %v", err)) // it holds nothing that cannot be
	}
	sum := sha256.Sum256(data)
	return template.WithAnnotations(map[string]string{TemplateAnnotation: hex.EncodeToString(sum[:8])})
}

// gracePeriod covers what a Pod does one after the other when it is told to
// end: hand over to a replica (preStop), wait for the replicas (the server's
// shutdown-timeout), save. A server that is killed before loses writes that it
// has acknowledged and not synced.
func gracePeriod(spec *redisv1.RedisClusterSpec) int64 {
	if spec.Storage == nil {
		return handOver + shutdownTimeout + saveNothing
	}
	return handOver + shutdownTimeout + saveToDisk
}

// redisContainer is the only container. Its environment names no password:
// Secrets are mounted as files.
func redisContainer(c *redisv1.RedisCluster) *corev1ac.ContainerApplyConfiguration {
	container := corev1ac.Container().
		WithName(RedisContainer).
		WithImage(Image(c)).
		WithCommand("sh", path.Join(configDir, startFile)).
		WithEnv(environment(c)...).
		WithPorts(containerPort(redisPortName, RedisPort), containerPort(busPortName, BusPort)).
		WithVolumeMounts(mounts(c)...).
		WithSecurityContext(containerSecurity(&c.Spec)).
		// What start.sh or the server said last shows in the Pod's status.
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithStartupProbe(startupProbe()).
		WithReadinessProbe(readinessProbe()).
		WithLivenessProbe(livenessProbe()).
		WithLifecycle(corev1ac.Lifecycle().WithPreStop(corev1ac.LifecycleHandler().
			WithExec(runs(preStopFile))))
	if c.Spec.ImagePullPolicy != "" {
		container.WithImagePullPolicy(c.Spec.ImagePullPolicy)
	}
	if r := c.Spec.Resources; len(r.Limits) > 0 || len(r.Requests) > 0 || len(r.Claims) > 0 {
		container.WithResources(converted[corev1ac.ResourceRequirementsApplyConfiguration](r))
	}
	return container
}

// Image is the image of the cluster's Pods: spec.image, or that of the engine
// with the version as its tag.
func Image(c *redisv1.RedisCluster) string {
	switch {
	case c.Spec.Image != "":
		return c.Spec.Image
	case c.Spec.Engine == redisv1.EngineValkey:
		return "docker.io/valkey/valkey:" + c.Spec.Version
	default:
		return "docker.io/library/redis:" + c.Spec.Version
	}
}

// environment is what the scripts need to know of the Pod. Each variable is set
// in every case, so that none that an image may have decides anything.
func environment(c *redisv1.RedisCluster) []*corev1ac.EnvVarApplyConfiguration {
	engine := "redis"
	if c.Spec.Engine == redisv1.EngineValkey {
		engine = "valkey"
	}
	return []*corev1ac.EnvVarApplyConfiguration{
		// The prefix of the programs: redis-server, valkey-cli.
		corev1ac.EnvVar().WithName("ENGINE").WithValue(engine),
		corev1ac.EnvVar().WithName("POD_IP").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("status.podIP"))),
		corev1ac.EnvVar().WithName("POD_NAME").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("metadata.name"))),
		corev1ac.EnvVar().WithName("SERVICE").WithValue(HeadlessServiceName(c)),
		corev1ac.EnvVar().WithName("AUTH_DISABLED").WithValue(strconv.FormatBool(c.Spec.AuthDisabled())),
	}
}

func containerPort(name string, port int32) *corev1ac.ContainerPortApplyConfiguration {
	return corev1ac.ContainerPort().WithName(name).WithProtocol(corev1.ProtocolTCP).WithContainerPort(port)
}

// runs executes a script of the ConfigMap.
func runs(script string) *corev1ac.ExecActionApplyConfiguration {
	return corev1ac.ExecAction().WithCommand("sh", path.Join(configDir, script))
}

// startupProbe succeeds as soon as the server listens, which it does before it
// loads its data. It looks every second, so that a Pod is ready soon, and for
// an hour, because start.sh may have to wait for the shard's other members.
func startupProbe() *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithTCPSocket(corev1ac.TCPSocketAction().WithPort(intstr.FromString(redisPortName))).
		WithPeriodSeconds(1).
		WithTimeoutSeconds(1).
		WithFailureThreshold(3600)
}

// readinessProbe is what disruption budgets and the client Service go by, so it
// asks more than whether the server answers.
func readinessProbe() *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithExec(runs(readyFile)).
		WithPeriodSeconds(5).
		WithTimeoutSeconds(3).
		WithFailureThreshold(2)
}

// livenessProbe restarts a server that has not taken a connection for five
// minutes. It only connects, which the kernel answers while the server is busy:
// a question would kill a server that loads, saves or runs a long script, and
// its restart would have it load all over again.
func livenessProbe() *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithTCPSocket(corev1ac.TCPSocketAction().WithPort(intstr.FromString(redisPortName))).
		WithPeriodSeconds(10).
		WithTimeoutSeconds(5).
		WithFailureThreshold(30)
}

// mounts are where the container finds its volumes.
func mounts(c *redisv1.RedisCluster) []*corev1ac.VolumeMountApplyConfiguration {
	m := []*corev1ac.VolumeMountApplyConfiguration{
		corev1ac.VolumeMount().WithName(DataVolume).WithMountPath(DataDir),
		corev1ac.VolumeMount().WithName(runVolume).WithMountPath(runDir),
		corev1ac.VolumeMount().WithName(configVolume).WithMountPath(configDir).WithReadOnly(true),
		corev1ac.VolumeMount().WithName(operatorVolume).WithMountPath(operatorDir).WithReadOnly(true),
	}
	if !c.Spec.AuthDisabled() {
		m = append(m, corev1ac.VolumeMount().WithName(authVolume).WithMountPath(authDir).WithReadOnly(true))
	}
	return m
}

// volumes are the Pod's volumes. The data volume of a cluster with storage
// comes from the StatefulSet's claim template.
func volumes(c *redisv1.RedisCluster) []*corev1ac.VolumeApplyConfiguration {
	v := []*corev1ac.VolumeApplyConfiguration{
		// Holds passwords and their hashes, so it never touches a disk.
		corev1ac.Volume().WithName(runVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource().
			WithMedium(corev1.StorageMediumMemory).
			WithSizeLimit(*resource.NewQuantity(mib, resource.BinarySI))),
		corev1ac.Volume().WithName(configVolume).WithConfigMap(corev1ac.ConfigMapVolumeSource().
			WithName(ConfigMapName(c)).
			WithDefaultMode(0o444)),
		secretVolume(operatorVolume, OperatorSecretName(c), OperatorPasswordKey, passwordName),
	}
	if !c.Spec.AuthDisabled() {
		v = append(v, secretVolume(authVolume, c.AuthSecretName(), redisv1.AuthPasswordKey, passwordName))
	}
	if c.Spec.Storage == nil {
		v = append(v, corev1ac.Volume().WithName(DataVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	}
	return v
}

// passwordName is the name of the file that holds a password.
const passwordName = "password"

// secretVolume mounts one key of a Secret, and nothing else that a user may keep
// there, as a file that the Pod's group can read.
func secretVolume(volume, name, key, file string) *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(volume).WithSecret(corev1ac.SecretVolumeSource().
		WithSecretName(name).
		WithDefaultMode(0o440).
		WithItems(corev1ac.KeyToPath().WithKey(key).WithPath(file)))
}
