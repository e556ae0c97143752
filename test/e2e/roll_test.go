//go:build full

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// scale does what `kubectl scale` does.
func (u *user) scale(c *redisv1.RedisCluster, nodes int32) {
	u.Helper()
	if output, ok := u.kubectl("scale", "rdc", c.Name, fmt.Sprintf("--replicas=%d", nodes)); !ok {
		u.Fatalf("kubectl scale: %s", output)
	}
}

// phaseIs is a condition: the operator says so about the present spec.
func (u *user) phaseIs(c *redisv1.RedisCluster, phase redisv1.Phase) kube.Condition {
	return func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if c.Status.Phase != phase || c.Status.ObservedGeneration != c.Generation {
			return "phase " + string(c.Status.Phase), nil
		}
		return "", nil
	}
}

// TestUpgrade rolls to the next version with clients writing: nothing is lost, and
// every Pod has been replaced.
func TestUpgrade(t *testing.T) {
	for _, c := range []struct{ name, manifest, to string }{
		{"Redis", `{metadata: {name: orders}, spec: {replicas: 6, version: "7.0", storage: {size: 64Mi}}}`, "8.0"},
		{"Valkey", `{metadata: {name: orders}, spec: {replicas: 3, shards: 1, engine: Valkey, version: "8.1"}}`, "9.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := load(t, c.manifest)
			before := l.pods(l.rc)
			l.edit(l.rc, `{spec: {version: "`+c.to+`"}}`)
			l.awaitEvent(l.rc, redisv1.EventUpdating)
			l.awaitChanged(l.rc)
			l.awaitEvent(l.rc, redisv1.EventHandedOver)
			for name, pod := range l.pods(l.rc) {
				if old := before[name]; old.UID == pod.UID || old.Spec.Containers[0].Image == pod.Spec.Containers[0].Image {
					l.Errorf("%s is still the old Pod", name)
				}
			}
			l.intact()
		})
	}
}

// TestRollStops: a template that does not work stops at the first Pod, and a
// corrected one goes on from there.
func TestRollStops(t *testing.T) {
	t.Parallel()
	l := load(t, `{metadata: {name: orders}, spec: {replicas: 6}}`)
	before := l.pods(l.rc)
	l.edit(l.rc, `{spec: {image: "example.com/nothing:here"}}`)
	l.awaitReason(l.rc, toRun, redisv1.ConditionDegraded, metav1.ConditionTrue, redisv1.ReasonRollStopped, "image")
	same := 0
	for name, pod := range l.pods(l.rc) {
		if before[name].UID == pod.UID {
			same++
		}
	}
	if same != 5 {
		l.Errorf("%d of 6 Pods are still those of before, want 5", same)
	}
	l.edit(l.rc, `{spec: {image: null, podAnnotations: {a: b}}}`)
	l.awaitChanged(l.rc)
	l.intact()
}

// TestLoneShardIsAnnounced: a Pod that is its whole shard is replaced only after
// the status and an Event have said so.
func TestLoneShardIsAnnounced(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.made(`{metadata: {name: one}, spec: {replicas: 2, shards: 2, storage: {size: 64Mi}}}`)
	keys := u.fill(rc)
	u.edit(rc, `{spec: {podAnnotations: {a: b}}}`)
	u.awaitChanged(rc)
	u.Logf("the Event says: %s", u.awaitEvent(rc, redisv1.ReasonInterruptionAhead))
	if lost := u.lost(rc, keys); len(lost) > 0 {
		u.Errorf("the keys of shards %v are lost", lost)
	}
}

// TestConfig: what a server takes while it runs restarts nothing, what it does not
// is rolled, and what it does not know harms nobody.
func TestConfig(t *testing.T) {
	t.Parallel()
	l := load(t, `{metadata: {name: orders}, spec: {replicas: 6}}`)
	before := l.pods(l.rc)
	l.edit(l.rc, `{spec: {config: {maxmemory-policy: allkeys-lru}}}`)
	l.awaitConfig(l.rc, "maxmemory-policy", "allkeys-lru")
	l.awaitChanged(l.rc)
	l.edit(l.rc, `{spec: {config: {nonsense: "1"}}}`)
	l.awaitReason(l.rc, toRun, redisv1.ConditionDegraded, metav1.ConditionTrue, redisv1.ReasonConfigRefused, "nonsense", "Unknown option")
	l.edit(l.rc, `{spec: {config: {nonsense: null}}}`)
	l.awaitChanged(l.rc)
	for name, pod := range l.pods(l.rc) {
		if old := before[name]; old.UID != pod.UID || restarts(&old) != restarts(&pod) {
			l.Errorf("%s was restarted", name)
		}
	}
	l.edit(l.rc, `{spec: {config: {maxmemory-policy: null, tcp-backlog: "300"}}}`)
	l.await(toRun, "Pods are replaced", l.phaseIs(l.rc, redisv1.PhaseUpdating))
	l.awaitChanged(l.rc)
	l.awaitConfig(l.rc, "tcp-backlog", "300")
	l.awaitConfig(l.rc, "maxmemory-policy", "noeviction")
	l.intact()
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, s := range pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

// awaitConfig waits until every node has a directive.
func (u *user) awaitConfig(c *redisv1.RedisCluster, name, want string) {
	u.Helper()
	u.await(toRun, name+" is "+want+" everywhere", func(ctx context.Context) (string, error) {
		for pod, m := range u.members(c) {
			got, err := m.ConfigGet(ctx, name).Result()
			if err != nil || got[name] != want {
				return pod + " has " + got[name], nil
			}
		}
		return "", nil
	})
}
