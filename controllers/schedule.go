package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
)

// observeBackups finds the backups of the cluster. While one is being taken no
// slot is moved.
func (p *pass) observeBackups(ctx context.Context) error {
	var list redisv1.RedisBackupList
	// They are only read: copying all of a namespace's for each look would cost more.
	if err := p.r.Client.List(ctx, &list, client.InNamespace(p.cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list RedisBackups: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.ClusterName != p.cluster.Name {
			continue
		}
		p.backups = append(p.backups, b)
		if b.Status.Phase == redisv1.BackupRunning && b.DeletionTimestamp.IsZero() {
			p.facts.Desired.Backup = b.Name
		}
	}
	return nil
}

// scheduleBackups makes the backup of the latest tick that is due, and deletes
// those that are too many.
func (p *pass) scheduleBackups(ctx context.Context) error {
	spec := p.cluster.Spec.Backup
	if spec == nil {
		return nil
	}
	if err := p.retain(ctx, spec); err != nil {
		return err
	}
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil {
		p.facts.Schedule = status.Schedule{Reason: redisv1.ReasonUnknownTimeZone, Message: fmt.Sprintf(
			"spec.backup.timeZone: %v; write it as in the IANA database, as \"Europe/Berlin\"", err)}
		return nil
	}
	schedule, err := backup.ParseSchedule(spec.Schedule, zone)
	if err != nil {
		p.facts.Schedule = status.Schedule{Reason: redisv1.ReasonInvalidSchedule, Message: fmt.Sprintf("spec.backup.schedule: %v", err)}
		return nil
	}
	if spec.Suspend {
		p.facts.Schedule = status.Schedule{Reason: redisv1.ReasonSuspended, Message: "spec.backup.suspend is set: no backups are made"}
		return nil
	}
	latest, now := p.mem.latestStatus(p.cluster), p.facts.Now
	p.facts.Schedule = status.Schedule{Reason: redisv1.ReasonScheduled, Message: fmt.Sprintf("backups are made at %q, %s", spec.Schedule, zone)}
	before := meta.FindStatusCondition(latest.Conditions, redisv1.ConditionBackupScheduled)
	last := latest.LastScheduleTime
	if last == nil || before == nil || before.Status != metav1.ConditionTrue {
		// The schedule begins, or goes on: what was missed meanwhile was not to be made.
		last = &now
		p.facts.Schedule.Last = last
	}
	if due := schedule.Due(last.Time, now.Time); !due.IsZero() {
		if err := p.createScheduled(ctx, spec, due); err != nil {
			return err
		}
		p.facts.Schedule.Last = &metav1.Time{Time: due}
	}
	if next := schedule.Next(now.Time); !next.IsZero() {
		p.tick = next.Sub(now.Time) + time.Millisecond
	}
	return nil
}

// scheduledName is the name of the backup of a tick: the same for every operator
// that deals with it, so that there is one.
func scheduledName(c *redisv1.RedisCluster, tick time.Time) string {
	return c.Name + "-" + tick.UTC().Format("200601021504")
}

func (p *pass) createScheduled(ctx context.Context, spec *redisv1.BackupSpec, tick time.Time) error {
	b := &redisv1.RedisBackup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.cluster.Namespace, Name: scheduledName(p.cluster, tick),
			Labels: map[string]string{
				manifests.LabelManagedBy: manifests.ManagedBy, redisv1.LabelScheduledBy: p.cluster.Name, redisv1.LabelScheduledByUID: string(p.cluster.UID),
			},
		},
		Spec: redisv1.RedisBackupSpec{
			ClusterName: p.cluster.Name, Destination: *spec.Destination.DeepCopy(), Compression: spec.Compression, Verify: spec.Verify, DeletionPolicy: spec.DeletionPolicy,
		},
	}
	err := p.r.Client.Create(ctx, b)
	switch {
	case apierrors.IsAlreadyExists(err): // an operator that ended before it said so has made it
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		p.events = append(p.events, news{corev1.EventTypeWarning, redisv1.EventBackupRefused, "Backup", fmt.Sprintf("the scheduled backup %s is refused: %v", b.Name, err)})
	case err != nil:
		return fmt.Errorf("create RedisBackup %s: %w", b.Name, err)
	default:
		p.events = append(p.events, news{corev1.EventTypeNormal, redisv1.EventBackupMade, "Backup", "RedisBackup " + b.Name + " is made by the schedule"})
	}
	return nil
}

// retain deletes the oldest of the scheduled backups that succeeded, beyond the
// number that is kept. Those of an earlier cluster of this name are not counted,
// nor are failed ones.
func (p *pass) retain(ctx context.Context, spec *redisv1.BackupSpec) error {
	if spec.KeepLast == nil {
		return nil
	}
	var good []*redisv1.RedisBackup
	for _, b := range p.backups {
		if b.Labels[redisv1.LabelScheduledByUID] == string(p.cluster.UID) && b.Status.Phase == redisv1.BackupSucceeded && b.DeletionTimestamp.IsZero() {
			good = append(good, b)
		}
	}
	slices.SortFunc(good, func(a, b *redisv1.RedisBackup) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	for _, b := range good[min(int(*spec.KeepLast), len(good)):] {
		if err := deleteExactly(ctx, p.r.Client, b); err != nil {
			return err
		}
		p.events = append(p.events, news{corev1.EventTypeNormal, redisv1.EventBackupExpired, "Backup",
			fmt.Sprintf("RedisBackup %s is deleted: %d newer ones are kept", b.Name, *spec.KeepLast)})
	}
	return nil
}
