package manifests

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// NetworkPolicy builds the policy that keeps strangers off the cluster bus,
// which has no authentication: only Pods of this cluster reach that port. The
// client port stays open to all, because a Pod that a policy selects admits
// nothing else, and clients log in there. Other ports are closed.
func NetworkPolicy(c *redisv1.RedisCluster) *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkingv1ac.NetworkPolicy(NetworkPolicyName(c), c.Namespace).
		WithLabels(Labels(c)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(selects(Selector(c))).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(
				networkingv1ac.NetworkPolicyIngressRule().WithPorts(policyPort(RedisPort)),
				networkingv1ac.NetworkPolicyIngressRule().WithPorts(policyPort(BusPort)).
					WithFrom(networkingv1ac.NetworkPolicyPeer().WithPodSelector(selects(Selector(c)))),
			))
}

func policyPort(port int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().
		WithProtocol(corev1.ProtocolTCP).
		WithPort(intstr.FromInt32(port))
}
