package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// The cases of this file end the operator, so they run alone.

// TestOperatorKilled kills the operator at a random point of the creation of
// each of several clusters. All of them must come up all the same.
func TestOperatorKilled(t *testing.T) {
	u := newUser(t)
	seed := uint64(time.Now().UnixNano())
	u.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var clusters []*redisv1.RedisCluster
	for _, manifest := range []string{
		`{metadata: {name: first}, spec: {replicas: 6}}`,
		`{metadata: {name: second}, spec: {replicas: 4, storage: {size: 64Mi}}}`,
		`{metadata: {name: third}, spec: {replicas: 4, engine: Valkey, version: "9.1"}}`,
		`{metadata: {name: fourth}, spec: {replicas: 3}}`,
		`{metadata: {name: fifth}, spec: {replicas: 3, shards: 3, version: "7.0"}}`,
	} {
		clusters = append(clusters, u.create(manifest))
		// A creation takes a few seconds; the first tenths hold the most steps.
		life := time.Duration(random.Int64N(int64(time.Second)) * random.Int64N(6))
		select {
		case <-u.Context().Done():
		case <-time.After(life):
		}
		u.Logf("killing the operator %s after %s was created", life.Round(time.Millisecond), clusters[len(clusters)-1].Name)
		u.killOperator()
	}
	for _, c := range clusters {
		u.awaitRunning(c)
		u.awaitWhole(c)
		u.works(c)
	}
}

// killOperator deletes the operator's Pod without grace and waits until another
// one leads.
func (u *user) killOperator() {
	u.Helper()
	pod, err := cluster.Manager(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	u.remove(pod, client.GracePeriodSeconds(0))
	u.awaitLeaderOtherThan(pod.Name)
}

func (u *user) awaitLeaderOtherThan(old string) {
	u.Helper()
	u.await(toRun, "another operator leads", func(ctx context.Context) (string, error) {
		leader, err := cluster.Leader(ctx)
		if err != nil {
			return "", err
		}
		if leader == "" || leader == old {
			return "nobody does", nil
		}
		var pod corev1.Pod
		err = cluster.Get(ctx, client.ObjectKey{Namespace: kube.OperatorNamespace, Name: leader}, &pod)
		if apierrors.IsNotFound(err) || err == nil && !kube.Ready(&pod) {
			return leader + " is not ready", nil
		}
		return "", err
	})
}

// TestWatchNamespace: with a list in WATCH_NAMESPACE the operator cares for the
// clusters of those namespaces alone.
func TestWatchNamespace(t *testing.T) {
	one, two, other := newUser(t), newUser(t), newUser(t)
	one.setWatchNamespace(one.ns + "," + two.ns)
	t.Cleanup(func() {
		// The test's context has ended, so this has its own.
		if err := watchNamespace(context.Background(), ""); err != nil {
			t.Errorf("restore WATCH_NAMESPACE: %v", err)
		}
	})
	const manifest = `{metadata: {name: orders}, spec: {replicas: 1}}`
	ignored := other.create(manifest)
	for _, u := range []*user{one, two} {
		rc := u.create(manifest)
		u.awaitRunning(rc)
		u.awaitWhole(rc)
	}
	other.hold(10*time.Second, "the cluster of another namespace is ignored", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, keyOf(ignored), ignored); err != nil {
			return "", err
		}
		all, err := cluster.Inventory(ctx, other.ns)
		if err != nil {
			return "", err
		}
		if ignored.Status.Phase != "" || len(all) != 1 {
			return "it is " + string(ignored.Status.Phase), nil
		}
		return "", nil
	})
	one.setWatchNamespace("")
	other.awaitRunning(ignored)
}

func (u *user) setWatchNamespace(list string) {
	u.Helper()
	before, err := cluster.Manager(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	if err := watchNamespace(u.Context(), list); err != nil {
		u.Fatal(err)
	}
	u.awaitLeaderOtherThan(before.Name)
}

// watchNamespace sets WATCH_NAMESPACE of the operator's Deployment.
func watchNamespace(ctx context.Context, list string) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.OperatorNamespace, Name: kube.OperatorDeployment}}
	if err := cluster.Get(ctx, keyOf(d), d); err != nil {
		return err
	}
	base := d.DeepCopy()
	env := d.Spec.Template.Spec.Containers[0].Env
	found := false
	for i := range env {
		if env[i].Name == "WATCH_NAMESPACE" {
			env[i].Value, found = list, true
		}
	}
	if !found {
		d.Spec.Template.Spec.Containers[0].Env = append(env, corev1.EnvVar{Name: "WATCH_NAMESPACE", Value: list})
	}
	return cluster.Patch(ctx, d, client.StrategicMergeFrom(base))
}

// TestOperatorKilledDuringABackup: what goes on is found again, and nothing is done
// twice: one backup, one Job, and a cluster restored from it that lacks nothing.
func TestOperatorKilledDuringABackup(t *testing.T) {
	u := newUser(t)
	s := u.newStore()
	source := u.create(`{metadata: {name: source}, spec: {replicas: 3, shards: 3}}`)
	u.awaitRunning(source)
	u.everything(source)
	want := u.content(source)
	b := u.backup("one", "clusterName: source, verify: Restore, destination: {"+toStore+"}")
	u.await(toBackup, "the backup has begun", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return "", err
		}
		if b.Status.StartTime == nil {
			return string(b.Status.Phase), nil
		}
		return "", nil
	})
	u.killOperator()
	u.succeeds(b)
	var jobs batchv1.JobList
	if err := cluster.List(u.Context(), &jobs, client.InNamespace(u.ns)); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || len(s.objects()) != 4 {
		t.Errorf("%d Jobs were made, the bucket has %q", len(jobs.Items), s.objects())
	}
	restored := u.create(`{metadata: {name: restored}, spec: {replicas: 4, shards: 4, restoreFrom: {backupName: one}}}`)
	u.await(toBackup, "the Pods are filled", func(ctx context.Context) (string, error) {
		pods, err := cluster.Pods(ctx, restored)
		if err != nil || len(pods) > 0 {
			return "", err
		}
		return "there are none", nil
	})
	u.killOperator()
	u.awaitRunningFor(restored, 2*toBackup)
	u.same(want, u.content(restored))
}
