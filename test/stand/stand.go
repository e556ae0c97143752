//go:build linux

package stand

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

// NodeName is the node that all Pods run on.
const NodeName = "stand"

// Options say what the stand works on.
type Options struct {
	// Config reaches the API server, as its administrator.
	Config *rest.Config
	// Namespace to play in; empty: all.
	Namespace string
	// Dir is where the Pods' volumes are. It is the caller's to remove.
	Dir string
	// Directives are added to the redis.conf of every server: "hz 1".
	Directives []string
	// Hung tells whether a Pod's server is one that takes connections and never
	// answers; nil: none does.
	Hung func(pod types.NamespacedName) bool
}

// Stand is one that runs.
type Stand struct {
	Options
	client client.Client
	stop   context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	pods map[types.NamespacedName]*pod
	// next is the next loopback address to try.
	next atomic.Uint32
	// exits are the Pods whose servers have ended.
	exits chan event.GenericEvent
}

// Start begins to play. It returns when the API server is watched, and works until
// Stop.
func Start(ctx context.Context, o Options) (*Stand, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), redisv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.QPS = -1
	yes := true
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		// Several may be started one after the other in a process.
		Controller: config.Controller{SkipNameValidation: &yes},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		Cache:      cacheOf(o.Namespace),
	})
	if err != nil {
		return nil, fmt.Errorf("make the stand's manager: %w", err)
	}
	s := &Stand{Options: o, client: mgr.GetClient(), pods: map[types.NamespacedName]*pod{}, ended: make(chan error, 1), exits: make(chan event.GenericEvent, 1024)}
	s.next.Store(firstAddress())
	workers := controller.Options{MaxConcurrentReconciles: 16} // they mostly wait for answers
	err = errors.Join(
		ctrl.NewControllerManagedBy(mgr).Named("stand-statefulsets").For(&appsv1.StatefulSet{}).Owns(&corev1.Pod{}).WithOptions(workers).
			Complete(&statefulSets{s}),
		ctrl.NewControllerManagedBy(mgr).Named("stand-pods").For(&corev1.Pod{}).WithOptions(workers).
			WatchesRawSource(source.Channel(s.exits, &handler.EnqueueRequestForObject{})).Complete(&kubelet{s}),
	)
	if err != nil {
		return nil, fmt.Errorf("set up the stand: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() { s.ended <- mgr.Start(run) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		stop()
		return nil, errors.Join(errors.New("the stand's cache has not synced"), <-s.ended)
	}
	return s, nil
}

func cacheOf(namespace string) cache.Options {
	o := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if namespace != "" {
		o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return o
}

// Stop ends the playing and all servers.
func (s *Stand) Stop() error {
	s.stop()
	err := <-s.ended
	s.mu.Lock()
	pods := s.pods
	s.pods = map[types.NamespacedName]*pod{}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(p.kill)
	}
	wg.Wait()
	return err
}

// Kill ends a Pod's server as a crash would; the kubelet starts it again.
func (s *Stand) Kill(name types.NamespacedName) error {
	p := s.pod(name)
	if p == nil {
		return fmt.Errorf("no server runs for Pod %s", name)
	}
	p.crash()
	return nil
}

// Password of the operator's Redis user in a cluster.
func (s *Stand) Password(ctx context.Context, cluster types.NamespacedName) (string, error) {
	secret := &corev1.Secret{}
	c := &redisv1.RedisCluster{}
	c.Namespace, c.Name = cluster.Namespace, cluster.Name
	err := s.client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: manifests.OperatorSecretName(c)}, secret)
	if err != nil {
		return "", fmt.Errorf("get the operator's Secret: %w", err)
	}
	return string(secret.Data[manifests.OperatorPasswordKey]), nil
}

// Addresses are those of the servers that run, by Pod.
func (s *Stand) Addresses() map[types.NamespacedName]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.NamespacedName]string{}
	for name, p := range s.pods {
		out[name] = p.address()
	}
	return out
}

func (s *Stand) pod(name types.NamespacedName) *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[name]
}

// forget drops a Pod that ends.
func (s *Stand) forget(p *pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[p.name] == p {
		delete(s.pods, p.name)
	}
}
