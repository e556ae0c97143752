package controllers

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

// TestManifestsAreQuietAfterRestart: an operator that starts anew sends nothing
// for the objects that an earlier one made, whatever the API server has filled
// into them. A builder that fails here leaves out a default of a field that is
// applied as a whole.
func TestManifestsAreQuietAfterRestart(t *testing.T) {
	for name, spec := range map[string]string{
		"minimal": `{replicas: 6, version: "8.0"}`,
		"Valkey":  `{replicas: 3, shards: 1, engine: Valkey, version: "9.1"}`,
		"storage": `{replicas: 2, storage: {size: 1024Mi, storageClassName: fast, retain: false}}`,
		"no auth": `{replicas: 2, auth: {disabled: true}}`,
		"Secret":  `{replicas: 2, auth: {secretName: mine}}`,
		"Pods": `{replicas: 2, image: "mirror/redis:8.0", imagePullPolicy: Always, imagePullSecrets: [{name: login}],
			config: {maxmemory-policy: allkeys-lru}, resources: {requests: {cpu: 1000m}, limits: {memory: 1024Mi}},
			podLabels: {team: shop}, podAnnotations: {a/b: c}, priorityClassName: high, nodeSelector: {disk: ssd},
			tolerations: [{key: a, operator: Exists, tolerationSeconds: 5, effect: NoExecute}],
			topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}],
			affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}}]}}}`,
		"OpenShift": `{replicas: 2, podSecurityContext: {}}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			cluster := &redisv1.RedisCluster{}
			manifest := fmt.Sprintf("{metadata: {name: quiet, namespace: %s}, spec: %s}", b.owner.Namespace, spec)
			if err := yaml.UnmarshalStrict([]byte(manifest), cluster); err != nil {
				t.Fatalf("read the manifest: %v", err)
			}
			if err := b.admin.Create(context.Background(), cluster); err != nil {
				t.Fatalf("create: %v", err)
			}
			b.owner = cluster
			for _, intent := range children(cluster) {
				b.apply(nil, intent, "PATCH", true)
				b.restart()
				b.apply(b.shown(intent), intent, "", false)
			}
		})
	}
}

// children are the intents for all objects of a cluster but its Secrets.
func children(c *redisv1.RedisCluster) []runtime.ApplyConfiguration {
	out := []runtime.ApplyConfiguration{
		manifests.ConfigMap(c, nil, ""), manifests.HeadlessService(c), manifests.ClientService(c), manifests.NetworkPolicy(c),
	}
	for shard, members := range c.Spec.Members() {
		out = append(out, manifests.StatefulSet(c, shard, members, ""), manifests.PodDisruptionBudget(c, shard))
	}
	return out
}

// shown is the object of an intent as an up-to-date cache shows it.
func (b *bench) shown(intent runtime.ApplyConfiguration) client.Object {
	b.Helper()
	ac, ok := intent.(interface {
		GetName() *string
		GetKind() *string
		GetAPIVersion() *string
	})
	if !ok {
		b.Fatalf("%T has no name", intent)
	}
	obj, err := b.admin.Scheme().New(schema.FromAPIVersionAndKind(*ac.GetAPIVersion(), *ac.GetKind()))
	if err != nil {
		b.Fatalf("make a %s: %v", *ac.GetKind(), err)
	}
	o, ok := obj.(client.Object)
	if !ok {
		b.Fatalf("%T is no object", obj)
	}
	o.SetName(*ac.GetName())
	return b.live(o)
}
