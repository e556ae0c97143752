package manifests

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// redisID is the uid and gid of the redis and valkey users of the official images.
const redisID = 999

// podSecurity is the Pods' security context: spec.podSecurityContext as it is,
// or one that meets the restricted Pod Security Standard.
func podSecurity(spec *redisv1.RedisClusterSpec) *corev1ac.PodSecurityContextApplyConfiguration {
	if spec.PodSecurityContext != nil {
		return converted[corev1ac.PodSecurityContextApplyConfiguration](spec.PodSecurityContext)
	}
	return corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithRunAsUser(redisID).
		WithRunAsGroup(redisID).
		WithFSGroup(redisID).
		// Otherwise each start changes the owner of every file of the volume.
		WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
		WithSeccompProfile(runtimeDefault())
}

// containerSecurity holds what only a container can say, and what
// spec.podSecurityContext leaves out of the restricted standard.
func containerSecurity(spec *redisv1.RedisClusterSpec) *corev1ac.SecurityContextApplyConfiguration {
	s := corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
	pod := spec.PodSecurityContext
	if pod != nil && pod.RunAsNonRoot == nil {
		s.WithRunAsNonRoot(true)
	}
	if pod != nil && pod.SeccompProfile == nil {
		s.WithSeccompProfile(runtimeDefault())
	}
	return s
}

func runtimeDefault() *corev1ac.SeccompProfileApplyConfiguration {
	return corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault)
}
