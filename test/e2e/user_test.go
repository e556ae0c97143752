package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// How long is waited at most. The cases share two cores, so this is generous:
// the benchmarks measure speed.
const (
	toRun  = 2 * time.Minute
	toHeal = 2 * time.Minute
	toGo   = 90 * time.Second
)

// user does in a namespace of one case what a person does with kubectl and a
// Redis client. Its methods fail the case.
type user struct {
	*testing.T
	ns string
}

// newUser makes a namespace. It is removed at the end, after what there is to
// see in it was printed if the case failed.
func newUser(t *testing.T) *user {
	t.Helper()
	ns, err := cluster.Namespace(t.Context(), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // that of the test has ended
		if t.Failed() {
			t.Log(cluster.Explain(ctx, ns))
		}
		if err := cluster.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Errorf("delete the namespace: %v", err)
		}
	})
	return &user{T: t, ns: ns}
}

// create makes a RedisCluster from a manifest's metadata and spec.
func (u *user) create(manifest string) *redisv1.RedisCluster {
	u.Helper()
	c, err := clusterOf(manifest)
	if err != nil {
		u.Fatal(err)
	}
	c.Namespace = u.ns
	if err := cluster.Create(u.Context(), c); err != nil {
		u.Fatalf("create RedisCluster %s: %v", c.Name, err)
	}
	return c
}

// clusterOf reads a manifest, strictly.
func clusterOf(manifest string) (*redisv1.RedisCluster, error) {
	c := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict([]byte(manifest), c); err != nil {
		return nil, fmt.Errorf("read the manifest: %w\n%s", err, manifest)
	}
	return c, nil
}

// edit applies a merge patch in YAML, as `kubectl patch --type=merge` does.
func (u *user) edit(c *redisv1.RedisCluster, patch string) {
	u.Helper()
	data, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		u.Fatalf("read the patch: %v", err)
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(redisv1.GroupVersion.String())
	o.SetKind("RedisCluster")
	o.SetNamespace(c.Namespace)
	o.SetName(c.Name)
	if err := cluster.Patch(u.Context(), o, client.RawPatch(types.MergePatchType, data)); err != nil {
		u.Fatalf("edit RedisCluster %s: %v", c.Name, err)
	}
}

// reread reads the cluster anew.
func (u *user) reread(c *redisv1.RedisCluster) {
	u.Helper()
	if err := cluster.Get(u.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		u.Fatalf("get RedisCluster %s: %v", c.Name, err)
	}
}

// await waits for a condition, with progress in the test's output.
func (u *user) await(limit time.Duration, what string, condition kube.Condition) {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), limit)
	defer cancel()
	if err := kube.Await(ctx, func(s string) { u.Log(s) }, what, condition); err != nil {
		u.Fatal(err)
	}
}

// hold makes sure that a condition holds all the time.
func (u *user) hold(d time.Duration, what string, condition kube.Condition) {
	u.Helper()
	if err := kube.Hold(u.Context(), d, what, condition); err != nil {
		u.Fatal(err)
	}
}

// awaitRunning waits until the operator says that the cluster is as its present
// spec asks.
func (u *user) awaitRunning(c *redisv1.RedisCluster) {
	u.Helper()
	u.awaitRunningFor(c, toRun)
}

func (u *user) awaitRunningFor(c *redisv1.RedisCluster, limit time.Duration) {
	u.Helper()
	u.await(limit, c.Name+" is Running", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		return notRunning(c), nil
	})
}

// notRunning says why a status is not that of a converged cluster.
func notRunning(c *redisv1.RedisCluster) string {
	ready := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionReady)
	switch {
	case c.Status.ObservedGeneration != c.Generation:
		return fmt.Sprintf("the status is about generation %d of %d", c.Status.ObservedGeneration, c.Generation)
	case ready == nil:
		return "phase " + string(c.Status.Phase)
	case c.Status.Phase != redisv1.PhaseRunning || ready.Status != metav1.ConditionTrue:
		return fmt.Sprintf("phase %s, %s: %s", c.Status.Phase, ready.Reason, ready.Message)
	}
	return ""
}

// awaitReason waits for a condition with a status and reason, and checks that
// the message holds each of the words.
func (u *user) awaitReason(c *redisv1.RedisCluster, limit time.Duration, typ string, status metav1.ConditionStatus, reason string, words ...string) {
	u.Helper()
	var last metav1.Condition
	u.await(limit, fmt.Sprintf("%s has %s=%s because of %s", c.Name, typ, status, reason), func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, typ)
		if condition == nil {
			return "there is no such condition", nil
		}
		last = *condition
		if last.Status != status || last.Reason != reason {
			return fmt.Sprintf("it is %s, %s: %s", last.Status, last.Reason, last.Message), nil
		}
		return "", nil
	})
	for _, word := range words {
		if !strings.Contains(last.Message, word) {
			u.Errorf("the message of %s/%s does not say %q: %s", typ, reason, word, last.Message)
		}
	}
}

// awaitEvent waits for an Event about the cluster and gives its note.
func (u *user) awaitEvent(c *redisv1.RedisCluster, reason string) string {
	u.Helper()
	note := ""
	u.await(20*time.Second, fmt.Sprintf("there is an Event %s about %s", reason, c.Name), func(ctx context.Context) (string, error) {
		notes, err := events(ctx, c, reason)
		if err != nil || len(notes) == 0 {
			return "there is none", err
		}
		note = notes[0]
		return "", nil
	})
	return note
}

// events are the notes of the Events about a cluster for a reason.
func events(ctx context.Context, c *redisv1.RedisCluster, reason string) ([]string, error) {
	var list eventsv1.EventList
	if err := cluster.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return nil, err
	}
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "RedisCluster" && e.Regarding.UID == c.UID && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes, nil
}

// pods are the cluster's Pods by name.
func (u *user) pods(c *redisv1.RedisCluster) map[string]corev1.Pod {
	u.Helper()
	list, err := cluster.Pods(u.Context(), c)
	if err != nil {
		u.Fatal(err)
	}
	byName := map[string]corev1.Pod{}
	for _, pod := range list {
		byName[pod.Name] = pod
	}
	return byName
}

// remove deletes an object, with options as kubectl's flags give them.
func (u *user) remove(o client.Object, options ...client.DeleteOption) {
	u.Helper()
	if err := cluster.Delete(u.Context(), o, options...); err != nil {
		u.Fatalf("delete %s: %v", o.GetName(), err)
	}
}

// awaitReplaced waits until every one of the Pods is another one than it was,
// and ready.
func (u *user) awaitReplaced(c *redisv1.RedisCluster, before map[string]corev1.Pod) {
	u.Helper()
	u.await(toHeal, "the deleted Pods are back", func(ctx context.Context) (string, error) {
		list, err := cluster.Pods(ctx, c)
		if err != nil {
			return "", err
		}
		back := map[string]bool{}
		for i := range list {
			old, deleted := before[list[i].Name]
			back[list[i].Name] = deleted && old.UID != list[i].UID && kube.Ready(&list[i])
		}
		for name := range before {
			if !back[name] {
				return name + " is not back", nil
			}
		}
		return "", nil
	})
}
