package metrics

import (
	"maps"
	"strconv"
	"sync"
	"time"
)

var (
	watchedLabel = label{name: "resource", values: []string{
		"redisclusters", "redisbackups", "statefulsets", "services", "configmaps", "pods", "persistentvolumeclaims", "poddisruptionbudgets",
		"networkpolicies", "jobs", Other,
	}}

	watchLag = histogram("watch_lag_seconds",
		"time from the API server's answer to a write of the operator until the informer has delivered that version", quick, watchedLabel)
)

// informers is what the operator's informers have delivered.
var informers = &deliveries{}

func init() {
	scraped("watch_oldest_pending_seconds", "age of the oldest write of the operator that the informer has not delivered; 0 when it has delivered all",
		[]label{watchedLabel}, func(set func(float64, ...string)) {
			informers.each(func(resource string, _, oldest time.Duration) { set(oldest.Seconds(), resource) })
		})
	scraped("watch_cache_age_seconds", "time since the informer delivered anything; it grows while nothing changes",
		[]label{watchedLabel}, func(set func(float64, ...string)) {
			informers.each(func(resource string, age, _ time.Duration) { set(age.Seconds(), resource) })
		})
}

// object is one that is watched.
type object struct {
	resource string
	objectKey
}

// write is one that the informer has yet to deliver, for a RedisCluster.
type write struct {
	version uint64
	at      time.Time
	cluster objectKey
}

// deliveries holds what was written and what was delivered. Versions are compared
// as numbers, as Kubernetes promises for those of one resource.
type deliveries struct {
	mu        sync.Mutex
	delivered map[object]uint64
	pending   map[object]write
	// gone are objects whose end was delivered a moment ago: the answer to a write
	// may come after that.
	gone map[object]time.Time
	// latest delivery of each resource that is watched.
	latest map[string]time.Time
}

// goneFor is for how long the end of an object is remembered.
const goneFor = time.Minute

// Watching notes that an informer watches a resource from now on.
func Watching(resource string) {
	if !off.Load() {
		informers.watch(watchedLabel.of(resource), time.Now())
	}
}

// Wrote notes the API server's answer to a write of the operator for a RedisCluster
// in the same namespace: the object's new resourceVersion. One that the informer has
// delivered already has no lag; one of a resource that nobody watches is not counted.
func Wrote(cluster, resource, namespace, name, version string) {
	if !off.Load() {
		informers.wrote(object{watchedLabel.of(resource), objectKey{namespace, name}}, objectKey{namespace, cluster}, version, time.Now())
	}
}

// Delivered notes that the informer has shown a version of an object.
func Delivered(resource, namespace, name, version string) {
	if !off.Load() {
		informers.show(object{watchedLabel.of(resource), objectKey{namespace, name}}, version, time.Now())
	}
}

// Removed notes that the informer has shown the end of an object.
func Removed(resource, namespace, name string) {
	if !off.Load() {
		informers.remove(object{watchedLabel.of(resource), objectKey{namespace, name}}, time.Now())
	}
}

func (d *deliveries) wrote(o object, cluster objectKey, version string, now time.Time) {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, watched := d.latest[o.resource]; !watched || now.Sub(d.gone[o]) < goneFor {
		return
	}
	if d.delivered[o] >= v {
		watchLag.WithLabelValues(o.resource).Observe(0)
		return
	}
	// Of several writes on their way the first counts: its wait is the longest.
	if _, waits := d.pending[o]; !waits {
		d.pending[o] = write{version: v, at: now, cluster: cluster}
		tracks.pending(cluster, 1, now)
	}
}

func (d *deliveries) show(o object, version string, now time.Time) {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.touch(o.resource, now)
	delete(d.gone, o)
	d.delivered[o] = max(d.delivered[o], v)
	if w, waits := d.pending[o]; waits && w.version <= v {
		watchLag.WithLabelValues(o.resource).Observe(now.Sub(w.at).Seconds())
		d.settle(o, now)
	}
}

func (d *deliveries) remove(o object, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.touch(o.resource, now)
	delete(d.delivered, o)
	d.gone[o] = now
	maps.DeleteFunc(d.gone, func(_ object, at time.Time) bool { return now.Sub(at) > goneFor })
	d.settle(o, now)
}

func (d *deliveries) settle(o object, now time.Time) {
	if w, waits := d.pending[o]; waits {
		delete(d.pending, o)
		tracks.pending(w.cluster, -1, now)
	}
}

func (d *deliveries) watch(resource string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.touch(resource, now)
}

func (d *deliveries) touch(resource string, now time.Time) {
	if d.delivered == nil {
		d.delivered, d.pending = map[object]uint64{}, map[object]write{}
		d.gone, d.latest = map[object]time.Time{}, map[string]time.Time{}
	}
	d.latest[resource] = now
}

// each tells of every resource the time since its last delivery and the age of
// the oldest write that is on its way.
func (d *deliveries) each(tell func(resource string, age, oldest time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	oldest := map[string]time.Duration{}
	for o, w := range d.pending {
		oldest[o.resource] = max(oldest[o.resource], now.Sub(w.at))
	}
	for resource, at := range d.latest {
		tell(resource, now.Sub(at), oldest[resource])
	}
}
