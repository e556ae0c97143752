package status_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// healthy is a cluster of two shards of a primary and a replica, all in order.
func healthy() status.Facts {
	o := &topology.Observed{}
	for i, slots := range topology.AllSlots.Split(2) {
		primary := fmt.Sprintf("id-%d-0", i)
		o.Nodes = append(o.Nodes,
			topology.Node{Pod: fmt.Sprintf("c-%d-0", i), Shard: i, PodReady: true, Knowledge: topology.Answered,
				ID: primary, Primary: true, ClusterOK: true, Slots: slots},
			topology.Node{Pod: fmt.Sprintf("c-%d-1", i), Shard: i, Ordinal: 1, PodReady: true, Knowledge: topology.Answered,
				ID: fmt.Sprintf("id-%d-1", i), ClusterOK: true, Follows: primary, LinkUp: true})
	}
	return status.Facts{
		Desired: topology.Desired{Members: []int{2, 2}}, Observed: o, Pods: 4,
		ServedVersion: "8.0.6", Selector: "a=b", Now: metav1.NewTime(time.Unix(1000, 0)),
	}
}

func cluster() *redisv1.RedisCluster {
	replicas := int32(4)
	return &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 3},
		Spec: redisv1.RedisClusterSpec{Replicas: &replicas}, Status: redisv1.RedisClusterStatus{Phase: redisv1.PhaseRunning}}
}

func TestCompute(t *testing.T) {
	tests := []struct {
		name      string
		change    func(*redisv1.RedisCluster, *status.Facts)
		phase     redisv1.Phase
		ready     int32
		reason    string // of Ready
		available metav1.ConditionStatus
	}{
		{"converged", func(*redisv1.RedisCluster, *status.Facts) {},
			redisv1.PhaseRunning, 4, redisv1.ReasonConverged, metav1.ConditionTrue},
		{"a replica without link is not ready", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[1].LinkUp = false
			f.Plan = topology.Plan{Wait: topology.WaitRedis, Why: "w"}
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonWaiting, metav1.ConditionTrue},
		{"a replica of another shard's primary is not ready", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[1].Follows = "id-1-0"
			f.Plan = topology.Plan{Actions: []topology.Action{{}}, Why: "w"}
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonForming, metav1.ConditionTrue},
		{"an unready Pod is not ready although Redis is in order", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].PodReady = false
			f.Plan = topology.Plan{Wait: topology.WaitPods, Why: "w"}
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonPodsNotReady, metav1.ConditionTrue},
		{"a primary that does not answer makes availability unknown, not false", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0] = topology.Node{Pod: "c-0-0", PodReady: true}
			f.Plan = topology.Plan{Wait: topology.WaitPods, Why: "w"}
		}, redisv1.PhaseRecovering, 2, redisv1.ReasonPodsNotReady, metav1.ConditionUnknown},
		{"a primary without slots makes the cluster unavailable", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].Slots = nil
			f.Plan = topology.Plan{Actions: []topology.Action{{}}, Why: "w"}
		}, redisv1.PhaseRecovering, 2, redisv1.ReasonForming, metav1.ConditionFalse},
		{"never served: still creating", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].ClusterOK, f.ServedVersion = false, ""
			f.Plan = topology.Plan{Wait: topology.WaitRedis, Why: "w"}
		}, redisv1.PhaseCreating, 3, redisv1.ReasonWaiting, metav1.ConditionFalse},
		{"serving for the first time and not whole yet: still creating", func(c *redisv1.RedisCluster, f *status.Facts) {
			c.Status.Phase, f.Observed.Nodes[1].LinkUp = redisv1.PhaseCreating, false
			f.Plan = topology.Plan{Wait: topology.WaitRedis, Why: "w"}
		}, redisv1.PhaseCreating, 3, redisv1.ReasonWaiting, metav1.ConditionTrue},
		{"a person has to look", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].Slots = nil
			f.Plan = topology.Plan{Wait: topology.WaitPerson, Why: "w"}
		}, redisv1.PhaseFailed, 2, redisv1.ReasonUnsafe, metav1.ConditionFalse},
		{"a problem before anything exists", func(c *redisv1.RedisCluster, f *status.Facts) {
			c.Status.Phase = ""
			f.Observed, f.Pods, f.ServedVersion = &topology.Observed{}, 0, ""
			f.Problems = []status.Problem{{Reason: redisv1.ReasonSecretNotFound, Message: "m"}}
		}, redisv1.PhasePending, 0, redisv1.ReasonSecretNotFound, metav1.ConditionFalse},
		{"paused and whole", func(c *redisv1.RedisCluster, _ *status.Facts) { c.Spec.Paused = true },
			redisv1.PhasePaused, 4, redisv1.ReasonConverged, metav1.ConditionTrue},
		{"paused and not whole", func(c *redisv1.RedisCluster, f *status.Facts) {
			c.Spec.Paused, f.Observed.Nodes[1].LinkUp = true, false
			f.Plan = topology.Plan{Wait: topology.WaitRedis, Why: "w"}
		}, redisv1.PhasePaused, 3, redisv1.ReasonPaused, metav1.ConditionTrue},
		{"an error is never Running", func(_ *redisv1.RedisCluster, f *status.Facts) { f.Err = errors.New("boom") },
			redisv1.PhaseRecovering, 4, redisv1.ReasonOperatorError, metav1.ConditionTrue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, f := cluster(), healthy()
			tt.change(c, &f)
			s := status.Compute(c, f)
			ready := meta.FindStatusCondition(s.Conditions, redisv1.ConditionReady)
			available := meta.FindStatusCondition(s.Conditions, redisv1.ConditionAvailable)
			if s.Phase != tt.phase || s.ReadyReplicas != tt.ready || ready.Reason != tt.reason || available.Status != tt.available {
				t.Errorf("phase %s, ready %d, Ready reason %s, Available %s; want %s, %d, %s, %s",
					s.Phase, s.ReadyReplicas, ready.Reason, available.Status, tt.phase, tt.ready, tt.reason, tt.available)
			}
			if (ready.Status == metav1.ConditionTrue) != (tt.reason == redisv1.ReasonConverged) {
				t.Errorf("Ready is %s with reason %s", ready.Status, ready.Reason)
			}
		})
	}
}

func TestComputeIsStable(t *testing.T) {
	c, f := cluster(), healthy()
	c.Status = status.Compute(c, f)
	f.Now = metav1.NewTime(time.Unix(2000, 0))
	if diff := cmp.Diff(c.Status, status.Compute(c, f)); diff != "" {
		t.Errorf("a second pass over the same facts changes the status:\n%s", diff)
	}
}

func TestNameConflictComesAndGoes(t *testing.T) {
	c, f := cluster(), healthy()
	f.Problems = []status.Problem{{Reason: redisv1.ReasonNameConflict, Message: "Service c is not ours"}}
	c.Status = status.Compute(c, f)
	if !meta.IsStatusConditionTrue(c.Status.Conditions, redisv1.ConditionNameConflict) {
		t.Fatal("the conflict is not a condition")
	}
	f.Problems, f.Err = nil, errors.New("boom")
	if c.Status = status.Compute(c, f); !meta.IsStatusConditionTrue(c.Status.Conditions, redisv1.ConditionNameConflict) {
		t.Error("a failed pass, which did not look, removed the conflict")
	}
	f.Err = nil
	if s := status.Compute(c, f); meta.FindStatusCondition(s.Conditions, redisv1.ConditionNameConflict) != nil {
		t.Error("the conflict stays after it has gone")
	}
}

func TestHigherVersion(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"", "8.0.6", "8.0.6"}, {"8.0.6", "", "8.0.6"}, {"8.0.6", "7.0.15", "8.0.6"}, {"7.0.15", "8.0.6", "8.0.6"},
		{"8.0.9", "8.0.10", "8.0.10"}, {"8.0.10", "8.0.9", "8.0.10"}, {"8.0", "8.0.1", "8.0.1"}, {"10.0.0", "9.1.2", "10.0.0"}, {"", "", ""},
	} {
		if got := status.HigherVersion(tt.a, tt.b); got != tt.want {
			t.Errorf("HigherVersion(%q, %q) = %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}
