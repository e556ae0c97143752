package manifests

import (
	_ "embed"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// Files of the ConfigMap.
const (
	redisConfFile = "redis.conf"
	startFile     = "start.sh"
	guardFile     = "guard.sh"
	readyFile     = "ready.sh"
	preStopFile   = "prestop.sh"
)

var (
	//go:embed scripts/start.sh
	startScript string
	//go:embed scripts/guard.sh
	guardScript string
	//go:embed scripts/ready.sh
	readyScript string
	//go:embed scripts/prestop.sh
	preStopScript string
)

// ConfigMap builds the ConfigMap with redis.conf and the scripts of the Pods. user
// are the directives from spec.config (UserDirectives), or those of before while
// new ones are still to be accepted. restarts is the RestartsAnnotation, empty for
// none.
//
// The Pod template does not depend on the content: a changed directive restarts
// nothing, and a node that starts reads what is there then.
func ConfigMap(c *redisv1.RedisCluster, user map[string]string, restarts string) *corev1ac.ConfigMapApplyConfiguration {
	m := corev1ac.ConfigMap(ConfigMapName(c), c.Namespace).
		WithLabels(Labels(c)).
		WithOwnerReferences(ownerReference(c)).
		WithData(map[string]string{
			redisConfFile: redisConf(&c.Spec, user),
			startFile:     startScript,
			guardFile:     guardScript,
			readyFile:     readyScript,
			preStopFile:   preStopScript,
		})
	if restarts != "" {
		m.WithAnnotations(map[string]string{RestartsAnnotation: restarts})
	}
	return m
}
