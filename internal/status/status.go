// Package status turns what one pass saw into the status of a RedisCluster:
// phase, counts and conditions. It is pure. Nothing volatile goes in, so that
// an unchanged cluster gives an unchanged status.
package status

import (
	"fmt"

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
	// Message tells a person what is wrong and what to do. It holds nothing volatile.
	Message string
	// Pod is the one that does not start; empty when the problem is no Pod's.
	Pod string
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
	// Restore is how far the filling from a backup is; Schedule whether the backups of
	// spec.backup are made. Their zero values: nothing is said of it.
	Restore  Restore
	Schedule Schedule
	// Err is the error that ended the pass, nil for none.
	Err error
	// Now dates conditions that change.
	Now metav1.Time
}

// Restore is how far the filling of a new cluster from a backup is.
type Restore struct {
	// Reason is one of the reasons of the condition Restored. Empty: the cluster is
	// not filled from a backup.
	Reason, Message string
	// Done: every shard is in its place, for good. Failed: no waiting mends it.
	Done, Failed bool
	// Backup is what was found out of the backup; nil while nothing was.
	Backup *redisv1.RestoreStatus
}

// pending tells whether the cluster is still being filled.
func (r *Restore) pending() bool { return r.Reason != "" && !r.Done }

// Schedule is what became of spec.backup.
type Schedule struct {
	// Reason is one of the reasons of the condition BackupScheduled. Empty: the
	// pass did not get to it.
	Reason, Message string
	// Last is the last tick that was dealt with; nil leaves what the status has.
	Last *metav1.Time
}

// Compute gives the new status of a cluster. The old one, in c, supplies the
// times of conditions that do not change, the highest version served, and what the
// cluster was at: a node that is away for a moment of a roll looks like one that was
// lost. Nothing is decided by it.
func Compute(c *redisv1.RedisCluster, f Facts) redisv1.RedisClusterStatus {
	s := *c.Status.DeepCopy()
	s.ObservedGeneration = c.Generation
	s.Selector = f.Selector
	s.Version = HigherVersion(s.Version, f.ServedVersion)
	v := look(c, f, s.Version)
	// A pass that failed before it looked has seen no cluster of no nodes.
	if f.Err == nil || f.Pods > 0 {
		s.Replicas = int32(f.Pods)
	}
	if v.seen {
		s.ShardStatuses, s.Shards, s.ReadyReplicas = shards(f)
	}

	set := func(typ string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: typ, Status: status, Reason: reason, Message: truncate(message),
			ObservedGeneration: c.Generation, LastTransitionTime: f.Now,
		})
	}
	v.setReady(set)
	v.setAvailable(set)
	v.setProgressing(set)
	v.setDegraded(set)
	setPersistent(c, set)
	setNameConflict(f, &s, set)
	v.setStalled(&s, set)
	v.setRestored(&s, set)
	v.setScheduled(&s, set)
	s.Phase = v.phase()
	return s
}

type setter func(typ string, status metav1.ConditionStatus, reason, message string)

// shards summarises each shard, those that are to go too. A Pod counts as ready
// when Kubernetes calls it ready and it holds its role.
func shards(f Facts) (statuses []redisv1.ShardStatus, serving, ready int32) {
	count := len(f.Desired.Members)
	for i := range f.Observed.Nodes {
		count = max(count, f.Observed.Nodes[i].Shard+1)
	}
	for i := range count {
		st := redisv1.ShardStatus{Index: int32(i)}
		if i < len(f.Desired.Members) {
			st.Replicas = int32(f.Desired.Members[i])
		}
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

func (v *view) setReady(set setter) {
	c, f := v.cluster, v.Facts
	switch {
	case v.converged():
		set(redisv1.ConditionReady, metav1.ConditionTrue, redisv1.ReasonConverged,
			fmt.Sprintf("%d nodes in %d shards are ready and in their roles", c.Spec.Nodes(), len(f.Desired.Members)))
	case len(f.Problems) > 0:
		set(redisv1.ConditionReady, metav1.ConditionFalse, f.Problems[0].Reason, f.Problems[0].Message)
	case f.Err != nil:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonOperatorError, f.Err.Error())
	case f.Plan.Wait == topology.WaitPerson:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonUnsafe, f.Plan.Why)
	case f.Restore.pending():
		set(redisv1.ConditionReady, metav1.ConditionFalse, f.Restore.Reason, f.Restore.Message)
	case c.Spec.Paused:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPaused, "spec.paused is set; without it: "+f.Plan.Why)
	case v.stage == scaling:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonScaling, f.Plan.Why)
	case v.stage == rolling:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonUpdating, f.Plan.Why)
	case len(f.Plan.Actions) > 0:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonForming, f.Plan.Why)
	case f.Plan.Wait == topology.WaitRedis:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonWaiting, f.Plan.Why)
	default:
		set(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPodsNotReady, f.Plan.Why)
	}
}

func (v *view) setAvailable(set setter) {
	f := v.Facts
	if f.Restore.pending() {
		set(redisv1.ConditionAvailable, metav1.ConditionFalse, redisv1.ReasonRestoring, "nothing is served before every shard of the backup is in its place")
		return
	}
	// While a primary hands over, for a moment neither side may say that it serves.
	missing := topology.AllSlots.Minus(serving(f.Observed)).Minus(topology.Promised(f.Observed))
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

// truncate keeps a message within what the API server takes for a condition.
func truncate(message string) string {
	const most = 2000
	if len(message) > most {
		return message[:most] + "…"
	}
	return message
}
