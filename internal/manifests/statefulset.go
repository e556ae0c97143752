package manifests

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// StatefulSet builds the StatefulSet of one shard, with the given number of
// Pods. The update strategy is OnDelete: the operator decides which Pod
// restarts, and when. Pods start all at once, because the order means nothing
// to Redis.
//
// The claim template of storage.size cannot be changed in place: Kubernetes
// refuses that, and the StatefulSet must be made anew without its Pods.
//
// The Pods carry a hash of their template (TemplateAnnotation), by which an
// outdated one is known. restarts, empty for none, is part of the template
// (RestartsAnnotation).
func StatefulSet(c *redisv1.RedisCluster, shard, members int, restarts string) *appsv1ac.StatefulSetApplyConfiguration {
	spec := appsv1ac.StatefulSetSpec().
		WithReplicas(int32(members)).
		WithServiceName(HeadlessServiceName(c)).
		WithPodManagementPolicy(appsv1.ParallelPodManagement).
		WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
		WithSelector(selects(ShardSelector(c, shard))).
		WithTemplate(hashed(podTemplate(c, shard, restarts)))
	if c.Spec.Storage != nil {
		spec.WithPersistentVolumeClaimRetentionPolicy(claimRetention(c.Spec.Storage)).
			WithVolumeClaimTemplates(claimTemplate(c, shard))
	}
	return appsv1ac.StatefulSet(ShardName(c, shard), c.Namespace).
		WithLabels(versionedLabels(c, shard)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(spec)
}

// claimRetention keeps the claims of a deleted cluster as storage.retain says.
// Those of removed members are kept by Kubernetes in any case: the operator
// deletes them after it has seen that they hold no key.
func claimRetention(s *redisv1.StorageSpec) *appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicyApplyConfiguration {
	deleted := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if s.Retain != nil && !*s.Retain {
		deleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
		WithWhenDeleted(deleted).
		WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
}

// claimTemplate is the claim of each member. It cannot be changed once the
// StatefulSet exists, so it holds only labels that never change.
func claimTemplate(c *redisv1.RedisCluster, shard int) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	// Modes and status are the API server's defaults: it fills them in inside this
	// field, which is applied as a whole, so without them it would never be equal.
	spec := corev1ac.PersistentVolumeClaimSpec().
		WithVolumeMode(corev1.PersistentVolumeFilesystem).
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: c.Spec.Storage.Size}))
	if class := c.Spec.Storage.StorageClassName; class != nil {
		spec.WithStorageClassName(*class)
	}
	claim := &corev1ac.PersistentVolumeClaimApplyConfiguration{}
	return claim.WithName(DataVolume).
		WithLabels(ShardLabels(c, shard)).
		WithSpec(spec).
		WithStatus(corev1ac.PersistentVolumeClaimStatus().WithPhase(corev1.ClaimPending))
}
