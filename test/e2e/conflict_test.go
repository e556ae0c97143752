package e2e

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestNameConflict: an object that somebody else made under a name that the
// cluster needs is left as it is, the user hears of it, and the cluster comes up
// once it is gone.
func TestNameConflict(t *testing.T) {
	for _, c := range []struct {
		name string
		into client.Object
		// stranger is what somebody made before, without the name.
		stranger, kind, called string
	}{
		{"client Service", &corev1.Service{}, `{spec: {selector: {app: web}, ports: [{port: 80}]}}`, "Service", "orders"},
		{"headless Service", &corev1.Service{}, `{spec: {selector: {app: web}, ports: [{port: 80}]}}`, "Service", "orders-headless"},
		// One that even has the labels by which the operator finds its own.
		{"Service in disguise", &corev1.Service{}, `{metadata: {labels: {app.kubernetes.io/managed-by: redis-operator, app.kubernetes.io/name: redis-cluster, app.kubernetes.io/instance: orders}},
			spec: {selector: {app: web}, ports: [{port: 80}]}}`, "Service", "orders"},
		{"StatefulSet", &appsv1.StatefulSet{}, `{spec: {replicas: 0, selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}}`, "StatefulSet", "orders-0"},
		{"ConfigMap", &corev1.ConfigMap{}, `{data: {redis.conf: mine}}`, "ConfigMap", "orders-config"},
		{"auth Secret", &corev1.Secret{}, `{stringData: {password: mine}}`, "Secret", "orders-auth"},
		{"operator Secret", &corev1.Secret{}, `{stringData: {username: operator, password: mine}}`, "Secret", "orders-operator"},
		{"PodDisruptionBudget", &policyv1.PodDisruptionBudget{}, `{spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}}`, "PodDisruptionBudget", "orders-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			stranger, _ := c.into.DeepCopyObject().(client.Object)
			if err := yaml.UnmarshalStrict([]byte(c.stranger), stranger); err != nil {
				u.Fatalf("read the stranger: %v", err)
			}
			stranger.SetNamespace(u.ns)
			stranger.SetName(c.called)
			u.settled(stranger)
			before := stranger.DeepCopyObject()

			rc := u.create(`{metadata: {name: orders}, spec: {replicas: 1}}`)
			u.awaitReason(rc, promptly, redisv1.ConditionNameConflict, metav1.ConditionTrue, redisv1.ReasonNameConflict, c.kind, c.called)
			u.awaitReason(rc, promptly, redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonNameConflict, c.called)
			u.Logf("the Event says: %s", u.awaitEvent(rc, redisv1.ReasonNameConflict))
			u.hold(promptly, "the stranger stays as it is", func(ctx context.Context) (string, error) {
				return changed(ctx, before, stranger)
			})

			u.remove(stranger, client.PropagationPolicy(metav1.DeletePropagationForeground))
			u.awaitRunning(rc)
			u.awaitWhole(rc)
			u.works(rc)
			if meta.FindStatusCondition(rc.Status.Conditions, redisv1.ConditionNameConflict) != nil {
				u.Error("the condition NameConflict is still there")
			}
		})
	}
}

// settled makes an object and waits until its own controller has seen it.
func (u *user) settled(o client.Object) {
	u.Helper()
	if err := cluster.Create(u.Context(), o); err != nil {
		u.Fatalf("create the stranger: %v", err)
	}
	u.await(toRun, "the stranger's own controller has seen it", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return "", err
		}
		seen := o.GetGeneration()
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			seen = o.Status.ObservedGeneration
			if o.Status.UpdateRevision == "" {
				return "it has no revision yet", nil
			}
		case *policyv1.PodDisruptionBudget:
			seen = o.Status.ObservedGeneration
		}
		if seen != o.GetGeneration() {
			return "its status is not there yet", nil
		}
		return "", nil
	})
}

// changed tells whether anything at all is different from before.
func changed(ctx context.Context, before runtime.Object, o client.Object) (string, error) {
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return "", err
	}
	if !equality.Semantic.DeepEqual(before, runtime.Object(o)) {
		data, err := yaml.Marshal(o)
		return "it is\n" + string(data), err
	}
	return "", nil
}
