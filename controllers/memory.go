package controllers

import (
	"sync"
	"time"

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
	ms.m[key] = &memory{uid: uid, labelled: map[types.UID]string{}}
	return ms.m[key]
}

func (ms *memories) drop(key types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.m, key)
}
