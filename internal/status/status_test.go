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
func healthy() status.Facts { return shaped(2, 2) }

// shaped is a cluster of so many shards of so many members, all in order.
func shaped(shards, members int) status.Facts {
	o := &topology.Observed{}
	f := status.Facts{Observed: o, ServedVersion: "8.0.6", Selector: "a=b", Now: metav1.NewTime(time.Unix(1000, 0))}
	for shard, slots := range topology.AllSlots.Split(shards) {
		f.Desired.Members = append(f.Desired.Members, members)
		for ordinal := range members {
			n := topology.Node{
				Pod: fmt.Sprintf("c-%d-%d", shard, ordinal), Shard: shard, Ordinal: ordinal, IP: fmt.Sprintf("10.0.%d.%d", shard, ordinal+1),
				PodReady: true, Knowledge: topology.Answered, ID: fmt.Sprintf("id-%d-%d", shard, ordinal), ClusterOK: true,
			}
			if ordinal == 0 {
				n.Primary, n.Slots = true, slots
			} else {
				n.Follows, n.LinkUp = fmt.Sprintf("id-%d-0", shard), true
			}
			o.Nodes = append(o.Nodes, n)
		}
	}
	for i := range o.Nodes {
		for j := range o.Nodes {
			if m := &o.Nodes[j]; i != j {
				o.Nodes[i].Peers = append(o.Nodes[i].Peers, topology.Peer{ID: m.ID, IP: m.IP, Follows: m.Follows, Slots: m.Slots})
			}
		}
	}
	f.Pods = len(o.Nodes)
	return f
}

// pod finds a node of the facts.
func pod(f *status.Facts, name string) *topology.Node {
	for i := range f.Observed.Nodes {
		if f.Observed.Nodes[i].Pod == name {
			return &f.Observed.Nodes[i]
		}
	}
	panic("no Pod " + name)
}

// gone has a Pod lost: nothing runs in its place.
func gone(f *status.Facts, name string) {
	n := pod(f, name)
	*n = topology.Node{Pod: n.Pod, Shard: n.Shard, Ordinal: n.Ordinal, Idle: true}
}

// added wants another node, which does not exist yet.
func added(f *status.Facts, shard int) {
	for shard >= len(f.Desired.Members) {
		f.Desired.Members = append(f.Desired.Members, 0)
	}
	n := topology.Node{Shard: shard, Ordinal: f.Desired.Members[shard], Idle: true}
	n.Pod = fmt.Sprintf("c-%d-%d", shard, n.Ordinal)
	f.Desired.Members[shard]++
	f.Observed.Nodes = append(f.Observed.Nodes, n)
}

// waits is a plan that does.
func waits(w topology.Wait) topology.Plan { return topology.Plan{Wait: w, Why: "w"} }

// acts is a plan of one action.
func acts(k topology.Kind) topology.Plan {
	return topology.Plan{Actions: []topology.Action{{Kind: k}}, Why: "w"}
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
			f.Plan = waits(topology.WaitRedis)
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonWaiting, metav1.ConditionTrue},
		{"a replica of another shard's primary is not ready", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[1].Follows = "id-1-0"
			f.Plan = acts(topology.Replicate)
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonForming, metav1.ConditionTrue},
		{"an unready Pod is not ready although Redis is in order", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].PodReady = false
			f.Plan = waits(topology.WaitPods)
		}, redisv1.PhaseRecovering, 3, redisv1.ReasonPodsNotReady, metav1.ConditionTrue},
		{"a primary that does not answer makes availability unknown, not false", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0] = topology.Node{Pod: "c-0-0", PodReady: true}
			f.Plan = waits(topology.WaitPods)
		}, redisv1.PhaseRecovering, 2, redisv1.ReasonPodsNotReady, metav1.ConditionUnknown},
		{"a primary without slots makes the cluster unavailable", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].Slots = nil
			f.Plan = acts(topology.Replicate)
		}, redisv1.PhaseRecovering, 2, redisv1.ReasonForming, metav1.ConditionFalse},
		{"never served: still creating", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].ClusterOK, f.ServedVersion = false, ""
			f.Plan = waits(topology.WaitRedis)
		}, redisv1.PhaseCreating, 3, redisv1.ReasonWaiting, metav1.ConditionFalse},
		{"serving for the first time and not whole yet: still creating", func(c *redisv1.RedisCluster, f *status.Facts) {
			c.Status.Phase, f.Observed.Nodes[1].LinkUp = redisv1.PhaseCreating, false
			f.Plan = waits(topology.WaitRedis)
		}, redisv1.PhaseCreating, 3, redisv1.ReasonWaiting, metav1.ConditionTrue},
		{"a person has to look", func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Observed.Nodes[0].Slots = nil
			f.Plan = waits(topology.WaitPerson)
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
			f.Plan = waits(topology.WaitRedis)
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
