package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	redisv1 "github.com/example/redis-operator/api/v1"
)

var (
	namespaceLabel = label{name: "namespace", meaning: "of the RedisCluster"}
	nameLabel      = label{name: "name", meaning: "of the RedisCluster"}
	phases         = []redisv1.Phase{
		redisv1.PhasePending, redisv1.PhaseCreating, redisv1.PhaseRestoring, redisv1.PhaseRunning, redisv1.PhaseScaling, redisv1.PhaseUpdating,
		redisv1.PhaseRecovering, redisv1.PhasePaused, redisv1.PhaseFailed,
	}
	phaseLabel = label{name: "phase", values: values(phases)}

	clusterShards     = gauge("rediscluster_shards", "shards that the spec asks for", namespaceLabel, nameLabel)
	clusterShardsOK   = gauge("rediscluster_shards_ok", "wanted shards that have all their members, each ready and in its role", namespaceLabel, nameLabel)
	clusterUnassigned = gauge("rediscluster_slots_unassigned", "slots without a primary that answers", namespaceLabel, nameLabel)
	clusterMoving     = gauge("rediscluster_slots_moving", "slots that are still to move to another primary", namespaceLabel, nameLabel)
	clusterReplicas   = gauge("rediscluster_replicas", "replicas that the spec asks for, primaries left out", namespaceLabel, nameLabel)
	clusterInSync     = gauge("rediscluster_replicas_in_sync", "replicas that follow their shard's primary with the link up", namespaceLabel, nameLabel)
	clusterUncovered  = gauge("rediscluster_shards_without_synced_replica",
		"shards that should have a replica and have none whose link is up: a failure now would lose writes", namespaceLabel, nameLabel)
	clusterPhase = gauge("rediscluster_phase", "1 for the phase that the cluster is in, 0 for the others", namespaceLabel, nameLabel, phaseLabel)
	clusterSince = gauge("rediscluster_not_converged_since_timestamp_seconds",
		"Unix time since which the cluster is not as it should be; 0 when it is, or is paused", namespaceLabel, nameLabel)
	clusterBackup = gauge("rediscluster_last_backup_timestamp_seconds",
		"Unix time at which the last backup that succeeded was complete; none yet has no series", namespaceLabel, nameLabel)
	clusterBackupOK = gauge("rediscluster_last_backup_succeeded",
		"1 when the last backup that ended has succeeded, 0 when it has failed; none yet has no series", namespaceLabel, nameLabel)
	clusterBackupDue = gauge("rediscluster_backup_due_timestamp_seconds",
		"Unix time at which spec.backup asks for the first backup after the last one that succeeded; no series without a schedule", namespaceLabel, nameLabel)

	ofCluster = []*prometheus.GaugeVec{clusterShards, clusterShardsOK, clusterUnassigned, clusterMoving, clusterReplicas, clusterInSync, clusterUncovered,
		clusterPhase, clusterSince, clusterBackup, clusterBackupOK, clusterBackupDue}
)

// Cluster is a RedisCluster as its user sees it.
type Cluster struct {
	Namespace, Name string
	// Generation of the spec.
	Generation int64
	// Phase is that of the status.
	Phase redisv1.Phase
	// Converged: everything is as the spec asks.
	Converged bool
	// View is what the pass has seen of Redis; nil when it did not look.
	View *View
	// LastBackup is when the last backup that succeeded was complete; zero: none has.
	LastBackup time.Time
	// BackupEnded: a backup has ended, and BackupFailed tells how the last one did.
	BackupEnded, BackupFailed bool
	// BackupDue is when the schedule asks for the first backup after LastBackup; zero:
	// there is no schedule.
	BackupDue time.Time
}

// View is what Redis says of a cluster.
type View struct {
	// Shards and Replicas are what the spec asks for.
	Shards, Replicas int
	// ShardsOK have all their members, ready and in their roles.
	ShardsOK int
	// SlotsUnassigned have no primary that answers, SlotsMoving are to move.
	SlotsUnassigned, SlotsMoving int
	// ReplicasInSync have their link up.
	ReplicasInSync int
	// Uncovered shards should have a replica in sync and have none.
	Uncovered int
}

// same tells whether another look has shown the same.
func (c *Cluster) same(d *Cluster) bool {
	if d == nil || (c.View == nil) != (d.View == nil) || c.View != nil && *c.View != *d.View {
		return false
	}
	a, b := *c, *d
	a.View, b.View = nil, nil
	return a == b
}

// show sets the gauges of a cluster that is not converged since a time, zero when it
// is.
func (c *Cluster) show(since time.Time) {
	set := func(g *prometheus.GaugeVec, value float64) { g.WithLabelValues(c.Namespace, c.Name).Set(value) }
	for _, p := range phases {
		value := 0.0
		if p == c.Phase {
			value = 1
		}
		clusterPhase.WithLabelValues(c.Namespace, c.Name, string(p)).Set(value)
	}
	set(clusterSince, unix(since))
	if v := c.View; v != nil {
		set(clusterShards, float64(v.Shards))
		set(clusterShardsOK, float64(v.ShardsOK))
		set(clusterUnassigned, float64(v.SlotsUnassigned))
		set(clusterMoving, float64(v.SlotsMoving))
		set(clusterReplicas, float64(v.Replicas))
		set(clusterInSync, float64(v.ReplicasInSync))
		set(clusterUncovered, float64(v.Uncovered))
	}
	if c.BackupEnded {
		ok := 1.0
		if c.BackupFailed {
			ok = 0
		}
		set(clusterBackupOK, ok)
	}
	for g, at := range map[*prometheus.GaugeVec]time.Time{clusterBackup: c.LastBackup, clusterBackupDue: c.BackupDue} {
		if at.IsZero() {
			g.DeleteLabelValues(c.Namespace, c.Name)
		} else {
			set(g, unix(at))
		}
	}
}

func unix(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

// Forget takes away the series of a cluster that is gone.
func Forget(namespace, name string) {
	for _, g := range ofCluster {
		g.DeletePartialMatch(prometheus.Labels{namespaceLabel.name: namespace, nameLabel.name: name})
	}
	tracks.forget(objectKey{namespace, name})
}
