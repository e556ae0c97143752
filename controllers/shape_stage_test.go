package controllers

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// shapeStage is a stage on which the test also does what Kubernetes' own
// controllers and the kubelet do for StatefulSets, budgets and Pods: none of them
// runs there. Every Pod is a real server.
type shapeStage struct {
	*stage
	version  redistest.Version
	password string
	servers  map[string]*redistest.Server // by the UID of the Pod
	// starts counts the Pods that were made; prepare puts into a server's folder what
	// a Pod's init containers would, nil for nothing.
	starts  int
	prepare func(set *appsv1.StatefulSet, pod, dir string)
}

func newShapeStage(t *testing.T, spec redisv1.RedisClusterSpec) *shapeStage {
	t.Helper()
	spec.Auth = &redisv1.AuthSpec{Disabled: true}
	return &shapeStage{stage: newStage(t, spec), version: redistest.Versions(t)[0], servers: map[string]*redistest.Server{}}
}

// kubernetes does once around what there is to do.
func (s *shapeStage) kubernetes() {
	s.Helper()
	if s.password == "" {
		secret := &corev1.Secret{}
		if !s.get(secret, manifests.OperatorSecretName(s.cluster)) {
			return
		}
		s.password = string(secret.Data[manifests.OperatorPasswordKey])
	}
	var sets appsv1.StatefulSetList
	var pods corev1.PodList
	var budgets policyv1.PodDisruptionBudgetList
	for _, list := range []client.ObjectList{&sets, &pods, &budgets} {
		if err := s.admin.List(s.Context(), list, client.InNamespace(s.cluster.Namespace)); err != nil {
			s.Fatalf("list: %v", err)
		}
	}
	wanted := map[string]*appsv1.StatefulSet{}
	for i := range sets.Items {
		set := &sets.Items[i]
		for ordinal := range *set.Spec.Replicas {
			wanted[fmt.Sprintf("%s-%d", set.Name, ordinal)] = set
		}
		if set.Status.ObservedGeneration != set.Generation {
			set.Status.ObservedGeneration = set.Generation
			s.must(s.admin.Status().Update(s.Context(), set))
		}
	}
	running := map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if wanted[pod.Name] == nil {
			s.must(s.admin.Delete(s.Context(), pod))
			continue
		}
		running[string(pod.UID)] = true
		delete(wanted, pod.Name)
	}
	for uid, server := range s.servers {
		if !running[uid] {
			server.Terminate()
			delete(s.servers, uid)
		}
	}
	for name, set := range wanted {
		server := newServer(s, s.version, s.password)
		if s.prepare != nil {
			s.prepare(set, name, server.Dir)
		}
		server.Run()
		s.starts++
		s.makePod(set, name, server.IP.String())
		pod := &corev1.Pod{}
		s.get(pod, name)
		s.servers[string(pod.UID)] = server
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: 1, ExpectedPods: 2, DesiredHealthy: 1, CurrentHealthy: 2}
		s.must(s.admin.Status().Update(s.Context(), b))
	}
}

func (s *shapeStage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until passes, with the given thing done before each, until the cluster is Running as
// asked with so many nodes.
func (s *shapeStage) until(before func(*stage, int), nodes int) {
	s.Helper()
	pass := 0
	redistest.Eventually(s, 2*time.Minute, func() error {
		before(s.stage, pass)
		pass++
		err := s.pass()
		s.kubernetes()
		if err != nil && !errors.Is(err, errInjected) {
			return err
		}
		ready := s.ready()
		st := s.cluster.Status
		if st.Phase != redisv1.PhaseRunning || int(st.ReadyReplicas) != nodes || st.ObservedGeneration != s.cluster.Generation || len(s.servers) != nodes {
			return fmt.Errorf("%s, %d of %d ready: %s", st.Phase, st.ReadyReplicas, nodes, ready.Message)
		}
		return nil
	})
	s.failAt = 0
}

// change changes the spec.
func (s *shapeStage) change(to func(*redisv1.RedisClusterSpec)) {
	s.Helper()
	s.get(s.cluster, s.cluster.Name)
	to(&s.cluster.Spec)
	s.must(s.admin.Update(s.Context(), s.cluster))
}

const shapeKeys = 2000

// client is a client of the whole cluster.
func (s *shapeStage) client() *goredis.ClusterClient {
	s.Helper()
	var addrs []string
	for _, server := range s.servers {
		addrs = append(addrs, server.Addr())
	}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs, MaxRedirects: 16})
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *shapeStage) fill() {
	s.Helper()
	c := s.client()
	for i := range shapeKeys {
		s.must(c.Set(s.Context(), "key"+strconv.Itoa(i), i, 0).Err())
	}
}

func (s *shapeStage) checkKeys() {
	s.Helper()
	c := s.client()
	for i := range shapeKeys {
		if got, err := c.Get(s.Context(), "key"+strconv.Itoa(i)).Int(); err != nil || got != i {
			s.Fatalf("key%d is %d, %v", i, got, err)
		}
	}
}

// TestAClusterChangesItsShape: out, in and onto another template, with an operator
// that lives through it, one that starts anew before every pass, and one whose writes
// fail, each once. No key is lost.
func TestAClusterChangesItsShape(t *testing.T) {
	for name, before := range operators {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			four, six := int32(4), int32(6)
			s := newShapeStage(t, redisv1.RedisClusterSpec{Replicas: &four})
			s.until(operators["steady"], 4)
			s.fill()
			for _, step := range []struct {
				name  string
				nodes int
				to    func(*redisv1.RedisClusterSpec)
			}{
				{"out", 6, func(spec *redisv1.RedisClusterSpec) { spec.Replicas = &six }},
				{"another template", 6, func(spec *redisv1.RedisClusterSpec) {
					spec.PodAnnotations = map[string]string{"example.com/rolled": "yes"}
				}},
				{"in", 4, func(spec *redisv1.RedisClusterSpec) { spec.Replicas = &four }},
			} {
				t.Log(step.name)
				s.change(step.to)
				s.until(before, step.nodes)
				s.checkKeys()
			}
			if s.get(&appsv1.StatefulSet{}, "orders-2") || s.get(&policyv1.PodDisruptionBudget{}, "orders-2") {
				t.Error("objects of the shard that was taken away are left")
			}
			s.must(s.pass())
			if s.writes = 0; s.pass() != nil || s.writes != 0 {
				t.Errorf("%d writes by a pass over a converged cluster", s.writes)
			}
		})
	}
}
