// Package manifests builds the Kubernetes objects that a RedisCluster is made
// of. Each builder is a pure function of the cluster: it returns the full
// intent as an apply configuration, with labels and owner reference, and gives
// equal output for equal input. Nothing here talks to Kubernetes or Redis.
package manifests

import (
	"strconv"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// What the objects, the scripts in the Pods and the operator agree on.
const (
	// RedisPort is where clients reach a node.
	RedisPort = 6379
	// BusPort is where the nodes of a cluster reach each other: always 10000
	// above the client port, because other nodes assume that when they MEET.
	BusPort = RedisPort + 10000
	// RedisContainer is the name of the only container of a Pod.
	RedisContainer = "redis"
	// OperatorUser is the ACL user that the operator and the replicas log in as.
	OperatorUser = "operator"
	// OperatorUserKey is the key of the operator Secret that holds OperatorUser.
	OperatorUserKey = "username"
	// OperatorPasswordKey is the key of the operator Secret that holds its password.
	OperatorPasswordKey = "password"
	// DataVolume is the name of the Pods' data volume, and of the claim template.
	DataVolume = "data"
	// DataDir is where the data volume is mounted.
	DataDir = "/data"
)

const (
	// TemplateAnnotation is on a StatefulSet's template and on its Pods, and holds
	// a hash of the template that the operator meant. It does not depend on what
	// the API server fills in.
	TemplateAnnotation = "redis.example.com/template"
	// RestartsAnnotation is on the ConfigMap and on the Pods' template. It counts
	// the changes of the configuration that a running server does not take.
	RestartsAnnotation = "redis.example.com/config-restarts"
)

// Paths in the Pods; the scripts have them as their defaults.
const (
	runVolume      = "run"
	configVolume   = "config"
	operatorVolume = "operator"
	authVolume     = "auth"

	runDir      = "/run/redis-operator"
	configDir   = "/etc/redis-operator/config"
	operatorDir = "/etc/redis-operator/operator"
	authDir     = "/etc/redis-operator/auth"
)

// ShardName is the name of a shard's StatefulSet and of its PodDisruptionBudget.
// Shards count from 0.
func ShardName(c *redisv1.RedisCluster, shard int) string {
	return c.Name + "-" + strconv.Itoa(shard)
}

// PodName is the name of a member's Pod. Shards and ordinals count from 0.
func PodName(c *redisv1.RedisCluster, shard, ordinal int) string {
	return ShardName(c, shard) + "-" + strconv.Itoa(ordinal)
}

// ClaimName is the name of a member's PersistentVolumeClaim.
func ClaimName(c *redisv1.RedisCluster, shard, ordinal int) string {
	return DataVolume + "-" + PodName(c, shard, ordinal)
}

// ClientServiceName is the name of the Service that clients connect to.
func ClientServiceName(c *redisv1.RedisCluster) string { return c.Name }

// HeadlessServiceName is the name of the Service that gives each Pod its DNS name.
func HeadlessServiceName(c *redisv1.RedisCluster) string { return c.Name + "-headless" }

// ConfigMapName is the name of the ConfigMap that holds redis.conf and the scripts.
func ConfigMapName(c *redisv1.RedisCluster) string { return c.Name + "-config" }

// NetworkPolicyName is the name of the NetworkPolicy around the Pods.
func NetworkPolicyName(c *redisv1.RedisCluster) string { return c.Name }

// OperatorSecretName is the name of the Secret with the operator's login.
func OperatorSecretName(c *redisv1.RedisCluster) string { return c.Name + "-operator" }

// AuthSecretName is the name of the Secret that is made for the client's
// password when spec.auth names none. RedisCluster.AuthSecretName is the one
// that the Pods use.
func AuthSecretName(c *redisv1.RedisCluster) string { return c.Name + "-auth" }
