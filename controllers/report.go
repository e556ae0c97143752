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
	p.mem.written, p.mem.writtenVersion, p.mem.writtenAt = &s, changed.ResourceVersion, time.Now()
	return nil
}

// onlyDetails tells whether two statuses say the same to a machine: same phase,
// same conditions by status and reason, about the same spec.
func onlyDetails(a, b *redisv1.RedisClusterStatus) bool {
	if a.Phase != b.Phase || a.ObservedGeneration != b.ObservedGeneration || a.Version != b.Version ||
		len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for _, ca := range a.Conditions {
		cb := meta.FindStatusCondition(b.Conditions, ca.Type)
		if cb == nil || cb.Status != ca.Status {
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
	redisv1.ReasonScaling: true, redisv1.ReasonUpdating: true,
}

// changes are the Events that a new status brings.
func changes(old, now *redisv1.RedisClusterStatus) []news {
	var events []news
	ready := meta.FindStatusCondition(now.Conditions, redisv1.ConditionReady)
	before := meta.FindStatusCondition(old.Conditions, redisv1.ConditionReady)
	switch {
	case now.Phase == redisv1.PhasePaused && old.Phase != redisv1.PhasePaused:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventPaused, "Pause", "the operator only looks until spec.paused is false"})
	case now.Phase == redisv1.PhaseScaling && old.Phase != redisv1.PhaseScaling:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventScaling, "Scale", progress(now)})
	case now.Phase == redisv1.PhaseUpdating && old.Phase != redisv1.PhaseUpdating:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventUpdating, "Update", progress(now)})
	case now.Phase == redisv1.PhaseRunning && old.Phase == redisv1.PhaseScaling:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventScaled, "Scale", ready.Message})
	case now.Phase == redisv1.PhaseRunning && old.Phase == redisv1.PhaseUpdating:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventUpdated, "Update", ready.Message})
	case now.Phase == redisv1.PhaseRunning && old.Phase == redisv1.PhaseRecovering:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventRecovered, "Recover", ready.Message})
	case now.Phase == redisv1.PhaseRunning && old.Phase != redisv1.PhaseRunning && old.Phase != redisv1.PhasePaused:
		events = append(events, news{corev1.EventTypeNormal, redisv1.EventCreated, "Create", ready.Message})
	}
	if ready.Reason != redisv1.ReasonConverged && !onTheWay[ready.Reason] && ready.Reason != redisv1.ReasonPaused &&
		(before == nil || before.Reason != ready.Reason || before.Message != ready.Message) {
		events = append(events, news{corev1.EventTypeWarning, ready.Reason, "Reconcile", ready.Message})
	}
	degraded, wasDegraded := meta.FindStatusCondition(now.Conditions, redisv1.ConditionDegraded), meta.FindStatusCondition(old.Conditions, redisv1.ConditionDegraded)
	if degraded.Status == metav1.ConditionTrue && degraded.Reason != ready.Reason && (wasDegraded == nil || wasDegraded.Reason != degraded.Reason) {
		events = append(events, news{corev1.EventTypeWarning, degraded.Reason, "Reconcile", degraded.Message})
	}
	if c := meta.FindStatusCondition(now.Conditions, redisv1.ConditionPersistent); c.Reason == redisv1.ReasonNoStorage &&
		meta.FindStatusCondition(old.Conditions, redisv1.ConditionPersistent) == nil {
		events = append(events, news{corev1.EventTypeWarning, c.Reason, "Create", c.Message})
	}
	return events
}

// progress is what the condition Progressing says.
func progress(s *redisv1.RedisClusterStatus) string {
	return meta.FindStatusCondition(s.Conditions, redisv1.ConditionProgressing).Message
}
