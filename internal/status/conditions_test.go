package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// alone is a plan to replace the only Pod of a shard.
func alone() topology.Plan {
	return topology.Plan{Actions: []topology.Action{{Kind: topology.Replace, Pod: "c-0-0", Alone: true}}, Why: "c-0-0 is replaced"}
}

// broken is the problem of a Pod that does not start.
func broken(name string) []status.Problem {
	return []status.Problem{{Reason: redisv1.ReasonImagePullFailed, Message: "Pod " + name + ": the image cannot be pulled", Pod: name}}
}

func failed(reason string) []status.Problem {
	return []status.Problem{{Reason: reason, Message: "the server said no"}}
}

func outdated(f *status.Facts, names ...string) {
	for _, name := range names {
		pod(f, name).Outdated = true
	}
}

// surplus makes the last shard one that is not wanted any more.
func surplus(f *status.Facts) { f.Desired.Members = f.Desired.Members[:len(f.Desired.Members)-1] }

// restore is a restore that is at something.
func restore(reason string) status.Restore { return status.Restore{Reason: reason, Message: "r"} }

// TestConditions: every phase, and every reason of Progressing, Degraded and
// Stalled, from three shards of a primary and two replicas.
func TestConditions(t *testing.T) {
	const was, created = redisv1.PhaseRunning, redisv1.PhaseCreating
	tests := []struct {
		name   string
		was    redisv1.Phase
		change func(*redisv1.RedisCluster, *status.Facts)
		phase  redisv1.Phase
		// progressing and degraded are status, reason and a part of the message;
		// stalled is the reason, empty when the condition is not there.
		progressing, degraded, stalled string
	}{
		{"all is well", was, func(*redisv1.RedisCluster, *status.Facts) {}, "Running", "False Settled as the spec asks", "False Healthy", ""},

		{"never made", "", func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Plan: waits(topology.WaitPods)}
		}, "Creating", "True Creating w", "False Forming", ""},
		{"nothing can be made", "", func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Problems: failed(redisv1.ReasonSecretNotFound)}
		}, "Pending", "False Stalled said no", "False Forming", ""},
		{"forming: nothing is lost that never was", created, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-0")
			gone(f, "c-2-1")
			f.Plan = waits(topology.WaitPods)
		}, "Creating", "True Creating w", "False Forming", ""},
		{"forming, and an image is missing", created, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-0")
			f.Problems, f.Plan = broken("c-1-0"), waits(topology.WaitPods)
		}, "Creating", "False Stalled cannot be pulled", "False Forming", ""},
		{"forming, and a person has to look", created, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Plan = waits(topology.WaitPerson)
		}, "Failed", "False Stalled w", "True Unsafe w", "Unsafe"},

		{"the backup is looked at", "", func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Plan: waits(topology.WaitPods), Restore: restore(redisv1.ReasonInspecting)}
		}, "Restoring", "True Restoring w", "False Forming", ""},
		{"the backup cannot be restored", redisv1.PhaseRestoring, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Plan: waits(topology.WaitPods), Restore: restore("BackupDamaged")}
			f.Restore.Failed = true
		}, "Failed", "False Stalled r", "False Forming", "BackupDamaged"},
		{"filled, and not yet let go", redisv1.PhaseRestoring, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Plan, f.Restore = waits(topology.WaitRedis), restore(redisv1.ReasonSeeded)
		}, "Restoring", "True Restoring w", "False Forming", ""},
		{"restored, and slots are on their way to the wanted shards", redisv1.PhaseRestoring, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-2")
			f.Plan, f.Restore = topology.Plan{Actions: []topology.Action{{Kind: topology.MoveSlots}}, Why: "w"}, restore(redisv1.ReasonRestored)
			f.Restore.Done = true
		}, "Restoring", "True MovingSlots w", "False Forming", ""},
		{"restored and whole", redisv1.PhaseRestoring, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Restore = restore(redisv1.ReasonRestored)
			f.Restore.Done = true
		}, "Running", "False Settled", "False Healthy", ""},

		{"a replica is lost", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-2")
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True NodeLost c-1-2", ""},
		{"all replicas of a shard are lost", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-1")
			pod(f, "c-1-2").LinkUp = false
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True ShardWithoutReplica shard 1", ""},
		{"a primary is lost", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-0")
			f.Plan = waits(topology.WaitRedis)
		}, "Recovering", "True Recovering w", "True SlotsNotServed slots 5462-10922", ""},
		{"unknown: a primary does not answer and others reach it", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			pod(f, "c-1-0").Knowledge = topology.Unknown
			f.Plan = waits(topology.WaitRedis)
		}, "Recovering", "True Recovering w", "True NodeLost c-1-0", ""},
		{"unknown: nobody answers", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			for i := range f.Observed.Nodes {
				f.Observed.Nodes[i].Knowledge = topology.Unknown
			}
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True NodeLost c-0-0, c-0-1, c-0-2, c-1-0, c-1-1 and 4 more", ""},
		{"everything is lost", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			for i := range f.Observed.Nodes {
				gone(f, f.Observed.Nodes[i].Pod)
			}
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True SlotsNotServed 0-16383", ""},
		{"the nodes find the cluster down", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			pod(f, "c-0-0").ClusterOK = false
			f.Plan = waits(topology.WaitRedis)
		}, "Recovering", "True Recovering w", "True SlotsNotServed 0-5461", ""},
		{"lost, and a person has to look", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-0")
			f.Plan = waits(topology.WaitPerson)
		}, "Failed", "False Stalled w", "True Unsafe w", "Unsafe"},
		{"lost, and its place is not filled", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-1-2")
			f.Problems, f.Plan = broken("c-1-2"), waits(topology.WaitPods)
		}, "Recovering", "False Stalled cannot be pulled", "True NodeLost c-1-2", ""},
		{"lost while the cluster scales", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			added(f, 0)
			gone(f, "c-1-2")
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True NodeLost c-0-3", ""},
		{"lost in another shard than the one that rolls", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			gone(f, "c-0-1")
			gone(f, "c-1-2")
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True NodeLost c-0-1, c-1-2", ""},
		{"lost before a roll, which waits", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			gone(f, "c-1-2")
			f.Plan = waits(topology.WaitPods)
		}, "Recovering", "True Recovering w", "True NodeLost c-1-2", ""},
		{"recovering until all are back, whatever else there is to do", redisv1.PhaseRecovering, func(_ *redisv1.RedisCluster, f *status.Facts) {
			surplus(f)
			outdated(f, "c-0-0")
			pod(f, "c-1-2").LinkUp = false
			f.Plan = waits(topology.WaitRedis)
		}, "Recovering", "True Recovering w", "True NodeLost c-1-2", ""},
		{"all are back, and what else there is to do goes on", redisv1.PhaseRecovering, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			f.Plan = acts(topology.Replace)
		}, "Updating", "True Updating w", "False Healthy", ""},

		{"slots move", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			surplus(f)
			f.Plan = acts(topology.MoveSlots)
		}, "Scaling", "True MovingSlots 5461 slots are still to be moved: w", "False Healthy", ""},
		{"new replicas have no Pods yet", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			added(f, 0)
			added(f, 1)
			f.Plan = waits(topology.WaitPods)
		}, "Scaling", "True Scaling w", "False Healthy", ""},
		{"a new shard has no Pods yet", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			added(f, 3)
			added(f, 3)
			f.Plan = waits(topology.WaitPods)
		}, "Scaling", "True Scaling w", "False Healthy", ""},
		{"a new replica syncs", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			pod(f, "c-2-2").LinkUp = false
			f.Plan = waits(topology.WaitRedis)
		}, "Scaling", "True Scaling w", "False Healthy", ""},
		{"the only replica of a shard is a new one and syncs", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = shaped(3, 2)
			pod(f, "c-2-1").LinkUp = false
			f.Plan = waits(topology.WaitRedis)
		}, "Scaling", "True Scaling w", "False Healthy", ""},
		{"a replica is not wanted any more", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Desired.Members[2] = 2
			f.Plan = acts(topology.Remove)
		}, "Scaling", "True Scaling w", "False Healthy", ""},
		{"a new Pod finds no room", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			added(f, 0)
			f.Plan, f.Problems = waits(topology.WaitPods), []status.Problem{{Reason: redisv1.ReasonUnschedulable, Message: "no room", Pod: "c-0-3"}}
		}, "Scaling", "False Stalled no room", "True Blocked no room", ""},
		{"a server refuses to move slots", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			surplus(f)
			f.Plan, f.Problems = acts(topology.MoveSlots), failed(redisv1.ReasonMigrationFailed)
		}, "Scaling", "False Stalled said no", "True MigrationFailed said no", ""},

		{"Pods are outdated", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0", "c-0-2", "c-1-0")
			f.Plan = acts(topology.Replace)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"an outdated Pod ends, and the status does not say so yet", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0", "c-0-2")
			pod(f, "c-0-2").Ending = true
			f.Plan = waits(topology.WaitPods)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"a replaced Pod is away", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			gone(f, "c-0-2")
			f.Plan = waits(topology.WaitPods)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"the last replaced Pod is away", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-2-0")
			pod(f, "c-2-1").Primary, pod(f, "c-2-1").Follows, pod(f, "c-2-1").Slots = true, "", topology.AllSlots.Split(3)[2]
			pod(f, "c-2-2").Follows = "id-2-1"
			f.Plan = waits(topology.WaitPods)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"a shard has another primary and its members follow", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			pod(f, "c-0-0").Slots = nil
			pod(f, "c-0-1").Primary, pod(f, "c-0-1").Follows, pod(f, "c-0-1").Slots = true, "", topology.AllSlots.Split(3)[0]
			f.Plan = acts(topology.Replicate)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"in the middle of a hand-over neither side owns the slots", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			pod(f, "c-0-0").Slots, pod(f, "c-0-0").Primary = nil, false
			f.Observed.Asked = map[string]topology.Asked{"id-0-1": {Kind: topology.Handover}}
			f.Plan = waits(topology.WaitRedis)
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"a hand-over that is over its time explains nothing", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			pod(f, "c-0-0").Slots, pod(f, "c-0-0").Primary = nil, false
			f.Observed.Asked = map[string]topology.Asked{"id-0-1": {Kind: topology.Handover, Due: true}}
			f.Plan = waits(topology.WaitRedis)
		}, "Recovering", "True Recovering w", "True SlotsNotServed 0-5461", ""},
		{"a Pod of the new template does not come up", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			gone(f, "c-0-2")
			f.Plan, f.Problems = waits(topology.WaitPods), broken("c-0-2")
		}, "Updating", "False Stalled cannot be pulled", "True RollStopped Pod c-0-2: the image", ""},
		{"an outdated Pod that does not come up is replaced", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			gone(f, "c-0-2")
			outdated(f, "c-0-0", "c-0-2")
			f.Plan, f.Problems = acts(topology.Replace), broken("c-0-2")
		}, "Updating", "True Updating w", "True Blocked Pod c-0-2: the image", ""},
		{"a refused directive", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Problems = failed(redisv1.ReasonConfigRefused)
		}, "Updating", "False Stalled said no", "True ConfigRefused said no", "ConfigRefused"},
		{"a refused directive does not stop the rest", redisv1.PhaseScaling, func(_ *redisv1.RedisCluster, f *status.Facts) {
			surplus(f)
			f.Plan, f.Problems = waits(topology.WaitPods), failed(redisv1.ReasonConfigRefused)
		}, "Scaling", "True Scaling w", "True ConfigRefused said no", "ConfigRefused"},
		{"volumes that cannot grow", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Problems = failed(redisv1.ReasonStorageNotExpandable)
		}, "Updating", "False Stalled said no", "True StorageNotExpandable said no", "StorageNotExpandable"},
		{"a Secret is gone under a cluster that runs", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Problems = failed(redisv1.ReasonSecretNotFound)
		}, "Updating", "False Stalled said no", "True Blocked said no", ""},
		{"a stranger takes part", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			f.Strangers, f.Plan = []string{"0123"}, waits(topology.WaitRedis)
		}, "Running", "False Settled", "True UnknownNode 0123", ""},

		{"the only Pod of a shard is about to be replaced", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = shaped(3, 1)
			outdated(f, "c-0-0")
			f.Plan = alone()
		}, "Updating", "True Updating", "True InterruptionAhead c-0-0 is replaced", ""},
		{"it is announced also when something else is wrong", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = shaped(3, 1)
			outdated(f, "c-0-0")
			f.Plan, f.Problems = alone(), failed(redisv1.ReasonConfigRefused)
		}, "Updating", "True Updating", "True InterruptionAhead c-0-0 is replaced", "ConfigRefused"},
		{"in a cluster that is being made too, because the replacement waits for it", created, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = shaped(3, 1)
			outdated(f, "c-0-0")
			f.Plan = alone()
		}, "Creating", "True Creating", "True InterruptionAhead c-0-0 is replaced", ""},
		{"while the operator is paused nothing is ahead", was, func(c *redisv1.RedisCluster, f *status.Facts) {
			*f, c.Spec.Paused = shaped(3, 1), true
			outdated(f, "c-0-0")
			f.Plan = alone()
		}, "Paused", "False Paused", "False Healthy", ""},

		{"paused and whole", redisv1.PhasePaused, func(c *redisv1.RedisCluster, _ *status.Facts) { c.Spec.Paused = true },
			"Paused", "False Settled", "False Healthy", ""},
		{"paused, and a node is lost", redisv1.PhasePaused, func(c *redisv1.RedisCluster, f *status.Facts) {
			c.Spec.Paused = true
			gone(f, "c-1-2")
			f.Plan = waits(topology.WaitPods)
		}, "Paused", "False Paused", "True NodeLost c-1-2", ""},
		{"a call fails after the look", redisv1.PhaseUpdating, func(_ *redisv1.RedisCluster, f *status.Facts) {
			outdated(f, "c-0-0")
			f.Plan, f.Err = acts(topology.Replace), errors.New("boom")
		}, "Updating", "True Updating w", "False Healthy", ""},
		{"a call fails before the look: what was said stays, and is nothing here", was, func(_ *redisv1.RedisCluster, f *status.Facts) {
			*f = status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Err: errors.New("boom")}
		}, "Running", "Unknown OperatorError boom", "Unknown OperatorError boom", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, f := cluster(), shaped(3, 3)
			c.Status.Phase = tt.was
			tt.change(c, &f)
			s := status.Compute(c, f)
			if s.Phase != tt.phase {
				t.Errorf("phase %s, want %s", s.Phase, tt.phase)
			}
			if got := said(s, redisv1.ConditionProgressing); !matches(got, tt.progressing) {
				t.Errorf("Progressing %q, want %q", got, tt.progressing)
			}
			if got := said(s, redisv1.ConditionDegraded); !matches(got, tt.degraded) {
				t.Errorf("Degraded %q, want %q", got, tt.degraded)
			}
			if got := meta.FindStatusCondition(s.Conditions, redisv1.ConditionStalled); (got != nil) != (tt.stalled != "") ||
				got != nil && (got.Reason != tt.stalled || got.Status != metav1.ConditionTrue) {
				t.Errorf("Stalled %v, want reason %q", got, tt.stalled)
			}
			for _, cond := range s.Conditions {
				if cond.Reason == "" || cond.Message == "" || cond.ObservedGeneration != c.Generation {
					t.Errorf("the API server, or who waits, takes no %+v", cond)
				}
			}
		})
	}
}

// said is a condition in words.
func said(s redisv1.RedisClusterStatus, typ string) string {
	c := meta.FindStatusCondition(s.Conditions, typ)
	if c == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// matches tells whether a condition has the status and reason of want, and the rest
// of want in its message.
func matches(got, want string) bool {
	g, w := strings.SplitN(got, " ", 3), append(strings.SplitN(want, " ", 3), "")
	return g[0] == w[0] && g[1] == w[1] && strings.Contains(g[2], w[2])
}

// TestAFailedLookChangesNothing: a pass that ended before it saw a node says so in
// Ready and leaves all else.
func TestAFailedLookChangesNothing(t *testing.T) {
	c, f := cluster(), shaped(3, 3)
	gone(&f, "c-1-2")
	f.Plan = waits(topology.WaitPods)
	c.Status = status.Compute(c, f)
	s := status.Compute(c, status.Facts{Desired: f.Desired, Observed: &topology.Observed{}, Selector: f.Selector, Err: errors.New("boom")})
	for _, typ := range []string{redisv1.ConditionReady, redisv1.ConditionAvailable} {
		meta.RemoveStatusCondition(&c.Status.Conditions, typ)
		meta.RemoveStatusCondition(&s.Conditions, typ)
	}
	if diff := cmp.Diff(c.Status, s); diff != "" {
		t.Errorf("it changes\n%s", diff)
	}
}

// TestAShardThatGoesIsShown until it is gone.
func TestAShardThatGoesIsShown(t *testing.T) {
	c, f := cluster(), shaped(3, 2)
	surplus(&f)
	s := status.Compute(c, f)
	want := redisv1.ShardStatus{Index: 2, Primary: "c-2-0", Slots: "10923-16383", ReadyReplicas: 2}
	if len(s.ShardStatuses) != 3 || s.ShardStatuses[2] != want || s.Shards != 3 || s.ReadyReplicas != 6 {
		t.Errorf("%d ready in %d shards: %+v", s.ReadyReplicas, s.Shards, s.ShardStatuses)
	}
}

// TestRestoringServesNothing: all slots have an owner, and clients are told to wait.
func TestRestoringServesNothing(t *testing.T) {
	c, f := cluster(), shaped(3, 3)
	f.Restore = restore(redisv1.ReasonSeeded)
	s := status.Compute(c, f)
	for typ, want := range map[string]string{
		redisv1.ConditionAvailable: "False Restoring", redisv1.ConditionReady: "False Seeded", redisv1.ConditionRestored: "False Seeded",
	} {
		if got := said(s, typ); !matches(got, want) {
			t.Errorf("%s %q, want %q", typ, got, want)
		}
	}
	f.Restore.Done, f.Restore.Reason = true, redisv1.ReasonRestored
	if s = status.Compute(c, f); !matches(said(s, redisv1.ConditionRestored), "True Restored") || !matches(said(s, redisv1.ConditionReady), "True Converged") {
		t.Errorf("%+v", s.Conditions)
	}
}
