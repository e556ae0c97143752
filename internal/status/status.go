// Package status turns what one pass saw into the status of a RedisCluster:
// phase, counts and conditions. It is pure. Nothing volatile goes in, so that
// an unchanged cluster gives an unchanged status.
package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
)

// Problem is something that the operator cannot mend by itself: what the user
// named does not exist, a Pod cannot start, an object was refused.
type Problem struct {
	// Reason is one of the Reason constants of the API.
	Reason string
	// Message tells a person what is wrong and what to do.
	Message string
}

// Facts is everything that one pass learned.
type Facts struct {
	Desired  topology.Desired
	Observed *topology.Observed
	Plan     topology.Plan
	// Problems in the order of their importance; the first is reported.
	Problems []Problem
	// ServedVersion is the highest version among the primaries that answered;
	// empty when none did.
	ServedVersion string
	// Selector of the cluster's Pods.
	Selector string
	// Strangers are the ids of nodes that take part in the cluster for longer than a
	// node of the past does, and that are no Pods of it.
	Strangers []string
	// Pods is the number of Pods that exist.
	Pods int
	// Err is the error that ended the pass, nil for none.
	Err error
	// Now dates conditions that change.
	Now metav1.Time
}

// Compute gives the new status of a cluster. The old one, in c, supplies the
// times of conditions that do not change and the highest version served.
func Compute(c *redisv1.RedisCluster, f Facts) redisv1.RedisClusterStatus {
	s := *c.Status.DeepCopy()
	s.ObservedGeneration = c.Generation
	s.Selector = f.Selector
	s.Replicas = int32(f.Pods)
	s.Version = HigherVersion(s.Version, f.ServedVersion)
	s.ShardStatuses, s.Shards, s.ReadyReplicas = shards(f)

	set := func(typ string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: typ, Status: status, Reason: reason, Message: truncate(message),
			ObservedGeneration: c.Generation, LastTransitionTime: f.Now,
		})
	}
	setReady(c, f, set)
	setAvailable(f, set)
	setPersistent(c, set)
	setNameConflict(f, &s, set)
	s.Phase = phase(c, f, &s)
	setProgressing(f, s.Phase, set)
	setDegraded(f, s.Phase, set)
	return s
}

type setter func(typ string, status metav1.ConditionStatus, reason, message string)

// shards summarises each shard. A Pod counts as ready when Kubernetes calls it
// ready and it holds its role.
func shards(f Facts) (statuses []redisv1.ShardStatus, serving, ready int32) {
	for i, members := range f.Desired.Members {
		st := redisv1.ShardStatus{Index: int32(i), Replicas: int32(members)}
		if head := f.Observed.Head(i); head != nil {
			st.Primary, st.Slots = head.Pod, head.Slots.String()
			serving++
		}
		for j := range f.Observed.Nodes {
			n := &f.Observed.Nodes[j]
			if n.Shard == i && n.PodReady && f.Observed.HoldsRole(n) {
				st.ReadyReplicas++
			}
		}
		ready += st.ReadyReplicas
		statuses = append(statuses, st)
	}
	return statuses, serving, ready
}

func converged(f Facts) bool {
	return f.Err == nil && len(f.Problems) == 0 && topology.Converged(f.Desired, f.Observed)
}

func setReady(c *redisv1.RedisCluster, f Facts, set setter) {
	switch {
	case converged(f):
		set(redisv1.ConditionReady, metav1.ConditionTrue, redisv1.ReasonConverged,
			fmt.Sprintf("%d nodes in %d shards are ready and in their roles", c.Spec.Nodes(), len(f.Desired.Members)))
	case len(f.Problems) > 0:
		set(redisv1.ConditionReady, metav1.ConditionFalse, f.Problems[0].Reason, f.Problems[0].Message)
	case f.Err != nil:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonOperatorError, f.Err.Error())
	case f.Plan.Wait == topology.WaitPerson:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonUnsafe, f.Plan.Why)
	case c.Spec.Paused:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPaused, "spec.paused is set; without it: "+f.Plan.Why)
	case len(f.Plan.Actions) > 0:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonForming, f.Plan.Why)
	case f.Plan.Wait == topology.WaitRedis:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonWaiting, f.Plan.Why)
	default:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPodsNotReady, f.Plan.Why)
	}
}

func setAvailable(f Facts, set setter) {
	missing := topology.AllSlots.Minus(serving(f.Observed))
	switch {
	case missing.Empty():
		set(redisv1.ConditionAvailable, metav1.ConditionTrue, redisv1.ReasonSlotsServed, "all 16384 slots are served")
	case !f.Observed.Complete():
		set(redisv1.ConditionAvailable, metav1.ConditionUnknown, redisv1.ReasonNodesUnknown,
			"some nodes do not answer; no primary is known for slots "+missing.String())
	default:
		set(redisv1.ConditionAvailable, metav1.ConditionFalse, redisv1.ReasonSlotsMissing,
			"no primary serves slots "+missing.String())
	}
}

// serving is the set of slots whose primaries answer and find the cluster in order.
func serving(o *topology.Observed) topology.Slots {
	var s topology.Slots
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.Knowledge == topology.Answered && n.Primary && n.ClusterOK {
			s = s.Union(n.Slots)
		}
	}
	return s
}

func setPersistent(c *redisv1.RedisCluster, set setter) {
	if c.Spec.Storage != nil {
		set(redisv1.ConditionPersistent, metav1.ConditionTrue, redisv1.ReasonVolumes, "the data is on PersistentVolumes")
		return
	}
	set(redisv1.ConditionPersistent, metav1.ConditionFalse, redisv1.ReasonNoStorage,
		"spec.storage is not set: a shard keeps its data only as long as one of its Pods lives")
}

func setNameConflict(f Facts, s *redisv1.RedisClusterStatus, set setter) {
	for _, p := range f.Problems {
		if p.Reason == redisv1.ReasonNameConflict {
			set(redisv1.ConditionNameConflict, metav1.ConditionTrue, p.Reason, p.Message)
			return
		}
	}
	if f.Err == nil {
		meta.RemoveStatusCondition(&s.Conditions, redisv1.ConditionNameConflict)
	}
}

func phase(c *redisv1.RedisCluster, f Facts, s *redisv1.RedisClusterStatus) redisv1.Phase {
	// A cluster is being created until it was whole for the first time.
	created := s.Version != "" && c.Status.Phase != "" && c.Status.Phase != redisv1.PhasePending && c.Status.Phase != redisv1.PhaseCreating
	switch {
	case c.Spec.Paused:
		return redisv1.PhasePaused
	case converged(f):
		return redisv1.PhaseRunning
	case f.Plan.Wait == topology.WaitPerson:
		return redisv1.PhaseFailed
	case created && lacksSlots(f):
		return redisv1.PhaseRecovering
	case created && (topology.Scaling(f.Desired, f.Observed) || missing(f) && c.Status.Phase == redisv1.PhaseScaling):
		return redisv1.PhaseScaling
	case created && (topology.Rolling(f.Desired, f.Observed) || missing(f) && c.Status.Phase == redisv1.PhaseUpdating):
		return redisv1.PhaseUpdating
	case created:
		return redisv1.PhaseRecovering
	case len(f.Problems) > 0 && f.Pods == 0:
		return redisv1.PhasePending
	default:
		return redisv1.PhaseCreating
	}
}

// lacksSlots tells whether some slot has no primary that answers.
func lacksSlots(f Facts) bool { return f.Observed.Owned().Count() != topology.SlotCount }

// missing tells whether some node is not there yet, as the last one that was made
// during a roll.
func missing(f Facts) bool { return f.Err != nil || len(f.Problems) > 0 || !f.Plan.Empty() }

func setProgressing(f Facts, phase redisv1.Phase, set setter) {
	reasons := map[redisv1.Phase]string{
		redisv1.PhasePending: redisv1.ReasonCreating, redisv1.PhaseCreating: redisv1.ReasonCreating, redisv1.PhaseScaling: redisv1.ReasonScaling,
		redisv1.PhaseUpdating: redisv1.ReasonUpdating, redisv1.PhaseRecovering: redisv1.ReasonRecovering,
	}
	message := f.Plan.Why
	if left := topology.SlotsToMove(f.Desired, f.Observed); phase == redisv1.PhaseScaling && left > 0 {
		message = fmt.Sprintf("%d slots are still to be moved: %s", left, message)
	}
	switch {
	case phase == redisv1.PhaseRunning:
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonSettled, "everything is as the spec asks")
	case phase == redisv1.PhasePaused:
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonPaused, "spec.paused is set")
	case phase == redisv1.PhaseFailed:
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonStalled, message)
	case len(f.Problems) > 0:
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonStalled, f.Problems[0].Message)
	default:
		set(redisv1.ConditionProgressing, metav1.ConditionTrue, reasons[phase], message)
	}
}

// passedOn are the problems that are told by the condition Degraded as they are.
var passedOn = map[string]bool{
	redisv1.ReasonConfigRefused: true, redisv1.ReasonMigrationFailed: true, redisv1.ReasonStorageNotExpandable: true,
}

// setDegraded says what is wrong, the worst first.
func setDegraded(f Facts, phase redisv1.Phase, set setter) {
	degraded := func(reason, message string) { set(redisv1.ConditionDegraded, metav1.ConditionTrue, reason, message) }
	forming := phase == redisv1.PhasePending || phase == redisv1.PhaseCreating
	changing := phase == redisv1.PhaseUpdating || phase == redisv1.PhaseScaling
	bare := topology.Bare(f.Desired, f.Observed)
	switch {
	case f.Plan.Wait == topology.WaitPerson:
		degraded(redisv1.ReasonUnsafe, f.Plan.Why)
	case !forming && lacksSlots(f):
		degraded(redisv1.ReasonSlotsNotServed, "no primary that answers owns slots "+topology.AllSlots.Minus(f.Observed.Owned()).String())
	case len(f.Problems) > 0 && phase == redisv1.PhaseUpdating && !passedOn[f.Problems[0].Reason]:
		degraded(redisv1.ReasonRollStopped, "no other Pod is replaced before this one comes up: "+f.Problems[0].Message)
	case len(f.Problems) > 0 && passedOn[f.Problems[0].Reason]:
		degraded(f.Problems[0].Reason, f.Problems[0].Message)
	case len(f.Plan.Actions) > 0 && f.Plan.Actions[0].Alone:
		degraded(redisv1.ReasonInterruptionAhead, f.Plan.Why)
	case len(f.Strangers) > 0:
		degraded(redisv1.ReasonUnknownNode, "nodes that are no Pods of this cluster take part in it, and are left alone as long as they live: "+
			strings.Join(f.Strangers, ", "))
	case !forming && !changing && len(bare) > 0:
		degraded(redisv1.ReasonShardWithoutReplica, fmt.Sprintf("shards without a replica in sync: %v", bare))
	case forming:
		set(redisv1.ConditionDegraded, metav1.ConditionFalse, redisv1.ReasonForming, "the cluster is being made")
	default:
		set(redisv1.ConditionDegraded, metav1.ConditionFalse, redisv1.ReasonHealthy, "nothing is wrong")
	}
}

// truncate keeps a message within what the API server takes for a condition.
func truncate(message string) string {
	const most = 2000
	if len(message) > most {
		return message[:most] + "…"
	}
	return message
}
