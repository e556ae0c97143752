package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
)

// progress is the reason of Progressing while the operator is at work.
var progress = map[redisv1.Phase]string{
	redisv1.PhasePending: redisv1.ReasonCreating, redisv1.PhaseCreating: redisv1.ReasonCreating, redisv1.PhaseRestoring: redisv1.ReasonRestoring, redisv1.PhaseScaling: redisv1.ReasonScaling,
	redisv1.PhaseUpdating: redisv1.ReasonUpdating, redisv1.PhaseRecovering: redisv1.ReasonRecovering,
}

func (v *view) setProgressing(set setter) {
	message := v.Plan.Why
	if left := topology.SlotsToMove(v.Desired, v.Observed); (v.stage == scaling || v.stage == forming) && left > 0 && !v.Restore.pending() {
		message = fmt.Sprintf("%d slots are still to be moved: %s", left, message)
	}
	stalled := v.stalledBy()
	switch {
	case v.converged():
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonSettled, "everything is as the spec asks")
	case v.blind():
		v.leave(redisv1.ConditionProgressing, set)
	case v.cluster.Spec.Paused:
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonPaused, "spec.paused is set")
	case stalled != "":
		set(redisv1.ConditionProgressing, metav1.ConditionFalse, redisv1.ReasonStalled, stalled)
	default:
		reason := progress[v.phase()]
		if topology.MovesSlots(v.Plan, v.Observed) {
			reason = redisv1.ReasonMovingSlots
		}
		set(redisv1.ConditionProgressing, metav1.ConditionTrue, reason, v.errorOr(message))
	}
}

// errorOr is the plan's word, or that of the error that prevented one.
func (v *view) errorOr(message string) string {
	if message == "" && v.Err != nil {
		return v.Err.Error()
	}
	return message
}

// stalledBy says what keeps the operator from going on until a person has helped;
// empty when it goes on. A problem that concerns only some of the work is in its way
// only when nothing else is left to do, so that the condition does not come and go
// with every step of the rest.
func (v *view) stalledBy() string {
	if v.Plan.Wait == topology.WaitPerson {
		return v.Plan.Why
	}
	if v.Restore.Failed {
		return v.Restore.Message
	}
	for _, p := range v.Problems {
		inTheWay := len(v.Plan.Actions) == 0 && v.Plan.Wait != topology.WaitRedis
		switch p.Reason {
		case redisv1.ReasonMigrationFailed:
			inTheWay = true
		case redisv1.ReasonConfigRefused, redisv1.ReasonStorageNotExpandable:
			inTheWay = v.stage == settled
		}
		if inTheWay {
			return p.Message
		}
	}
	return ""
}

// setStalled tells what no waiting mends: a person has to look at the data, or the
// spec asks for what cannot be.
func (v *view) setStalled(s *redisv1.RedisClusterStatus, set setter) {
	if v.Plan.Wait == topology.WaitPerson {
		set(redisv1.ConditionStalled, metav1.ConditionTrue, redisv1.ReasonUnsafe, v.Plan.Why)
		return
	}
	if v.Restore.Failed {
		set(redisv1.ConditionStalled, metav1.ConditionTrue, v.Restore.Reason, v.Restore.Message)
		return
	}
	for _, p := range v.Problems {
		switch p.Reason {
		case redisv1.ReasonConfigRefused, redisv1.ReasonStorageNotExpandable:
			set(redisv1.ConditionStalled, metav1.ConditionTrue, p.Reason, p.Message)
			return
		}
	}
	if v.Err == nil {
		meta.RemoveStatusCondition(&s.Conditions, redisv1.ConditionStalled)
	}
}

// blind tells whether the pass failed before it looked.
func (v *view) blind() bool { return !v.seen && len(v.Problems) == 0 }

// leave keeps a condition of which nothing new is known.
func (v *view) leave(typ string, set setter) {
	if v.condition(typ) == nil {
		set(typ, metav1.ConditionUnknown, redisv1.ReasonOperatorError, v.Err.Error())
	}
}

// condition is one of the last status; nil when there is none.
func (v *view) condition(typ string) *metav1.Condition {
	return meta.FindStatusCondition(v.cluster.Status.Conditions, typ)
}
