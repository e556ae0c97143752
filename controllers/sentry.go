package controllers

import (
	"context"
	"net"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/topology"
)

// sentries hold an idle connection to each primary, and wake the queue when one
// breaks: a process that is killed is missed at once, and not when the kubelet
// looks next. A broken connection proves nothing; it only starts a pass. The zero value is
// ready for use, and tells nobody.
type sentries struct {
	// broken gets a cluster of which a connection has ended; nil for nobody.
	broken chan event.GenericEvent

	mu sync.Mutex
	// posts are the connections of each cluster, by address.
	posts map[types.NamespacedName]map[string]context.CancelFunc
}

// guard brings a cluster's connections to the given addresses; none ends them
// all. It does not block.
func (s *sentries) guard(cluster types.NamespacedName, addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]bool{}
	for _, address := range addresses {
		wanted[address] = true
		if s.posts[cluster][address] != nil {
			continue
		}
		if s.posts == nil {
			s.posts = map[types.NamespacedName]map[string]context.CancelFunc{}
		}
		if s.posts[cluster] == nil {
			s.posts[cluster] = map[string]context.CancelFunc{}
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.posts[cluster][address] = cancel
		go s.stand(ctx, cluster, address)
	}
	for address, cancel := range s.posts[cluster] {
		if !wanted[address] {
			cancel()
			delete(s.posts[cluster], address)
		}
	}
	if len(s.posts[cluster]) == 0 {
		delete(s.posts, cluster)
	}
}

// stand waits for the end of one connection.
func (s *sentries) stand(ctx context.Context, cluster types.NamespacedName, address string) {
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", address)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_, _ = conn.Read(make([]byte, 1)) // the server has nothing to say
		stop()
		_ = conn.Close()
	}
	s.mu.Lock()
	relieved := ctx.Err() != nil
	if !relieved {
		s.posts[cluster][address]() // frees the context
		delete(s.posts[cluster], address)
	}
	s.mu.Unlock()
	// A dial that failed is no news: the pass that asked for it had an answer from
	// there, and the next one asks for it again.
	if relieved || err != nil || s.broken == nil {
		return
	}
	s.broken <- event.GenericEvent{Object: &redisv1.RedisCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name},
	}}
}

// postSentries guards the primaries that the pass has seen.
func (p *pass) postSentries() {
	var addresses []string
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		if n.Knowledge == topology.Answered && n.Primary && !n.Slots.Empty() {
			addresses = append(addresses, net.JoinHostPort(n.IP, strconv.Itoa(manifests.RedisPort)))
		}
	}
	p.r.sentries.guard(types.NamespacedName{Namespace: p.cluster.Namespace, Name: p.cluster.Name}, addresses)
}
