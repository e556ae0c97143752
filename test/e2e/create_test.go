package e2e

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestCreate makes clusters of many shapes from nothing, and looks at all of
// their nodes.
func TestCreate(t *testing.T) {
	sample, err := os.ReadFile("../../config/samples/redis_v1_rediscluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, manifest string }{
		{"six lines", string(sample)},
		{"one node", `{metadata: {name: one}, spec: {replicas: 1}}`},
		{"two nodes", `{metadata: {name: two}, spec: {replicas: 2}}`},
		{"three nodes", `{metadata: {name: three}, spec: {replicas: 3}}`},
		{"four nodes", `{metadata: {name: four}, spec: {replicas: 4}}`},
		{"seven nodes", `{metadata: {name: seven}, spec: {replicas: 7}}`},
		{"shards without replicas", `{metadata: {name: bare}, spec: {replicas: 3, shards: 3}}`},
		{"one shard of four", `{metadata: {name: wide}, spec: {replicas: 4, shards: 1}}`},
		{"Redis 7.0", `{metadata: {name: seventy}, spec: {replicas: 4, version: "7.0"}}`},
		{"Valkey 8.1", `{metadata: {name: valkey}, spec: {replicas: 4, engine: Valkey, version: "8.1"}}`},
		{"Valkey 9.1", `{metadata: {name: valkey}, spec: {replicas: 6, engine: Valkey, version: "9.1"}}`},
		{"storage", `{metadata: {name: stored}, spec: {replicas: 6, storage: {size: 64Mi}}}`},
		{"auth disabled", `{metadata: {name: open}, spec: {replicas: 2, auth: {disabled: true}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			c := u.create(c.manifest)
			u.awaitRunning(c)
			u.awaitWhole(c)
			u.works(c)
			u.persistent(c)
			u.awaitEvent(c, redisv1.EventCreated)
			if !strings.HasPrefix(c.Status.Version, c.Spec.Version+".") {
				u.Errorf("status.version is %q, spec.version %q", c.Status.Version, c.Spec.Version)
			}
		})
	}
}

// persistent: the operator says where the data lives, before it is lost.
func (u *user) persistent(c *redisv1.RedisCluster) {
	u.Helper()
	status, reason := metav1.ConditionTrue, redisv1.ReasonVolumes
	if c.Spec.Storage == nil {
		status, reason = metav1.ConditionFalse, redisv1.ReasonNoStorage
		u.awaitEvent(c, redisv1.ReasonNoStorage)
	}
	u.awaitReason(c, toRun, redisv1.ConditionPersistent, status, reason)
	u.awaitReason(c, toRun, redisv1.ConditionAvailable, metav1.ConditionTrue, redisv1.ReasonSlotsServed)
}

// TestOwnSecret logs in with a password that the user chose, whatever is in it.
func TestOwnSecret(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: "mine"},
		StringData: map[string]string{"password": `p a$$"w'ö\rd%`},
	}
	if err := cluster.Create(u.Context(), secret); err != nil {
		u.Fatal(err)
	}
	c := u.create(`{metadata: {name: own}, spec: {replicas: 2, auth: {secretName: mine}}}`)
	u.awaitRunning(c)
	u.awaitWhole(c)
	u.works(c)
}
