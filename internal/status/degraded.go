package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
)

// degradation is one thing that can be wrong. Its check gives the message, empty
// when it is not so.
type degradation struct {
	reason string
	check  func(*view) string
}

// degradations are all of them; the first that applies is told. An interruption comes
// first because it waits until it has been told. Then come what only a person can
// mend and the cause of much else, a Pod that does not come up; then what is lost,
// by what it costs; then what cannot be done.
var degradations = []degradation{
	{redisv1.ReasonInterruptionAhead, (*view).interruptionAhead},
	{redisv1.ReasonUnsafe, (*view).unsafe},
	{redisv1.ReasonRollStopped, (*view).rollStopped},
	{redisv1.ReasonInterruptionAhead, (*view).interrupted},
	{redisv1.ReasonSlotsNotServed, (*view).slotsNotServed},
	{redisv1.ReasonShardWithoutReplica, (*view).shardWithoutReplica},
	{redisv1.ReasonNodeLost, (*view).nodeLost},
	{redisv1.ReasonUnknownNode, (*view).unknownNode},
	{redisv1.ReasonMigrationFailed, problem(redisv1.ReasonMigrationFailed)},
	{redisv1.ReasonConfigRefused, problem(redisv1.ReasonConfigRefused)},
	{redisv1.ReasonStorageNotExpandable, problem(redisv1.ReasonStorageNotExpandable)},
	{redisv1.ReasonBlocked, (*view).blocked},
}

func (v *view) setDegraded(set setter) {
	if v.blind() {
		v.leave(redisv1.ConditionDegraded, set)
		return
	}
	for _, d := range degradations {
		if message := d.check(v); message != "" {
			set(redisv1.ConditionDegraded, metav1.ConditionTrue, d.reason, message)
			return
		}
	}
	if v.stage == forming {
		set(redisv1.ConditionDegraded, metav1.ConditionFalse, redisv1.ReasonForming, "the cluster is being made")
		return
	}
	set(redisv1.ConditionDegraded, metav1.ConditionFalse, redisv1.ReasonHealthy, "nothing is wrong")
}

// interruptionAhead announces that the only Pod of a shard is about to be replaced.
// The message is the plan's own: the replacement waits for a status that says it.
func (v *view) interruptionAhead() string {
	alone := func(a topology.Action) bool { return a.Kind == topology.Replace && a.Alone }
	if v.cluster.Spec.Paused || !slices.ContainsFunc(v.Plan.Actions, alone) {
		return ""
	}
	return v.Plan.Why
}

// interrupted goes on with the announcement while the interruption lasts.
func (v *view) interrupted() string {
	announced := v.condition(redisv1.ConditionDegraded)
	if announced == nil || announced.Reason != redisv1.ReasonInterruptionAhead || v.stage != rolling || !v.aloneAndOut() {
		return ""
	}
	return announced.Message
}

func (v *view) unsafe() string {
	if v.Plan.Wait != topology.WaitPerson {
		return ""
	}
	return v.Plan.Why
}

// rollStopped tells of a Pod that was made from the present template and does not
// come up.
func (v *view) rollStopped() string {
	if v.stage != rolling {
		return ""
	}
	for _, p := range v.Problems {
		for _, n := range v.out {
			if p.Pod == n.Pod && !n.Outdated {
				return "no other Pod is replaced before this one comes up: " + p.Message
			}
		}
	}
	return ""
}

func (v *view) slotsNotServed() string {
	if lost := topology.Lost(v.Observed); v.stage != forming && v.seen && !lost.Empty() {
		return "no primary serves slots " + lost.String()
	}
	return ""
}

// shardWithoutReplica: a change of the cluster takes a shard's only replica away for
// a moment, which is no reason to call anybody.
func (v *view) shardWithoutReplica() string {
	bare := topology.Bare(v.Desired, v.Observed)
	if v.stage != recovering || len(bare) == 0 {
		return ""
	}
	return "no replica in sync: shard " + join(bare, func(shard int) string { return fmt.Sprint(shard) })
}

func (v *view) nodeLost() string {
	if v.stage != recovering || len(v.out) == 0 {
		return ""
	}
	return "missing, not answering or not in their roles: " + join(v.out, (*topology.Node).Name)
}

func (v *view) unknownNode() string {
	if len(v.Strangers) == 0 {
		return ""
	}
	return "nodes that are no Pods of this cluster take part in it, and are left alone as long as they live: " +
		join(v.Strangers, func(id string) string { return id })
}

// problem passes on a problem of the pass.
func problem(reason string) func(*view) string {
	return func(v *view) string {
		for _, p := range v.Problems {
			if p.Reason == reason {
				return p.Message
			}
		}
		return ""
	}
}

// blocked tells of every other problem. A cluster that is still being made is not
// degraded by it: Ready says that it does not come up.
func (v *view) blocked() string {
	if v.stage == forming || len(v.Problems) == 0 {
		return ""
	}
	return v.Problems[0].Message
}

// join lists up to five for people.
func join[T any](all []T, name func(T) string) string {
	const most = 5
	var names []string
	for _, x := range all[:min(most, len(all))] {
		names = append(names, name(x))
	}
	list := strings.Join(names, ", ")
	if len(all) > most {
		list = fmt.Sprintf("%s and %d more", list, len(all)-most)
	}
	return list
}
