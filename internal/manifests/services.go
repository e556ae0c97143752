package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// Names of the ports of Services and containers.
const (
	redisPortName = "redis"
	busPortName   = "bus"
)

// ClientService builds the Service that clients connect to: all nodes that are
// ready, whatever their role. Clients learn the rest from the cluster itself.
func ClientService(c *redisv1.RedisCluster) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(ClientServiceName(c), c.Namespace).
		WithLabels(Labels(c)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(Selector(c)).
			WithPorts(servicePort(redisPortName, RedisPort)))
}

// HeadlessService builds the Service that gives each Pod its DNS name. Nodes
// that are not ready are in it too: the members of a shard look each other up
// while they start.
func HeadlessService(c *redisv1.RedisCluster) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(HeadlessServiceName(c), c.Namespace).
		WithLabels(Labels(c)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithClusterIP(corev1.ClusterIPNone).
			WithPublishNotReadyAddresses(true).
			WithSelector(Selector(c)).
			WithPorts(servicePort(redisPortName, RedisPort), servicePort(busPortName, BusPort)))
}

func servicePort(name string, port int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(name).
		WithProtocol(corev1.ProtocolTCP).
		WithPort(port).
		WithTargetPort(intstr.FromString(name))
}
