package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis/redistest"
	"github.com/example/redis-operator/test/apiserver"
)

// stage is a RedisCluster on a real API server. Nobody makes Pods there; a test
// that wants some runs real Redis servers and makes the Pods itself.
type stage struct {
	*testing.T
	admin   client.WithWatch
	cluster *redisv1.RedisCluster
	mu      sync.Mutex
	// writes counts the operator's writes; the one that failAt names fails.
	writes, failAt int
	r              *RedisClusterReconciler
}

var errInjected = errors.New("injected failure")

// discard drops Events: the e2e tests look at them.
type discard struct{}

func (discard) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (discard) AnnotatedEventf(runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any) {
}

func newStage(t *testing.T, spec redisv1.RedisClusterSpec) *stage {
	t.Helper()
	b := newBench(t)
	admin, err := client.NewWithWatch(apiserver.Config(t), client.Options{Scheme: b.admin.Scheme()})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	s := &stage{T: t, admin: admin}
	s.cluster = &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: apiserver.Namespace(t)}, Spec: spec}
	if err := admin.Create(t.Context(), s.cluster); err != nil {
		t.Fatalf("create the cluster: %v", err)
	}
	s.restart()
	return s
}

// restart replaces the operator by one that remembers nothing.
func (s *stage) restart() {
	count := func() error {
		s.mu.Lock() // the operator writes in parallel
		defer s.mu.Unlock()
		if s.writes++; s.writes == s.failAt {
			return errInjected
		}
		return nil
	}
	c := interceptor.NewClient(s.admin, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return errors.Join(count(), w.Create(ctx, o, opts...)) // done, but the answer is lost
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := count(); err != nil {
				return err
			}
			return w.Patch(ctx, o, p, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := count(); err != nil {
				return err
			}
			return w.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return errors.Join(count(), w.Delete(ctx, o, opts...))
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, sub string, o, made client.Object, opts ...client.SubResourceCreateOption) error {
			return errors.Join(count(), w.SubResource(sub).Create(ctx, o, made, opts...))
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := count(); err != nil {
				return err
			}
			return w.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	s.r = &RedisClusterReconciler{Client: c, APIReader: s.admin, Recorder: discard{}, OperatorImage: "operator:1"}
	s.r.applier = &Applier{Client: c, APIReader: s.admin}
}

// pass runs one pass and returns its error.
func (s *stage) pass() error {
	_, err := s.r.Reconcile(s.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.cluster)})
	return err
}

// get reads an object of the stage's namespace; false when there is none.
func (s *stage) get(o client.Object, name string) bool {
	s.Helper()
	err := s.admin.Get(s.Context(), client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		s.Fatalf("get %s: %v", name, err)
	}
	return err == nil
}

// ready reads the cluster and its condition Ready.
func (s *stage) ready() metav1.Condition {
	s.Helper()
	s.get(s.cluster, s.cluster.Name)
	if c := meta.FindStatusCondition(s.cluster.Status.Conditions, redisv1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// runServers starts a real server for every Pod that the StatefulSets want, and
// makes the Pods as a kubelet would show them.
func (s *stage) runServers() {
	s.Helper()
	secret := &corev1.Secret{}
	if !s.get(secret, manifests.OperatorSecretName(s.cluster)) {
		s.Fatal("the operator's Secret was not made")
	}
	password := string(secret.Data[manifests.OperatorPasswordKey])
	version := redistest.Versions(s)[0]
	for shard, members := range s.cluster.Spec.Members() {
		set := &appsv1.StatefulSet{}
		if !s.get(set, manifests.ShardName(s.cluster, shard)) {
			s.Fatalf("StatefulSet of shard %d was not made", shard)
		}
		if *set.Spec.Replicas != int32(members) {
			s.Fatalf("shard %d has %d members, want %d", shard, *set.Spec.Replicas, members)
		}
		for ordinal := range members {
			server := startServer(s, version, password)
			s.makePod(set, fmt.Sprintf("%s-%d", set.Name, ordinal), server.AddrPort().Addr().String())
		}
	}
}

// startServer starts a server as start.sh does.
func startServer(t testing.TB, v redistest.Version, password string) *redistest.Server {
	t.Helper()
	s := newServer(t, v, password)
	s.Run()
	return s
}

// newServer is one that has not been started.
func newServer(t testing.TB, v redistest.Version, password string) *redistest.Server {
	t.Helper()
	return redistest.New(t, v, "--user", "operator", "on", ">"+password, "~*", "&*", "+@all",
		"--masteruser", "operator", "--masterauth", password, "--cluster-allow-replica-migration", "no",
		"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0")
}

func (s *stage) makePod(set *appsv1.StatefulSet, name, ip string) {
	s.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: set.Namespace, Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: manifests.RedisContainer, Image: "redis"}}},
	}
	if err := s.admin.Create(s.Context(), pod); err != nil {
		s.Fatalf("create Pod: %v", err)
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: manifests.RedisContainer, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	if err := s.admin.Status().Update(s.Context(), pod); err != nil {
		s.Fatalf("set status of Pod: %v", err)
	}
}

// operators are what an operator may live through before each of its passes.
var operators = map[string]func(s *stage, pass int){
	"steady":                      func(*stage, int) {},
	"restarted before every pass": func(s *stage, _ int) { s.restart() },
	"every second pass loses a write": func(s *stage, pass int) {
		if s.failAt = 0; pass%2 == 0 {
			s.failAt = s.writes + 1 + pass/2%8
		}
	},
}

// TestAClusterIsFormed brings real servers together, with an operator that
// lives through it, one that starts anew before every pass, and one whose
// writes fail, each once.
func TestAClusterIsFormed(t *testing.T) {
	for name, before := range operators {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			six := int32(6)
			s := newStage(t, redisv1.RedisClusterSpec{Replicas: &six})
			served := false
			pass := 0
			redistest.Eventually(t, time.Minute, func() error {
				before(s, pass)
				pass++
				err := s.pass()
				if err != nil && !errors.Is(err, errInjected) {
					return err
				}
				if !served && pass >= 4 {
					s.failAt = 0
					if err := s.pass(); err != nil {
						return err
					}
					s.runServers()
					served = true
				}
				if ready := s.ready(); s.cluster.Status.Phase != redisv1.PhaseRunning {
					return fmt.Errorf("%s: %s", s.cluster.Status.Phase, ready.Message)
				}
				return nil
			})
			st := s.cluster.Status
			if st.ReadyReplicas != 6 || st.Shards != 3 {
				t.Errorf("%d ready in %d shards, want 6 in 3", st.ReadyReplicas, st.Shards)
			}
			var slots []string
			for _, shard := range st.ShardStatuses {
				slots = append(slots, shard.Slots)
			}
			if got := strings.Join(slots, ","); got != "0-5461,5462-10922,10923-16383" {
				t.Errorf("slots %s", got)
			}
			s.failAt = 0
			if err := s.pass(); err != nil {
				t.Fatal(err)
			}
			if s.writes = 0; s.pass() != nil || s.writes != 0 {
				t.Errorf("%d writes by a pass over a converged cluster", s.writes)
			}
		})
	}
}

// TestProblemsAreSaidAndMendThemselves: what is missing outside gives a reason,
// and nothing is made before it is there.
func TestProblemsAreSaidAndMendThemselves(t *testing.T) {
	missing := "missing"
	tests := []struct {
		name   string
		spec   redisv1.RedisClusterSpec
		reason string
		mend   func(*stage)
	}{
		{"Secret missing", redisv1.RedisClusterSpec{Auth: &redisv1.AuthSpec{SecretName: "mine"}}, redisv1.ReasonSecretNotFound,
			func(s *stage) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: s.cluster.Namespace},
					StringData: map[string]string{"password": "x"}}
				if err := s.admin.Create(s.Context(), secret); err != nil {
					s.Fatal(err)
				}
			}},
		{"StorageClass missing", redisv1.RedisClusterSpec{Storage: &redisv1.StorageSpec{
			Size: resource.MustParse("1Gi"), StorageClassName: &missing}}, redisv1.ReasonStorageClassNotFound,
			func(s *stage) {
				s.get(s.cluster, s.cluster.Name)
				s.cluster.Spec.Storage.StorageClassName = nil
				if err := s.admin.Update(s.Context(), s.cluster); err != nil {
					s.Fatal(err)
				}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.spec)
			for range 2 {
				if err := s.pass(); err != nil {
					t.Fatal(err)
				}
			}
			if c := s.ready(); c.Reason != tt.reason || !strings.Contains(c.Message, "m") || s.cluster.Status.Phase != redisv1.PhasePending {
				t.Errorf("phase %s, reason %s: %s", s.cluster.Status.Phase, c.Reason, c.Message)
			}
			if s.get(&appsv1.StatefulSet{}, "orders-0") {
				t.Error("a StatefulSet was made all the same")
			}
			tt.mend(s)
			if err := s.pass(); err != nil {
				t.Fatal(err)
			}
			if !s.get(&appsv1.StatefulSet{}, "orders-0") {
				t.Errorf("mended, and no StatefulSet: %s", s.ready().Message)
			}
		})
	}
}

// TestAStrangersObjectIsLeftAlone for each kind that has a name of its own.
func TestAStrangersObjectIsLeftAlone(t *testing.T) {
	for kind, stranger := range map[string]client.Object{
		"Service":   &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "orders"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "shop"}}},
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config"}, Data: map[string]string{"a": "b"}},
		"Secret":    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "orders-operator"}, StringData: map[string]string{"password": "theirs"}},
	} {
		t.Run(kind, func(t *testing.T) {
			one := int32(1)
			s := newStage(t, redisv1.RedisClusterSpec{Replicas: &one})
			stranger.SetNamespace(s.cluster.Namespace)
			if err := s.admin.Create(t.Context(), stranger); err != nil {
				t.Fatal(err)
			}
			version := stranger.GetResourceVersion()
			for range 2 {
				if err := s.pass(); err != nil {
					t.Fatal(err)
				}
			}
			c := s.ready()
			if !meta.IsStatusConditionTrue(s.cluster.Status.Conditions, redisv1.ConditionNameConflict) || c.Reason != redisv1.ReasonNameConflict ||
				!strings.Contains(c.Message, kind) || !strings.Contains(c.Message, stranger.GetName()) {
				t.Errorf("reason %s: %s", c.Reason, c.Message)
			}
			if s.get(stranger, stranger.GetName()); stranger.GetResourceVersion() != version {
				t.Error("the stranger's object was changed")
			}
			if err := s.admin.Delete(t.Context(), stranger); err != nil {
				t.Fatal(err)
			}
			if err := s.pass(); err != nil {
				t.Fatal(err)
			}
			if s.ready(); meta.FindStatusCondition(s.cluster.Status.Conditions, redisv1.ConditionNameConflict) != nil {
				t.Error("the conflict stays after the object has gone")
			}
		})
	}
}

// TestPausedAndDeletedClustersAreNotTouched: nothing is made for either.
func TestPausedAndDeletedClustersAreNotTouched(t *testing.T) {
	s := newStage(t, redisv1.RedisClusterSpec{Paused: true})
	if err := s.pass(); err != nil {
		t.Fatal(err)
	}
	if s.ready(); s.cluster.Status.Phase != redisv1.PhasePaused || s.get(&corev1.Service{}, "orders") {
		t.Errorf("phase %s; a Service was made: %v", s.cluster.Status.Phase, s.get(&corev1.Service{}, "orders"))
	}
	s.cluster.Finalizers, s.cluster.Spec.Paused = []string{"example.com/hold"}, false
	if err := s.admin.Update(t.Context(), s.cluster); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Delete(t.Context(), s.cluster); err != nil {
		t.Fatal(err)
	}
	if s.writes = 0; s.pass() != nil || s.writes != 0 {
		t.Errorf("%d writes for a cluster that is being deleted", s.writes)
	}
	s.get(s.cluster, s.cluster.Name)
	s.cluster.Finalizers = nil
	if err := s.admin.Update(t.Context(), s.cluster); err != nil {
		t.Fatal(err)
	}
	if err := s.pass(); err != nil {
		t.Errorf("a pass over a cluster that is gone: %v", err)
	}
}
