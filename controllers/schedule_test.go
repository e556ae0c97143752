package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// clockStage is a cluster with a schedule, and a clock that the test sets.
type clockStage struct {
	*stage
	at time.Time
}

func newClockStage(t *testing.T, change func(*redisv1.BackupSpec)) *clockStage {
	t.Helper()
	spec := &redisv1.BackupSpec{Schedule: "0 3 * * *", Destination: redisv1.BackupDestination{PersistentVolumeClaim: &redisv1.ClaimDestination{ClaimName: "backups"}}}
	if change != nil {
		change(spec)
	}
	s := &clockStage{stage: newStage(t, redisv1.RedisClusterSpec{Backup: spec})}
	s.set("2026-05-01 12:00:00")
	return s
}

// set sets the clock, and has an operator that has just started do three passes.
func (s *clockStage) set(to string) {
	s.Helper()
	var err error
	if s.at, err = time.Parse("2006-01-02 15:04:05", to); err != nil {
		s.Fatal(err)
	}
	s.restart()
	s.r.clock = func() time.Time { return s.at }
	for range 3 {
		if err := s.pass(); err != nil {
			s.Fatal(err)
		}
	}
	s.get(s.cluster, s.cluster.Name)
}

func (s *clockStage) backups() []redisv1.RedisBackup {
	s.Helper()
	var list redisv1.RedisBackupList
	if err := s.admin.List(s.Context(), &list, client.InNamespace(s.cluster.Namespace)); err != nil {
		s.Fatal(err)
	}
	return list.Items
}

func (s *clockStage) has(names ...string) {
	s.Helper()
	var got []string
	for _, b := range s.backups() {
		got = append(got, strings.TrimPrefix(b.Name, "orders-"))
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		s.Errorf("at %s there are %q, want %q", s.at, got, names)
	}
}

func (s *clockStage) scheduled(status metav1.ConditionStatus, reason, says string) {
	s.Helper()
	c := meta.FindStatusCondition(s.cluster.Status.Conditions, redisv1.ConditionBackupScheduled)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
		s.Errorf("%+v, want %s %s %q", c, status, reason, says)
	}
}

func (s *clockStage) edit(change func(*redisv1.BackupSpec)) {
	s.Helper()
	s.get(s.cluster, s.cluster.Name)
	change(s.cluster.Spec.Backup)
	if err := s.admin.Update(s.Context(), s.cluster); err != nil {
		s.Fatal(err)
	}
}

func TestBackupsByTheClock(t *testing.T) {
	s := newClockStage(t, nil)
	s.scheduled(metav1.ConditionTrue, redisv1.ReasonScheduled, `"0 3 * * *", UTC`)
	s.has() // the tick of this morning was before the schedule
	s.set("2026-05-02 02:59:59")
	s.has()
	s.set("2026-05-02 03:00:00")
	s.has("202605020300")
	b := s.backups()[0]
	if len(b.OwnerReferences) > 0 || b.Spec.ClusterName != "orders" || b.Spec.DeletionPolicy != redisv1.DeletionDelete ||
		b.Labels[redisv1.LabelScheduledBy] != "orders" || b.Labels[redisv1.LabelScheduledByUID] != string(s.cluster.UID) {
		t.Errorf("%+v", b)
	}
	s.set("2026-05-02 03:00:30")
	s.has("202605020300") // once for a tick
	s.set("2026-05-01 20:00:00")
	s.has("202605020300") // the clock was set back
	s.set("2026-05-05 12:00:00")
	s.has("202605020300", "202605050300") // three days of downtime: the last one
	s.set("2026-05-05 12:00:00")
	s.has("202605020300", "202605050300")
}

// TestATickIsDealtWithOnce although the operator ends between making the backup and
// saying so.
func TestATickIsDealtWithOnce(t *testing.T) {
	s := newClockStage(t, nil)
	s.at = time.Date(2026, 5, 2, 3, 0, 1, 0, time.UTC)
	for try := range 4 {
		s.restart()
		s.r.clock = func() time.Time { return s.at }
		s.failAt = s.writes + 1 + try
		_ = s.pass() // some write of it is lost, or its answer
	}
	s.failAt = 0
	s.set("2026-05-02 03:00:10")
	s.has("202605020300")
	if got := s.cluster.Status.LastScheduleTime; got == nil || !got.Time.Equal(time.Date(2026, 5, 2, 3, 0, 0, 0, time.UTC)) {
		t.Errorf("last tick %v", got)
	}
}

func TestSuspendedSchedule(t *testing.T) {
	s := newClockStage(t, nil)
	s.edit(func(b *redisv1.BackupSpec) { b.Suspend = true })
	s.set("2026-05-02 03:00:00")
	s.scheduled(metav1.ConditionFalse, redisv1.ReasonSuspended, "suspend")
	s.edit(func(b *redisv1.BackupSpec) { b.Suspend = false })
	s.set("2026-05-02 12:00:00")
	s.has() // what was missed meanwhile is not made up for
	s.set("2026-05-03 03:00:00")
	s.has("202605030300")
}

func TestScheduleThatCannotBe(t *testing.T) {
	s := newClockStage(t, func(b *redisv1.BackupSpec) { b.TimeZone = "Europe/Atlantis" })
	s.scheduled(metav1.ConditionFalse, redisv1.ReasonUnknownTimeZone, "Europe/Atlantis")
	s.edit(func(b *redisv1.BackupSpec) { b.TimeZone, b.Schedule = "Europe/Berlin", "0 3 30 2 *" })
	s.set("2026-05-01 12:00:01")
	s.scheduled(metav1.ConditionFalse, redisv1.ReasonInvalidSchedule, "never comes")
	s.edit(func(b *redisv1.BackupSpec) { b.Schedule = "0 3 * * *" })
	s.set("2026-05-01 12:00:02")
	s.scheduled(metav1.ConditionTrue, redisv1.ReasonScheduled, "Europe/Berlin")
	s.set("2026-05-02 01:00:00") // 3 o'clock there
	s.has("202605020100")
}

func TestRetention(t *testing.T) {
	keep := int32(2)
	s := newClockStage(t, func(b *redisv1.BackupSpec) { b.KeepLast, b.DeletionPolicy = &keep, redisv1.DeletionRetain })
	made := func(name, uid string, phase redisv1.BackupPhase) {
		b := &redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: "orders-" + name, Namespace: s.cluster.Namespace, Labels: map[string]string{redisv1.LabelScheduledByUID: uid}}}
		b.Spec = redisv1.RedisBackupSpec{ClusterName: "orders", Destination: s.cluster.Spec.Backup.Destination}
		if err := s.admin.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.Status.Phase = phase
		if err := s.admin.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	uid := string(s.cluster.UID)
	for i, phase := range []redisv1.BackupPhase{redisv1.BackupSucceeded, redisv1.BackupSucceeded, redisv1.BackupFailed, redisv1.BackupSucceeded, redisv1.BackupFailed, redisv1.BackupRunning} {
		made(fmt.Sprint("20260401010", i), uid, phase)
	}
	made("202504010100", "an-earlier-cluster", redisv1.BackupSucceeded)
	made("by-hand", "", redisv1.BackupSucceeded)
	s.set("2026-05-01 12:00:01")
	s.has("202504010100", "202604010101", "202604010102", "202604010103", "202604010104", "202604010105", "by-hand")
}
