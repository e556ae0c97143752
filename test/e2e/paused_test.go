package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// TestPaused: while a cluster is paused the operator changes nothing, neither in
// Kubernetes nor in Redis, and still says what it sees.
func TestPaused(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.made(`{metadata: {name: orders}, spec: {replicas: 3}}`)
	keys := u.fill(rc)
	u.edit(rc, `spec: {paused: true}`)
	u.await(toRun, "it is paused", func(ctx context.Context) (string, error) {
		err := cluster.Get(ctx, keyOf(rc), rc)
		if rc.Status.Phase == redisv1.PhasePaused && rc.Status.ObservedGeneration == rc.Generation {
			return "", err
		}
		return "phase " + string(rc.Status.Phase), err
	})
	u.awaitEvent(rc, redisv1.EventPaused)

	changes := u.writesToTopology(rc)
	victim := u.victim(rc, false)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: rc.Name}}
	u.remove(service)
	u.remove(&victim)
	u.await(toHeal, "the StatefulSet's own controller brings the Pod back", func(ctx context.Context) (string, error) {
		pods, err := cluster.Pods(ctx, rc)
		for i := range pods {
			if pods[i].Name == victim.Name && pods[i].UID != victim.UID && kube.Ready(&pods[i]) {
				return "", err
			}
		}
		return "it is not back", err
	})
	u.awaitReason(rc, toRun, redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPaused)
	if rc.Status.Phase != redisv1.PhasePaused || rc.Status.ReadyReplicas != 2 {
		u.Errorf("phase %s with %d ready, want Paused with 2", rc.Status.Phase, rc.Status.ReadyReplicas)
	}
	// The operator looks at a cluster at rest every 20 s.
	u.hold(25*time.Second, "nothing is changed", func(ctx context.Context) (string, error) {
		if missing, err := cluster.Gone(service)(ctx); missing == "" || err != nil {
			return u.outside(ctx, rc, victim.Name)
		}
		return "the Service is back", nil
	})
	if now := u.writesToTopology(rc); now != changes {
		u.Errorf("the nodes were told to change: the counts of such commands were %q and are %q", changes, now)
	}

	u.edit(rc, `spec: {paused: false}`)
	u.awaitRunning(rc)
	u.awaitWhole(rc)
	if err := cluster.Get(u.Context(), keyOf(service), service); err != nil {
		u.Errorf("get the Service that had been deleted: %v", err)
	}
	if lost := u.lost(rc, keys); len(lost) > 0 {
		u.Errorf("the keys of shards %s are lost", lost)
	}
	u.works(rc)
}

// outside tells whether a node still knows nobody.
func (u *user) outside(ctx context.Context, c *redisv1.RedisCluster, name string) (string, error) {
	all, missing, err := members(ctx, c)
	defer hangUp(all)
	if err != nil || missing != "" {
		return missing, err
	}
	if n := len(all[name].view); n != 1 {
		return fmt.Sprintf("%s knows %d nodes", name, n), nil
	}
	return "", nil
}

// writesToTopology are the calls, so far, of all commands that change a cluster,
// on the nodes that have not been restarted.
func (u *user) writesToTopology(c *redisv1.RedisCluster) string {
	u.Helper()
	primary := u.members(c)[c.Status.ShardStatuses[0].Primary]
	stats, err := primary.Info(u.Context(), "commandstats").Result()
	if err != nil {
		u.Fatalf("ask %s: %v", primary.pod.Name, err)
	}
	var counts []string
	for line := range strings.Lines(stats) {
		for _, command := range []string{"meet", "forget", "replicate", "failover", "addslots", "addslotsrange", "delslotsrange", "setslot", "bumpepoch", "set-config-epoch", "reset"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_cluster|"+command+":"); ok {
				calls, _, _ := strings.Cut(rest, ",")
				counts = append(counts, command+" "+calls)
			}
		}
	}
	return strings.Join(counts, ", ")
}
