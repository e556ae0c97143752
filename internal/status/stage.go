package status

import (
	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
)

// stage is what a cluster is at, whether or not somebody is at work on it.
type stage int

const (
	// forming: it has never been whole.
	forming stage = iota
	// recovering: it has lost something that it had.
	recovering
	// scaling: its shape changes.
	scaling
	// rolling: its Pods are being replaced.
	rolling
	// settled: it has its shape, and every node is in its place.
	settled
)

// view is one look at a cluster: the facts, and what follows from them for more
// than one condition.
type view struct {
	Facts
	cluster *redisv1.RedisCluster
	// seen: the pass has asked the nodes.
	seen  bool
	stage stage
	// out are the wanted nodes that do not do their work, unmet those of them that
	// have not joined yet.
	out   []*topology.Node
	unmet map[*topology.Node]bool
}

// look makes the view; version is the highest that a primary has ever served.
func look(c *redisv1.RedisCluster, f Facts, version string) *view {
	v := &view{Facts: f, cluster: c, seen: f.Err == nil, out: topology.Out(f.Desired, f.Observed)}
	for i := range f.Observed.Nodes {
		v.seen = v.seen || f.Observed.Nodes[i].Knowledge == topology.Answered
	}
	v.unmet = topology.Unmet(f.Observed, v.out)
	v.stage = v.stageOf(version)
	return v
}

// was is the phase that the last status says.
func (v *view) was() redisv1.Phase { return v.cluster.Status.Phase }

// atStage is the stage that the cluster was at by the last status; ok is false for a
// phase that does not tell.
func (v *view) atStage() (s stage, ok bool) {
	switch v.was() {
	case redisv1.PhaseRecovering:
		return recovering, true
	case redisv1.PhaseScaling:
		return scaling, true
	case redisv1.PhaseUpdating:
		return rolling, true
	}
	return settled, false
}

func (v *view) stageOf(version string) stage {
	before, told := v.atStage()
	d, o := v.Desired, v.Observed
	switch {
	case v.whole():
		return settled
	// A cluster is being created until it was whole for the first time.
	case version == "", v.was() == "", v.was() == redisv1.PhasePending, v.was() == redisv1.PhaseCreating, v.was() == redisv1.PhaseRestoring:
		return forming
	case !v.seen && told:
		return before
	case v.hasLost():
		return recovering
	case topology.Scaling(d, o), len(v.out) > 0 && (before == scaling || v.onlyUnmet()):
		return scaling
	case topology.Rolling(d, o), len(v.out) > 0 && before == rolling:
		return rolling
	case told:
		return before
	default:
		return recovering
	}
}

// whole tells whether nothing is missing and nothing is dangerous.
func (v *view) whole() bool {
	return v.Plan.Wait != topology.WaitPerson && !v.Restore.pending() && topology.Converged(v.Desired, v.Observed)
}

// converged tells whether the cluster is as the spec asks.
func (v *view) converged() bool { return v.Err == nil && len(v.Problems) == 0 && v.whole() }

// hasLost tells whether something is missing that no change of the cluster explains.
// Once that is so it stays so until every node is in its place: while a lost node
// comes back it looks at times like one that is being added.
func (v *view) hasLost() bool {
	if v.was() == redisv1.PhaseRecovering && len(v.out) > 0 {
		return true
	}
	before, _ := v.atStage()
	rolls := before == rolling || topology.Rolling(v.Desired, v.Observed)
	free := topology.AllSlots.Minus(v.Observed.Owned()).Minus(topology.Promised(v.Observed))
	if !free.Empty() {
		return !rolls || !v.aloneAndOut()
	}
	shard, missed := -1, topology.Missed(v.Observed)
	for _, n := range v.out {
		switch {
		case v.unmet[n]:
		case before == scaling:
			if missed[n.Shard] {
				return true
			}
		case before == rolling:
			// One Pod is replaced at a time. All members of its shard are out for a
			// moment when they get another primary.
			if shard >= 0 && shard != n.Shard {
				return true
			}
			shard = n.Shard
		case !n.Outdated || !n.Ending:
			return true
		}
	}
	return false
}

// aloneAndOut tells whether the one node that is out is all that its shard has.
func (v *view) aloneAndOut() bool {
	return len(v.out) == 1 && v.Desired.Members[v.out[0].Shard] == 1
}

// onlyUnmet tells whether the nodes that are out have not joined yet.
func (v *view) onlyUnmet() bool {
	for _, n := range v.out {
		if !v.unmet[n] {
			return false
		}
	}
	return true
}

// phase sums the conditions up.
func (v *view) phase() redisv1.Phase {
	switch {
	case v.cluster.Spec.Paused:
		return redisv1.PhasePaused
	case v.Plan.Wait == topology.WaitPerson, v.Restore.Failed:
		return redisv1.PhaseFailed
	case v.converged():
		return redisv1.PhaseRunning
	case v.blind() && v.was() != "" && v.was() != redisv1.PhasePaused:
		return v.was()
	}
	switch v.stage {
	case recovering:
		return redisv1.PhaseRecovering
	case scaling:
		return redisv1.PhaseScaling
	case rolling:
		return redisv1.PhaseUpdating
	case settled:
		return v.held()
	}
	if len(v.Problems) > 0 && v.Pods == 0 {
		return redisv1.PhasePending
	}
	if v.Restore.Reason != "" {
		return redisv1.PhaseRestoring
	}
	return redisv1.PhaseCreating
}

// held is the phase of a whole cluster that is not what the spec asks for, because of
// a problem or an error: it goes on to be what it was, or is one that should change.
func (v *view) held() redisv1.Phase {
	_, told := v.atStage()
	switch {
	case told, v.was() == redisv1.PhaseCreating, v.was() == redisv1.PhaseRestoring:
		return v.was()
	case len(v.Problems) > 0:
		return redisv1.PhaseUpdating
	default:
		return redisv1.PhaseRecovering
	}
}
