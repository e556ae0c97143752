package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/status"
)

// detailInterval paces status writes that change only counts and messages: on
// the way to a goal they would otherwise follow each other several times a
// second. A new phase, or a condition with a new status or reason, is written
// at once.
const detailInterval = 2 * time.Second

// news is one Event to send once the status is written.
type news struct{ kind, reason, action, message string }

// report writes the status if it changed, then sends the Events. It returns
// how long a write of mere details was put off, zero when none was.
func (p *pass) report(ctx context.Context) (deferred time.Duration, err error) {
	old := p.mem.latestStatus(p.cluster)
	base := p.cluster.DeepCopy()
	base.Status = old
	now := status.Compute(base, p.facts)
	p.watch.Saw(p.seen(&now, meta.IsStatusConditionTrue(now.Conditions, redisv1.ConditionReady)))
	if !equality.Semantic.DeepEqual(old, now) {
		if wait := detailInterval - time.Since(p.mem.writtenAt); wait > 0 && onlyDetails(&old, &now) {
			deferred = wait
		} else if err := p.writeStatus(ctx, base, now); err != nil {
			return 0, err
		} else {
			p.events = append(p.events, changes(&old, &now)...)
		}
	}
	for _, e := range p.events {
		p.r.Recorder.Eventf(p.cluster, nil, e.kind, e.reason, e.action, "%s", e.message)
	}
	return deferred, nil
}

func (p *pass) writeStatus(ctx context.Context, base *redisv1.RedisCluster, s redisv1.RedisClusterStatus) error {
	changed := base.DeepCopy()
	changed.Status = s
	if err := p.r.Client.Status().Patch(ctx, changed, client.MergeFrom(base)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // deleted meanwhile: there is nobody to tell
		}
		return fmt.Errorf("patch status of RedisCluster: %w", err)
	}
	wrote(p.cluster.Name, changed)
	p.mem.written, p.mem.writtenVersion, p.mem.writtenAt = &s, changed.ResourceVersion, time.Now()
	return nil
}

// onlyDetails tells whether two statuses say the same to a machine: same phase,
// same conditions by status and reason, about the same spec. Whose turn it is to be
// interrupted is no detail: the interruption waits until it is told.
func onlyDetails(a, b *redisv1.RedisClusterStatus) bool {
	if a.Phase != b.Phase || a.ObservedGeneration != b.ObservedGeneration || a.Version != b.Version ||
		len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for _, ca := range a.Conditions {
		cb := meta.FindStatusCondition(b.Conditions, ca.Type)
		if cb == nil || cb.Status != ca.Status || cb.Reason == redisv1.ReasonInterruptionAhead && cb.Message != ca.Message {
			return false
		}
		// On the way, Ready passes through several reasons for not being so;
		// only those that ask for a person are news.
		if cb.Reason != ca.Reason && (ca.Type != redisv1.ConditionReady || !onTheWay[ca.Reason] || !onTheWay[cb.Reason]) {
			return false
		}
	}
	return true
}

// onTheWay are the reasons of a cluster that gets where it should by itself.
var onTheWay = map[string]bool{
	redisv1.ReasonForming: true, redisv1.ReasonWaiting: true, redisv1.ReasonPodsNotReady: true,
	redisv1.ReasonScaling: true, redisv1.ReasonUpdating: true, redisv1.ReasonRestoring: true, redisv1.ReasonInspecting: true, redisv1.ReasonSeeded: true,
}

// changes are the Events that a new status brings: what is over, then what begins,
// then what is wrong.
func changes(old, now *redisv1.RedisClusterStatus) []news {
	events := turns(old, now)
	ready, before := conditions(old, now, redisv1.ConditionReady)
	if ready.Reason != redisv1.ReasonConverged && !onTheWay[ready.Reason] && ready.Reason != redisv1.ReasonPaused &&
		(before.Reason != ready.Reason || before.Message != ready.Message) {
		events = append(events, news{corev1.EventTypeWarning, ready.Reason, "Reconcile", ready.Message})
	}
	if degraded, before := conditions(old, now, redisv1.ConditionDegraded); worthAnEvent(degraded, before, ready) {
		events = append(events, news{corev1.EventTypeWarning, degraded.Reason, "Reconcile", degraded.Message})
	}
	if c, before := conditions(old, now, redisv1.ConditionPersistent); c.Reason == redisv1.ReasonNoStorage && before.Reason == "" {
		events = append(events, news{corev1.EventTypeWarning, c.Reason, "Create", c.Message})
	}
	if c, before := conditions(old, now, redisv1.ConditionBackupScheduled); c.Status == metav1.ConditionFalse && c.Reason != redisv1.ReasonSuspended &&
		(before.Reason != c.Reason || before.Message != c.Message) {
		events = append(events, news{corev1.EventTypeWarning, c.Reason, "Backup", c.Message})
	}
	return events
}

// turns are the Events of a new phase.
func turns(old, now *redisv1.RedisClusterStatus) []news {
	if now.Phase == old.Phase {
		return nil
	}
	var events []news
	ready, _ := conditions(old, now, redisv1.ConditionReady)
	progressing, _ := conditions(old, now, redisv1.ConditionProgressing)
	over := func(reason, action string) {
		events = append(events, news{corev1.EventTypeNormal, reason, action, ready.Message})
	}
	wentOn := now.Phase == redisv1.PhaseRunning || now.Phase == redisv1.PhaseScaling || now.Phase == redisv1.PhaseUpdating
	switch {
	case !wentOn:
	case old.Phase == redisv1.PhaseScaling:
		over(redisv1.EventScaled, "Scale")
	case old.Phase == redisv1.PhaseUpdating && now.Phase == redisv1.PhaseRunning:
		over(redisv1.EventUpdated, "Update")
	case old.Phase == redisv1.PhaseRecovering, old.Phase == redisv1.PhaseFailed:
		over(redisv1.EventRecovered, "Recover")
	case old.Phase == redisv1.PhaseRestoring:
		over(redisv1.EventRestored, "Restore")
	case old.Phase == "", old.Phase == redisv1.PhasePending, old.Phase == redisv1.PhaseCreating:
		over(redisv1.EventCreated, "Create")
	}
	begins := func(reason, action string) {
		// What a problem keeps from beginning is told as that problem.
		if progressing.Status == metav1.ConditionTrue {
			events = append(events, news{corev1.EventTypeNormal, reason, action, progressing.Message})
		}
	}
	switch now.Phase {
	case redisv1.PhaseScaling:
		begins(redisv1.EventScaling, "Scale")
	case redisv1.PhaseUpdating:
		begins(redisv1.EventUpdating, "Update")
	case redisv1.PhasePaused:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventPaused, "Pause", "the operator only looks until spec.paused is false"})
	}
	return events
}

// worthAnEvent tells whether Degraded says something that neither it said before nor
// Ready says now.
func worthAnEvent(degraded, before, ready metav1.Condition) bool {
	switch {
	case degraded.Status != metav1.ConditionTrue, degraded.Reason == ready.Reason, degraded.Reason == redisv1.ReasonBlocked:
		return false
	case degraded.Reason == redisv1.ReasonInterruptionAhead:
		return before.Reason != degraded.Reason || before.Message != degraded.Message
	default:
		return before.Reason != degraded.Reason
	}
}

// conditions are those of a type in two statuses, empty where there is none.
func conditions(old, now *redisv1.RedisClusterStatus, typ string) (is, was metav1.Condition) {
	if c := meta.FindStatusCondition(now.Conditions, typ); c != nil {
		is = *c
	}
	if c := meta.FindStatusCondition(old.Conditions, typ); c != nil {
		was = *c
	}
	return is, was
}
