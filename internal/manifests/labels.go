package manifests

import (
	"maps"
	"strconv"

	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// The recommended labels of Kubernetes, and what they hold here.
const (
	// LabelName holds AppName on every object of a cluster.
	LabelName = "app.kubernetes.io/name"
	// LabelInstance holds the name of the RedisCluster.
	LabelInstance = "app.kubernetes.io/instance"
	// LabelManagedBy holds ManagedBy; the manager's caches select by it.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelComponent holds ComponentServer.
	LabelComponent = "app.kubernetes.io/component"
	// LabelVersion holds spec.version, on StatefulSets and Pods only. No
	// selector uses it.
	LabelVersion = "app.kubernetes.io/version"

	// AppName is the value of LabelName.
	AppName = "redis-cluster"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "redis-operator"
	// ComponentServer is the value of LabelComponent: what the Redis nodes are
	// made of, as opposed to what may be made beside them, such as backup Jobs.
	ComponentServer = "server"
)

// Selector selects what belongs to a cluster. It is fixed for the cluster's
// life: selectors of StatefulSets cannot be changed.
func Selector(c *redisv1.RedisCluster) map[string]string {
	return map[string]string{LabelName: AppName, LabelInstance: c.Name}
}

// ShardSelector selects what belongs to one shard of a cluster.
func ShardSelector(c *redisv1.RedisCluster, shard int) map[string]string {
	s := Selector(c)
	s[redisv1.LabelShard] = strconv.Itoa(shard)
	return s
}

// Labels are on every object of a cluster. They never change.
func Labels(c *redisv1.RedisCluster) map[string]string {
	l := Selector(c)
	l[LabelManagedBy] = ManagedBy
	l[LabelComponent] = ComponentServer
	return l
}

// ShardLabels are on every object of one shard. They never change.
func ShardLabels(c *redisv1.RedisCluster, shard int) map[string]string {
	l := Labels(c)
	maps.Copy(l, ShardSelector(c, shard))
	return l
}

// versionedLabels are on a shard's StatefulSet and Pods, whose template changes
// with the version anyway.
func versionedLabels(c *redisv1.RedisCluster, shard int) map[string]string {
	l := ShardLabels(c, shard)
	if c.Spec.Version != "" {
		l[LabelVersion] = c.Spec.Version
	}
	return l
}

// ownerReference makes the RedisCluster the controller of an object, which
// garbage collection removes with it.
func ownerReference(c *redisv1.RedisCluster) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(redisv1.GroupVersion.String()).
		WithKind("RedisCluster").
		WithName(c.Name).
		WithUID(c.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// selects is a label selector that matches the labels.
func selects(labels map[string]string) *metav1ac.LabelSelectorApplyConfiguration {
	return metav1ac.LabelSelector().WithMatchLabels(labels)
}
