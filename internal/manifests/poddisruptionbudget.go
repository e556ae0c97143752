package manifests

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// PodDisruptionBudget builds the budget of one shard: evictions, the operator's
// own included, take one of its Pods at a time. One budget for each shard,
// because one for all would let both members of a shard go.
func PodDisruptionBudget(c *redisv1.RedisCluster, shard int) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget(ShardName(c, shard), c.Namespace).
		WithLabels(ShardLabels(c, shard)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithSelector(selects(ShardSelector(c, shard))))
}
