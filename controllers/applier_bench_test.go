package controllers

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/apiserver"
)

// requests counts what a client sends, by method.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent []string
}

// RoundTrip notes a request and passes it on.
func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.sent = append(r.sent, req.Method)
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// take gives the methods since the last call, as "PATCH GET".
func (r *requests) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := strings.Join(r.sent, " ")
	r.sent = nil
	return sent
}

// bench is an Applier on a real API server, with an owner for what it applies.
type bench struct {
	*testing.T
	*Applier
	// admin sends requests that are not counted.
	admin client.Client
	sent  *requests
	owner *redisv1.RedisCluster
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, redisv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatalf("make a scheme: %v", err)
		}
	}
	admin, err := client.New(apiserver.Config(t), client.Options{Scheme: s})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	b := &bench{T: t, admin: admin, sent: &requests{}}
	config := apiserver.Config(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		b.sent.next = next
		return b.sent
	})
	// The mapper is the other client's, so that discovery is not counted.
	counted, err := client.New(config, client.Options{Scheme: s, Mapper: admin.RESTMapper()})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	b.Applier = &Applier{Client: counted, APIReader: counted}
	b.owner = b.newOwner("orders", apiserver.Namespace(t))
	return b
}

func (b *bench) newOwner(name, namespace string) *redisv1.RedisCluster {
	b.Helper()
	owner := &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if err := b.admin.Create(context.Background(), owner); err != nil {
		b.Fatalf("create the owner: %v", err)
	}
	return owner
}

// ownedBy is the owner reference that makes an owner the controller.
func ownedBy(owner *redisv1.RedisCluster) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().WithAPIVersion(redisv1.GroupVersion.String()).WithKind("RedisCluster").
		WithName(owner.Name).WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)
}

func (b *bench) configMap(data map[string]string) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(b.owner.Name, b.owner.Namespace).WithOwnerReferences(ownedBy(b.owner)).
		WithLabels(map[string]string{"app.kubernetes.io/managed-by": "redis-operator"}).WithData(data)
}

// live reads an object as an up-to-date cache shows it.
func (b *bench) live(obj client.Object) client.Object {
	b.Helper()
	obj.SetNamespace(b.owner.Namespace)
	if obj.GetName() == "" {
		obj.SetName(b.owner.Name)
	}
	if err := b.admin.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		b.Fatalf("get: %v", err)
	}
	return obj
}

// apply wants an Apply to succeed, and to send and report just this.
func (b *bench) apply(cached client.Object, intent runtime.ApplyConfiguration, sent string, changed bool) {
	b.Helper()
	got, err := b.Apply(context.Background(), b.owner, cached, intent)
	if err != nil {
		b.Fatalf("apply: %v", err)
	}
	if methods := b.sent.take(); methods != sent || got != changed {
		b.Errorf("apply sent %q and reported changed=%t, want %q and %t", methods, got, sent, changed)
	}
}

// restart forgets all, as a new operator process.
func (b *bench) restart() { b.Applier = &Applier{Client: b.Client, APIReader: b.APIReader} }

// kinds are intents of every kind that the operator applies, with the fields
// in which the API server is known to fill something in.
func (b *bench) kinds() []struct {
	intent runtime.ApplyConfiguration
	empty  client.Object
} {
	name, namespace, labels := b.owner.Name, b.owner.Namespace, map[string]string{"app.kubernetes.io/instance": b.owner.Name}
	selector := metaac.LabelSelector().WithMatchLabels(labels)
	pod := coreac.PodSpec().WithTerminationGracePeriodSeconds(45).
		WithSecurityContext(coreac.PodSecurityContext().WithRunAsUser(999).WithFSGroup(999)).
		WithVolumes(
			coreac.Volume().WithName("config").WithConfigMap(coreac.ConfigMapVolumeSource().WithName(name)),
			coreac.Volume().WithName("tmp").WithEmptyDir(coreac.EmptyDirVolumeSource())).
		WithContainers(coreac.Container().WithName("redis").WithImage("redis:8.0").
			WithCommand("sh", "-c", "exec redis-server").
			WithPorts(coreac.ContainerPort().WithName("redis").WithContainerPort(6379), coreac.ContainerPort().WithName("bus").WithContainerPort(16379)).
			// fieldRef is applied as a whole, and the API server adds an apiVersion to it.
			WithEnv(coreac.EnvVar().WithName("POD_IP").WithValueFrom(coreac.EnvVarSource().WithFieldRef(coreac.ObjectFieldSelector().WithFieldPath("status.podIP")))).
			WithResources(coreac.ResourceRequirements().WithLimits(corev1.ResourceList{"memory": resource.MustParse("1024Mi"), "cpu": resource.MustParse("1000m")})).
			WithReadinessProbe(coreac.Probe().WithExec(coreac.ExecAction().WithCommand("true")).WithPeriodSeconds(2)).
			WithVolumeMounts(coreac.VolumeMount().WithName("config").WithMountPath("/etc/redis"), coreac.VolumeMount().WithName("tmp").WithMountPath("/tmp")).
			WithSecurityContext(coreac.SecurityContext().WithCapabilities(coreac.Capabilities().WithDrop("ALL"))))
	set := appsac.StatefulSet(name, namespace).WithOwnerReferences(ownedBy(b.owner)).WithLabels(labels).
		WithSpec(appsac.StatefulSetSpec().WithReplicas(2).WithServiceName(name).WithSelector(selector).
			WithUpdateStrategy(appsac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(pod)).
			WithVolumeClaimTemplates(coreac.PersistentVolumeClaim("data", "").WithSpec(coreac.PersistentVolumeClaimSpec().
				WithAccessModes(corev1.ReadWriteOnce).
				WithResources(coreac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{"storage": resource.MustParse("1024Mi")})))))
	service := coreac.Service(name, namespace).WithOwnerReferences(ownedBy(b.owner)).
		WithSpec(coreac.ServiceSpec().WithSelector(labels).WithPorts(
			coreac.ServicePort().WithName("redis").WithPort(6379),
			coreac.ServicePort().WithName("bus").WithPort(16379).WithTargetPort(intstr.FromInt32(16379))))
	budget := policyac.PodDisruptionBudget(name, namespace).WithOwnerReferences(ownedBy(b.owner)).
		WithSpec(policyac.PodDisruptionBudgetSpec().WithMaxUnavailable(intstr.FromInt32(1)).WithSelector(selector))
	network := networkingac.NetworkPolicy(name, namespace).WithOwnerReferences(ownedBy(b.owner)).
		WithSpec(networkingac.NetworkPolicySpec().WithPodSelector(selector).WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(networkingac.NetworkPolicyIngressRule().
				WithPorts(networkingac.NetworkPolicyPort().WithPort(intstr.FromInt32(16379))).
				WithFrom(networkingac.NetworkPolicyPeer().WithPodSelector(selector))))
	return []struct {
		intent runtime.ApplyConfiguration
		empty  client.Object
	}{
		{set, &appsv1.StatefulSet{}},
		{service, &corev1.Service{}},
		{b.configMap(map[string]string{"redis.conf": "maxmemory 1gb\n"}), &corev1.ConfigMap{}},
		{budget, &policyv1.PodDisruptionBudget{}},
		{network, &networkingv1.NetworkPolicy{}},
	}
}
