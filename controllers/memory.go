package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/topology"
)

// memory is what the operator remembers of one cluster between passes. All of
// it only saves requests or paces waits: losing it, as at a restart of the
// operator, changes no decision.
type memory struct {
	uid types.UID
	// password of the operator's user; empty until it was read.
	password string
	// labelled is the role that was last written to a Pod, by UID, until the
	// cache shows it.
	labelled map[types.UID]string
	// asked are the promotions that were asked for, by the id of the replica.
	asked map[string]asking
	// replicas are the ids that were replicas at the last look, elected those that
	// have become primaries since, and when that was seen.
	replicas map[string]bool
	elected  map[string]time.Time
	// evicted are the Pods that were evicted and that the cache may still show as
	// they were, by UID.
	evicted map[types.UID]time.Time
	// strangers are the ids that no Pod has, and since when they have been seen.
	strangers map[string]time.Time
	// configured is, by Pod, the run of the server that got the directives of
	// spec.config, and which.
	configured map[string]string
	// checked is the generation whose references (Secret, StorageClass) were
	// all found to exist.
	checked int64
	// checkedSource: what the destination of spec.restoreFrom refers to was found to
	// exist.
	checkedSource bool
	// written is the last status that was written, with its resourceVersion and
	// time, until the cache shows it.
	written        *redisv1.RedisClusterStatus
	writtenVersion string
	writtenAt      time.Time
	// grown are claims as they were last written, by UID, until the cache shows
	// them; released is the StatefulSet that was last deleted without its Pods;
	// refused is why claims could not grow.
	grown    map[types.UID]*corev1.PersistentVolumeClaim
	released types.UID
	refused  refusedGrowth
	// why is what is being waited for, and since when.
	why      string
	whySince time.Time
}

// asking is a promotion that was asked for, and when.
type asking struct {
	kind topology.Kind
	at   time.Time
}

// patience is how long a promotion can take. A forced election is won in a tenth of
// a second; a graceful hand-over is given up by the server after 5 seconds.
var patience = map[topology.Kind]time.Duration{topology.Force: 500 * time.Millisecond, topology.Handover: 6 * time.Second}

// rest is for how long Redis 7 and 8 hold it against a node that it was elected:
// four times cluster-node-timeout.
const rest = 20 * time.Second

// recall adds to what is observed what was asked for and seen before.
func (m *memory) recall(o *topology.Observed, now time.Time) {
	o.Asked, o.Elected = map[string]topology.Asked{}, map[string]bool{}
	replicas := map[string]bool{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		switch {
		case n.Knowledge != topology.Answered:
			replicas[n.ID] = m.replicas[n.ID]
			continue
		case n.Primary && m.replicas[n.ID]:
			m.elected[n.ID] = now
		}
		replicas[n.ID] = !n.Primary
		if n.Primary {
			delete(m.asked, n.ID)
		}
	}
	m.replicas = replicas
	for id, a := range m.asked {
		o.Asked[id] = topology.Asked{Kind: a.kind, Due: now.Sub(a.at) > patience[a.kind]}
		if now.Sub(a.at) > rest {
			delete(m.asked, id)
		}
	}
	for id, at := range m.elected {
		if o.Elected[id] = now.Sub(at) < rest; !o.Elected[id] {
			delete(m.elected, id)
		}
	}
}

// strange is for how long an id that no Pod has may be in the tables before it is a
// stranger's: nodes of the past are forgotten within that time.
const strange = 30 * time.Second

// lasting are those of the ids that have been seen for long.
func (m *memory) lasting(ids []string, now time.Time) []string {
	seen := map[string]time.Time{}
	var out []string
	for _, id := range ids {
		since, ok := m.strangers[id]
		if !ok {
			since = now
		}
		seen[id] = since
		if now.Sub(since) > strange {
			out = append(out, id)
		}
	}
	m.strangers = seen
	return out
}

// waiting notes what a pass waits for and tells for how long that has been so.
func (m *memory) waiting(why string, acting bool) time.Duration {
	if acting || why != m.why {
		m.why, m.whySince = why, time.Now()
	}
	return time.Since(m.whySince)
}

// latestStatus is the newer of the cached status and the one that was written
// last: right after a write the cache still shows the status before it.
func (m *memory) latestStatus(c *redisv1.RedisCluster) redisv1.RedisClusterStatus {
	if m.written == nil {
		return c.Status
	}
	if cmp, err := resourceversion.CompareResourceVersion(c.ResourceVersion, m.writtenVersion); err != nil || cmp >= 0 {
		m.written = nil
		return c.Status
	}
	return *m.written
}

// latestClaim is the newer of the cached claim and the one that was written last.
func (m *memory) latestClaim(cached *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	written := m.grown[cached.UID]
	if written == nil {
		return cached
	}
	if cmp, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, written.ResourceVersion); err != nil || cmp >= 0 {
		delete(m.grown, cached.UID)
		return cached
	}
	return written
}

// memories holds the memory of each cluster. The zero value is ready for use.
// One key is never reconciled twice at once, so a memory itself needs no lock.
type memories struct {
	mu sync.Mutex
	m  map[types.NamespacedName]*memory
}

func (ms *memories) of(key types.NamespacedName, uid types.UID) *memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.m == nil {
		ms.m = map[types.NamespacedName]*memory{}
	}
	// A cluster that was made again under the same name is another one.
	if m := ms.m[key]; m != nil && m.uid == uid {
		return m
	}
	ms.m[key] = &memory{
		uid: uid, labelled: map[types.UID]string{}, grown: map[types.UID]*corev1.PersistentVolumeClaim{},
		asked: map[string]asking{}, replicas: map[string]bool{}, elected: map[string]time.Time{},
		configured: map[string]string{}, evicted: map[types.UID]time.Time{}, strangers: map[string]time.Time{},
	}
	return ms.m[key]
}

func (ms *memories) drop(key types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.m, key)
}
