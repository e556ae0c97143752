package metrics

import (
	"testing"
	"time"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestAClusterIsShownAsItsUserSeesIt, and no more once it is gone.
func TestAClusterIsShownAsItsUserSeesIt(t *testing.T) {
	see := func(c Cluster) {
		c.Namespace, c.Name = "shop", "shown"
		_, p := StartPass(t.Context(), controllerOfClusters, "shop", "shown")
		p.Saw(c)
		p.End()
	}
	shows := func(want map[string]float64) {
		t.Helper()
		for name, value := range want {
			if got, _, found := sample(t, "rediscluster_"+name, "namespace=shop", "name=shown"); !found || got != value {
				t.Errorf("%s is %g (there: %t), want %g", name, got, found, value)
			}
		}
	}
	backup, due := time.Unix(1_700_000_000, 0), time.Unix(1_700_086_400, 0)
	see(Cluster{Generation: 1, Phase: redisv1.PhaseCreating, BackupEnded: true, BackupFailed: true, BackupDue: due, View: &View{
		Shards: 3, ShardsOK: 2, Replicas: 3, ReplicasInSync: 1, Uncovered: 2, SlotsUnassigned: 5461, SlotsMoving: 7}})
	shows(map[string]float64{"shards": 3, "shards_ok": 2, "replicas": 3, "replicas_in_sync": 1, "shards_without_synced_replica": 2,
		"slots_unassigned": 5461, "slots_moving": 7, "last_backup_succeeded": 0, "backup_due_timestamp_seconds": float64(due.Unix())})
	if v, _, _ := sample(t, "rediscluster_phase", "name=shown", "phase=Creating"); v != 1 {
		t.Error("the phase is not Creating")
	}
	if _, _, found := sample(t, "rediscluster_last_backup_timestamp_seconds", "name=shown"); found {
		t.Error("a backup is shown that has never succeeded")
	}
	if v, _, _ := sample(t, "rediscluster_not_converged_since_timestamp_seconds", "name=shown"); time.Since(time.UnixMilli(int64(v*1000))) > time.Minute {
		t.Errorf("not converged since %f, want since now", v)
	}
	before, _, _ := sample(t, "redisclusters_not_converged")
	// A pass that could not look keeps what was seen last.
	see(Cluster{Generation: 1, Phase: redisv1.PhaseRunning, Converged: true, BackupEnded: true, LastBackup: backup})
	shows(map[string]float64{"shards_ok": 2, "last_backup_succeeded": 1, "last_backup_timestamp_seconds": float64(backup.Unix()),
		"not_converged_since_timestamp_seconds": 0})
	if after, _, _ := sample(t, "redisclusters_not_converged"); after != before-1 {
		t.Errorf("%g clusters are not converged, want %g", after, before-1)
	}
	if v, _, _ := sample(t, "rediscluster_phase", "name=shown"); v != 1 {
		t.Errorf("the cluster is in %g phases, want 1", v)
	}
	if _, _, found := sample(t, "rediscluster_backup_due_timestamp_seconds", "name=shown"); found {
		t.Error("a backup is due although the schedule was taken away")
	}
	Forget("shop", "shown")
	for _, d := range definitions {
		if _, _, found := sample(t, d.name[len(Prefix):], "name=shown"); found {
			t.Errorf("%s is left of a cluster that is gone", d.name)
		}
	}
}
