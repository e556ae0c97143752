package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	redisv1 "github.com/example/redis-operator/api/v1"
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
	// checked is the generation whose references (Secret, StorageClass) were
	// all found to exist.
	checked int64
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
	ms.m[key] = &memory{uid: uid, labelled: map[types.UID]string{}, grown: map[types.UID]*corev1.PersistentVolumeClaim{}}
	return ms.m[key]
}

func (ms *memories) drop(key types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.m, key)
}
