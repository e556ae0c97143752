// Package controllers holds the reconcilers. A pass of RedisCluster is four
// steps, one file each: observe.go looks, internal/topology plans, act.go acts,
// report.go writes what was seen. It is the only package, beside main, that
// holds a Kubernetes client.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// How long a pass waits for the next one, when no watch wakes it earlier.
const (
	// restInterval is the beat at which a converged cluster's nodes are looked
	// at. It costs no request to the API server.
	restInterval = 20 * time.Second
	// soonest and latest bound the wait while something is expected of Redis.
	// Between them it is a tenth of the time waited so far: prompt at first,
	// and never a hot loop.
	soonest = 100 * time.Millisecond
	latest  = 5 * time.Second
	// blockedInterval is the beat while something outside is missing that no
	// watch tells about, as a Secret or a StorageClass.
	blockedInterval = 5 * time.Second
)

// RedisClusterReconciler brings RedisClusters to what their specs ask for.
type RedisClusterReconciler struct {
	// Client reads children from the cache and writes.
	Client client.Client
	// APIReader reads live what is not watched: Secrets and StorageClasses.
	APIReader client.Reader
	// Recorder writes Events (events.k8s.io/v1).
	Recorder recorder.EventRecorder
	// OperatorImage is the operator's own image, which backups and restores run in.
	// Empty: there are none, and a spec that asks for one is told so.
	OperatorImage string
	// Images replace those of Docker Hub for what spec.image leaves out.
	Images manifests.Images

	applier  *Applier
	sentries sentries
	memory   memories
	clock    clock
}

// +kubebuilder:rbac:groups=redis.example.com,resources=redisclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=redis.example.com,resources=redisclusters/status,verbs=patch
// +kubebuilder:rbac:groups=redis.example.com,resources=redisclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=list;patch
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=redis.example.com,resources=redisbackups,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile is one pass over one cluster. It never sleeps; it blocks at most
// for the deadlines of its Redis and API calls.
func (r *RedisClusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, watch := metrics.StartPass(ctx, "rediscluster", req.Namespace, req.Name)
	defer watch.End()
	cluster := &redisv1.RedisCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.drop(req.NamespacedName)
			r.sentries.guard(req.NamespacedName, nil)
			r.applier.Forget(req.NamespacedName)
			metrics.Forget(req.Namespace, req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get RedisCluster: %w", err)
	}
	// The garbage collector removes the children by their owner references.
	// Nothing may be made again meanwhile.
	if !cluster.DeletionTimestamp.IsZero() {
		r.sentries.guard(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	}
	r.Images.Fill(cluster) // the status alone is written back
	p := &pass{
		r: r, cluster: cluster, watch: watch, mem: r.memory.of(req.NamespacedName, cluster.UID),
		facts: status.Facts{
			Desired:  topology.Desired{Members: cluster.Spec.Members(), Yield: cluster.HandOver(r.clock.now())},
			Observed: &topology.Observed{},
			Selector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: manifests.Selector(cluster)}),
			Now:      metav1.NewTime(r.clock.now()),
		},
	}
	defer p.close()
	p.facts.Err = p.run(ctx)
	return p.finish(ctx)
}

// clock tells the time; nil is that of this machine.
type clock func() time.Time

func (c clock) now() time.Time {
	if c == nil {
		return time.Now()
	}
	return c()
}

// pass is one pass over one cluster: what it knows and has open.
type pass struct {
	r       *RedisClusterReconciler
	cluster *redisv1.RedisCluster
	mem     *memory
	watch   *metrics.Pass
	kube    kubeState
	nodes   map[string]*connection
	facts   status.Facts
	events  []news
	// templates are the hashes of the templates that shards should have.
	templates map[int]string
	// seeding is what the first Pods are filled from; nil when no template says so.
	// seeded: every one of them was seen to be filled.
	seeding *manifests.Seeding
	seeded  bool
	// backups are the RedisBackups of the cluster, to be read only.
	backups []*redisv1.RedisBackup
	// tick is the time until the next backup of the schedule; 0: there is none.
	tick time.Duration
	// growing is set while volumes or what describes them are on their way to a
	// new size.
	growing bool
}

// run observes, plans and acts. What it learns stays in facts, also when it
// ends early with an error.
func (p *pass) run(ctx context.Context) error {
	p.watch.At(metrics.ObserveKubernetes)
	if err := p.observeKubernetes(ctx); err != nil {
		return err
	}
	if err := p.observeBackups(ctx); err != nil {
		return err
	}
	p.watch.At(metrics.Act)
	if ok, err := p.prepareRestore(ctx); err != nil || !ok {
		return err
	}
	if err := p.ensureChildren(ctx); err != nil {
		return err
	}
	p.watch.At(metrics.ObserveRedis)
	if err := p.observeRedis(ctx); err != nil {
		return err
	}
	if err := errors.Join(p.gatherEvidence(ctx), p.lookForStrayKeys(ctx)); err != nil {
		return err
	}
	p.watch.At(metrics.Plan)
	p.judgeRestore()
	p.postSentries()
	p.facts.Plan = topology.Next(p.facts.Desired, p.facts.Observed)
	p.facts.Strangers = p.mem.lasting(topology.Strangers(p.facts.Observed), p.facts.Now.Time)
	if p.cluster.Spec.Paused {
		return nil
	}
	p.watch.At(metrics.Act)
	if err := p.scheduleBackups(ctx); err != nil {
		return err
	}
	if err := p.act(ctx); err != nil {
		return err
	}
	return errors.Join(p.labelRoles(ctx), p.replaceBrokenPods(ctx), p.configure(ctx))
}

// finish reports, and says when to look again.
func (p *pass) finish(ctx context.Context) (ctrl.Result, error) {
	logger := log.FromContext(ctx)
	err := p.facts.Err
	p.watch.At(metrics.Status)
	deferred, reportErr := p.report(ctx)
	if err = errors.Join(err, reportErr); err != nil {
		// A conflict is somebody else's write that the cache has not shown yet.
		// So is an object of a deleted cluster of this name.
		var conflict *NameConflictError
		if apierrors.IsConflict(err) || errors.As(err, &conflict) && conflict.Leftover {
			return ctrl.Result{RequeueAfter: soonest}, nil
		}
		return ctrl.Result{}, err
	}
	after := p.nextLook()
	if deferred > 0 {
		after = min(after, deferred)
	}
	if p.tick > 0 {
		after = min(after, p.tick)
	}
	logger.V(1).Info("pass done", "why", p.facts.Plan.Why, "actions", len(p.facts.Plan.Actions), "nextLook", after)
	return ctrl.Result{RequeueAfter: after}, nil
}

// nextLook is the time until the next pass if nothing wakes the queue before.
func (p *pass) nextLook() time.Duration {
	plan := p.facts.Plan
	waited := p.mem.waiting(plan.Why, len(plan.Actions) > 0)
	switch {
	case p.cluster.Spec.Paused:
		return restInterval
	case len(plan.Actions) > 0 && plan.Actions[0].Kind == topology.MoveSlots && p.facts.Err == nil && len(p.facts.Problems) == 0:
		return time.Millisecond // the pass has taken its time
	case len(plan.Actions) > 0 && plan.Actions[0].Kind == topology.MoveSlots:
		return blockedInterval // a server refuses: asking at once would not help
	case len(plan.Actions) > 0:
		return soonest
	case len(p.facts.Problems) > 0:
		return blockedInterval
	case plan.Wait == topology.WaitNothing && p.growing:
		return growInterval
	case plan.Wait == topology.WaitNothing:
		return restInterval
	default:
		return min(max(waited/10, soonest), latest)
	}
}
