package manifests

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// schedule passes on what the spec says about where Pods run.
func schedule(pod *corev1ac.PodSpecApplyConfiguration, c *redisv1.RedisCluster, shard int) {
	spec := &c.Spec
	if spec.Affinity != nil {
		pod.WithAffinity(converted[corev1ac.AffinityApplyConfiguration](spec.Affinity))
	} else {
		pod.WithAffinity(apart(c, shard))
	}
	pod.WithNodeSelector(spec.NodeSelector)
	for i := range spec.Tolerations {
		pod.WithTolerations(converted[corev1ac.TolerationApplyConfiguration](spec.Tolerations[i]))
	}
	for i := range spec.TopologySpreadConstraints {
		constraint := converted[corev1ac.TopologySpreadConstraintApplyConfiguration](spec.TopologySpreadConstraints[i])
		if constraint.LabelSelector == nil {
			constraint.WithLabelSelector(selects(ShardSelector(c, shard)))
		}
		pod.WithTopologySpreadConstraints(constraint)
	}
	if spec.PriorityClassName != "" {
		pod.WithPriorityClassName(spec.PriorityClassName)
	}
}

// apart asks for the members of a shard to be on different nodes and, after
// that, in different zones. It is a wish: a cluster on one node must start too.
func apart(c *redisv1.RedisCluster, shard int) *corev1ac.AffinityApplyConfiguration {
	by := func(weight int32, topologyKey string) *corev1ac.WeightedPodAffinityTermApplyConfiguration {
		return corev1ac.WeightedPodAffinityTerm().WithWeight(weight).WithPodAffinityTerm(corev1ac.PodAffinityTerm().
			WithTopologyKey(topologyKey).
			WithLabelSelector(selects(ShardSelector(c, shard))))
	}
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(
			by(100, corev1.LabelHostname), by(50, corev1.LabelTopologyZone)))
}

// converted turns an API type into the apply configuration of the same type.
// The two have the same JSON form, so failing means that a caller mixed types up.
func converted[T any](from any) *T {
	into := new(T)
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		panic(fmt.Sprintf("convert %T to %T: %v", from, into, err))
	}
	return into
}
