package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// setRestored tells how far the filling from a backup is. Once it is done that is
// never taken back: it is what keeps Pods from being filled again.
func (v *view) setRestored(s *redisv1.RedisClusterStatus, set setter) {
	r := v.Restore
	if r.Backup != nil {
		s.Restore = r.Backup
	}
	switch {
	case r.Reason == "":
	case r.Done:
		set(redisv1.ConditionRestored, metav1.ConditionTrue, r.Reason, r.Message)
	default:
		set(redisv1.ConditionRestored, metav1.ConditionFalse, r.Reason, r.Message)
	}
}

// setScheduled tells whether backups are made by the schedule.
func (v *view) setScheduled(s *redisv1.RedisClusterStatus, set setter) {
	if v.cluster.Spec.Backup == nil {
		meta.RemoveStatusCondition(&s.Conditions, redisv1.ConditionBackupScheduled)
		s.LastScheduleTime = nil
		return
	}
	if v.Schedule.Last != nil {
		s.LastScheduleTime = v.Schedule.Last
	}
	switch v.Schedule.Reason {
	case "":
	case redisv1.ReasonScheduled:
		set(redisv1.ConditionBackupScheduled, metav1.ConditionTrue, v.Schedule.Reason, v.Schedule.Message)
	default:
		set(redisv1.ConditionBackupScheduled, metav1.ConditionFalse, v.Schedule.Reason, v.Schedule.Message)
	}
}
