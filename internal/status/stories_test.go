package status_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// story lets a cluster pass through steps, each of which changes the facts, and
// gives what its status says along the way: phase and reason of Degraded, once for
// each change.
func story(t *testing.T, f status.Facts, steps ...func(*status.Facts)) []string {
	t.Helper()
	c := cluster()
	var told []string
	for _, step := range append([]func(*status.Facts){func(*status.Facts) {}}, steps...) {
		step(&f)
		c.Status = status.Compute(c, f)
		line := fmt.Sprintf("%s %s", c.Status.Phase, meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionDegraded).Reason)
		if len(told) == 0 || told[len(told)-1] != line {
			told = append(told, line)
		}
	}
	return told
}

// TestARollIsOnePhase: whatever is away for a moment, from the first outdated Pod to
// the last new one.
func TestARollIsOnePhase(t *testing.T) {
	var before topology.Node
	f := shaped(2, 2)
	got := story(t, f,
		func(f *status.Facts) { outdated(f, "c-0-0", "c-0-1"); f.Plan = acts(topology.Replace) },
		func(f *status.Facts) { pod(f, "c-0-1").Ending, f.Plan = true, waits(topology.WaitPods) },
		func(f *status.Facts) { before = *pod(f, "c-0-1"); gone(f, "c-0-1") },
		func(f *status.Facts) { n := pod(f, "c-0-1"); n.Knowledge, n.Idle = topology.Blank, false },
		func(f *status.Facts) {
			n := pod(f, "c-0-1")
			*n = before
			n.ID, n.Ending, n.Outdated, n.LinkUp = "new", false, false, false
		},
		func(f *status.Facts) { pod(f, "c-0-1").LinkUp = true; f.Plan = acts(topology.Handover) },
		func(f *status.Facts) { // asked for, and each node was looked at in the other half of it
			pod(f, "c-0-0").Primary, pod(f, "c-0-0").Slots, pod(f, "c-0-0").Follows = false, nil, "new"
			f.Observed.Asked = map[string]topology.Asked{"new": {Kind: topology.Handover}}
			pod(f, "c-0-1").Peers[0] = topology.Peer{ID: "id-0-0", Slots: topology.AllSlots.Split(2)[0]}
			f.Plan = waits(topology.WaitRedis)
		},
		func(f *status.Facts) {
			n := pod(f, "c-0-1")
			n.Primary, n.Follows, n.Slots, f.Observed.Asked = true, "", topology.AllSlots.Split(2)[0], nil
		},
		func(f *status.Facts) { pod(f, "c-0-0").LinkUp = true; f.Plan = acts(topology.Replace) },
		func(f *status.Facts) { before = *pod(f, "c-0-0"); gone(f, "c-0-0"); f.Plan = waits(topology.WaitPods) },
		func(f *status.Facts) {
			*pod(f, "c-0-0") = before
			pod(f, "c-0-0").Outdated, f.Plan = false, topology.Plan{}
		},
	)
	if diff := cmp.Diff([]string{"Running Healthy", "Updating Healthy", "Running Healthy"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestALoneMembersRollIsAnnounced: the announcement stands while the shard is away,
// and that is all that is said, also when the others find the cluster down by it.
func TestALoneMembersRollIsAnnounced(t *testing.T) {
	var before topology.Node
	got := story(t, shaped(2, 1),
		func(f *status.Facts) { outdated(f, "c-0-0"); f.Plan = alone() },
		func(f *status.Facts) { pod(f, "c-0-0").Ending, f.Plan = true, waits(topology.WaitPods) },
		func(f *status.Facts) { before = *pod(f, "c-0-0"); gone(f, "c-0-0"); pod(f, "c-1-0").ClusterOK = false },
		func(f *status.Facts) {
			*pod(f, "c-0-0") = before
			pod(f, "c-0-0").Outdated, pod(f, "c-0-0").Ending, pod(f, "c-0-0").PodReady = false, false, false
		},
		func(f *status.Facts) {
			pod(f, "c-0-0").PodReady, pod(f, "c-1-0").ClusterOK, f.Plan = true, true, topology.Plan{}
		},
	)
	if diff := cmp.Diff([]string{"Running Healthy", "Updating InterruptionAhead", "Running Healthy"}, got); diff != "" {
		t.Error(diff)
	}
	got = story(t, shaped(2, 1),
		func(f *status.Facts) { outdated(f, "c-0-0"); f.Plan = alone() },
		func(f *status.Facts) {
			gone(f, "c-0-0")
			f.Plan, f.Problems = waits(topology.WaitPods), broken("c-0-0")
		},
	)
	if diff := cmp.Diff([]string{"Running Healthy", "Updating InterruptionAhead", "Updating RollStopped"}, got); diff != "" {
		t.Errorf("the new Pod does not come up:\n%s", diff)
	}
}

// TestScalingIsOnePhase: out by replicas and a shard, and in again.
func TestScalingIsOnePhase(t *testing.T) {
	wanted := shaped(3, 2)
	got := story(t, shaped(2, 2),
		func(f *status.Facts) { added(f, 2); added(f, 2); f.Plan = waits(topology.WaitPods) },
		func(f *status.Facts) { pod(f, "c-2-0").Knowledge, pod(f, "c-2-0").Idle = topology.Blank, false },
		func(f *status.Facts) { // met, and owns nothing
			*pod(f, "c-2-0"), *pod(f, "c-2-1") = *pod(&wanted, "c-2-0"), *pod(&wanted, "c-2-1")
			pod(f, "c-2-0").Slots, pod(f, "c-2-1").LinkUp = nil, false
		},
		func(f *status.Facts) { pod(f, "c-2-1").LinkUp = true; f.Plan = acts(topology.MoveSlots) },
		func(f *status.Facts) { // half way
			first := &pod(f, "c-0-0").Slots
			pod(f, "c-2-0").Slots = topology.Slots{{First: 0, Last: 0}}
			*first = first.Minus(pod(f, "c-2-0").Slots)
		},
		func(f *status.Facts) { f.Observed, f.Plan = wanted.Observed, topology.Plan{} },
		func(f *status.Facts) { f.Desired.Members = []int{2, 2}; f.Plan = acts(topology.MoveSlots) },
		func(f *status.Facts) {
			f.Observed = shaped(2, 2).Observed
			f.Observed.Nodes = append(f.Observed.Nodes, topology.Node{Pod: "c-2-0", Shard: 2, Ending: true})
		},
		func(f *status.Facts) { f.Observed = shaped(2, 2).Observed; f.Plan = waits(topology.WaitRedis) },
	)
	if diff := cmp.Diff([]string{"Running Healthy", "Scaling Healthy", "Running Healthy", "Scaling Healthy", "Running Healthy"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestALossIsOnePhase: from the end of a primary until its Pod is a replica in sync.
func TestALossIsOnePhase(t *testing.T) {
	half := topology.AllSlots.Split(2)[0]
	got := story(t, shaped(2, 2),
		func(f *status.Facts) { gone(f, "c-0-0"); f.Plan = acts(topology.Force) },
		func(f *status.Facts) {
			n := pod(f, "c-0-1")
			n.Primary, n.Follows, n.Slots, f.Plan = true, "", half, waits(topology.WaitPods)
		},
		func(f *status.Facts) { // a new node, which nobody has met; the past is forgotten
			*pod(f, "c-0-0") = topology.Node{Pod: "c-0-0", IP: "10.9.9.9", PodReady: true, Knowledge: topology.Answered, ID: "new", Primary: true, ClusterOK: true}
			for i := range f.Observed.Nodes {
				f.Observed.Nodes[i].Peers = nil
			}
		},
		func(f *status.Facts) { n := pod(f, "c-0-0"); n.Primary, n.Follows = false, "id-0-1" },
		func(f *status.Facts) { pod(f, "c-0-0").LinkUp, f.Plan = true, topology.Plan{} },
	)
	if diff := cmp.Diff([]string{"Running Healthy", "Recovering SlotsNotServed", "Recovering ShardWithoutReplica", "Running Healthy"}, got); diff != "" {
		t.Error(diff)
	}
}
