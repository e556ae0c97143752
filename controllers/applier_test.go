package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestApplyEveryKind: made once, and then never a request again, although the
// API server has filled in defaults and its controllers write to the object.
func TestApplyEveryKind(t *testing.T) {
	b := newBench(t)
	for _, kind := range b.kinds() {
		t.Run(reflect.TypeOf(kind.empty).Elem().Name(), func(t *testing.T) {
			b.T = t
			b.apply(nil, kind.intent, "PATCH", true)
			cached := b.live(kind.empty)
			b.apply(cached, kind.intent, "", false)

			// A foreign write to fields that are not ours gives a new resource version.
			b.annotate(cached)
			b.apply(cached, kind.intent, "", false)
			b.apply(cached, kind.intent, "", false)
		})
	}
}

// TestApplyAfterRestart: a new operator finds all as it is meant and writes
// nothing. A request at most, where the API server filled a default into a
// field that is applied as a whole, changes nothing and is not repeated.
func TestApplyAfterRestart(t *testing.T) {
	b := newBench(t)
	for _, kind := range b.kinds() {
		t.Run(reflect.TypeOf(kind.empty).Elem().Name(), func(t *testing.T) {
			b.T = t
			b.apply(nil, kind.intent, "PATCH", true)
			b.restart()
			cached := b.live(kind.empty)
			want := ""
			switch cached.(type) {
			case *appsv1.StatefulSet, *networkingv1.NetworkPolicy:
				want = "PATCH" // fieldRef.apiVersion, ports.protocol
			}
			b.apply(cached, kind.intent, want, false)
			b.annotate(cached)
			b.apply(cached, kind.intent, "", false)
		})
	}
}

// annotate writes to an object as somebody else.
func (b *bench) annotate(obj client.Object) {
	b.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"somebody":"else"}}}`))
	if err := b.admin.Patch(context.Background(), obj, patch, client.FieldOwner("somebody")); err != nil {
		b.Fatalf("annotate: %v", err)
	}
}

// TestOwnedFieldsAreWhatExtractGives compares with client-go's own functions.
func TestOwnedFieldsAreWhatExtractGives(t *testing.T) {
	b := newBench(t)
	for _, kind := range b.kinds() {
		b.apply(nil, kind.intent, "PATCH", true)
		obj := b.live(kind.empty)
		b.annotate(obj)
		want, err := extract(obj)
		if err != nil {
			t.Fatalf("extract: %v", err)
		}
		gvk, err := apiutil.GVKForObject(obj, b.admin.Scheme())
		if err != nil {
			t.Fatalf("find the kind: %v", err)
		}
		got, err := ownedFields(obj, gvk, FieldOwner, reflect.TypeOf(want).Elem())
		if err != nil {
			t.Fatalf("ownedFields: %v", err)
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if diff := cmp.Diff(string(data), string(got)); diff != "" {
			t.Errorf("%s (-Extract +ownedFields):\n%s", gvk.Kind, diff)
		}
	}
}

func extract(obj client.Object) (runtime.ApplyConfiguration, error) {
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		return appsac.ExtractStatefulSet(o, FieldOwner)
	case *corev1.Service:
		return coreac.ExtractService(o, FieldOwner)
	case *corev1.ConfigMap:
		return coreac.ExtractConfigMap(o, FieldOwner)
	case *policyv1.PodDisruptionBudget:
		return policyac.ExtractPodDisruptionBudget(o, FieldOwner)
	case *networkingv1.NetworkPolicy:
		return networkingac.ExtractNetworkPolicy(o, FieldOwner)
	}
	return nil, errors.New("unknown kind")
}

func TestApplyChanges(t *testing.T) {
	b := newBench(t)
	b.apply(nil, b.configMap(map[string]string{"a": "1", "b": "2"}), "PATCH", true)
	b.apply(b.live(&corev1.ConfigMap{}), b.configMap(map[string]string{"a": "1", "c": "3"}), "PATCH", true)
	cm := b.live(&corev1.ConfigMap{}).(*corev1.ConfigMap)
	if diff := cmp.Diff(map[string]string{"a": "1", "c": "3"}, cm.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	b.apply(cm, b.configMap(map[string]string{"a": "1", "c": "3"}), "", false)
}

func TestApplyRevertsForeignEdits(t *testing.T) {
	b := newBench(t)
	intent := b.configMap(map[string]string{"a": "1", "b": "2"})
	b.apply(nil, intent, "PATCH", true)
	for _, edit := range []string{
		`{"data":{"a":"changed"}}`,
		`{"data":{"b":null}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"me"}}}`,
	} {
		cm := b.live(&corev1.ConfigMap{}).(*corev1.ConfigMap)
		if err := b.admin.Patch(context.Background(), cm, client.RawPatch(types.MergePatchType, []byte(edit))); err != nil {
			t.Fatalf("edit: %v", err)
		}
		b.apply(cm, intent, "PATCH", true)
		cm = b.live(&corev1.ConfigMap{}).(*corev1.ConfigMap)
		if cm.Data["a"] != "1" || cm.Data["b"] != "2" || cm.Labels["app.kubernetes.io/managed-by"] != "redis-operator" {
			t.Errorf("after %s: data %v, labels %v", edit, cm.Data, cm.Labels)
		}
	}
}

func TestApplyNeverTakesOver(t *testing.T) {
	b := newBench(t)
	other := b.newOwner("other", b.owner.Namespace)
	predecessor := b.owner.DeepCopy()
	predecessor.UID = "6c1d1f0e-0000-4000-8000-000000000000"
	ours := map[string]string{"app.kubernetes.io/managed-by": "redis-operator"}
	for _, c := range []struct {
		name     string
		labels   map[string]string
		owner    *redisv1.RedisCluster
		cached   bool
		sent     string
		leftover bool
	}{
		{name: "a stranger's, without labels", sent: "PATCH GET"},
		{name: "a stranger's, with the operator's label", labels: ours, cached: true},
		{name: "another cluster's", labels: ours, owner: other, cached: true},
		{name: "another cluster's, not in the cache yet", labels: ours, owner: other, sent: "PATCH GET"},
		{name: "the deleted predecessor's", labels: ours, owner: predecessor, cached: true, leftover: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.T = t
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: b.owner.Namespace, Labels: c.labels}, Data: map[string]string{"mine": "1"}}
			if c.owner != nil {
				controller := true
				cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "redis.example.com/v1", Kind: "RedisCluster", Name: c.owner.Name, UID: c.owner.UID, Controller: &controller}}
			}
			if err := b.admin.Create(context.Background(), cm); err != nil {
				t.Fatalf("create: %v", err)
			}
			var cached client.Object
			if c.cached {
				cached = cm.DeepCopy()
			}
			changed, err := b.Apply(context.Background(), b.owner, cached, b.configMap(map[string]string{"a": "1"}))
			var conflict *NameConflictError
			if !errors.As(err, &conflict) || changed {
				t.Fatalf("apply gave %t, %v; want a NameConflictError", changed, err)
			}
			if want := (NameConflictError{Kind: "ConfigMap", Name: "orders", Leftover: c.leftover}); *conflict != want {
				t.Errorf("conflict %+v, want %+v", *conflict, want)
			}
			if sent := b.sent.take(); sent != c.sent {
				t.Errorf("sent %q, want %q", sent, c.sent)
			}
			now := b.live(&corev1.ConfigMap{}).(*corev1.ConfigMap)
			if now.ResourceVersion != cm.ResourceVersion {
				t.Errorf("the object was changed: %v", now)
			}
			if err := b.admin.Delete(context.Background(), now); err != nil {
				t.Fatalf("delete: %v", err)
			}
		})
	}
}

// TestApplyReplacedObject: the cache shows our object, but a stranger's has
// taken its name since.
func TestApplyReplacedObject(t *testing.T) {
	b := newBench(t)
	b.apply(nil, b.configMap(map[string]string{"a": "1"}), "PATCH", true)
	cached := b.live(&corev1.ConfigMap{})
	if err := b.admin.Delete(context.Background(), cached.DeepCopyObject().(client.Object)); err != nil {
		t.Fatalf("delete: %v", err)
	}
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: b.owner.Namespace}, Data: map[string]string{"mine": "1"}}
	if err := b.admin.Create(context.Background(), stranger); err != nil {
		t.Fatalf("create: %v", err)
	}
	b.sent.take()
	_, err := b.Apply(context.Background(), b.owner, cached, b.configMap(map[string]string{"a": "2"}))
	var conflict *NameConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("apply gave %v, want a NameConflictError", err)
	}
	if sent := b.sent.take(); sent != "PATCH GET" {
		t.Errorf("sent %q", sent)
	}
	if now := b.live(&corev1.ConfigMap{}); now.GetResourceVersion() != stranger.ResourceVersion {
		t.Errorf("the stranger's object was changed: %v", now)
	}
}

// TestApplyDeletedObject: the cache shows our object, but it is gone.
func TestApplyDeletedObject(t *testing.T) {
	b := newBench(t)
	b.apply(nil, b.configMap(map[string]string{"a": "1"}), "PATCH", true)
	cached := b.live(&corev1.ConfigMap{})
	if err := b.admin.Delete(context.Background(), cached.DeepCopyObject().(client.Object)); err != nil {
		t.Fatalf("delete: %v", err)
	}
	_, err := b.Apply(context.Background(), b.owner, cached, b.configMap(map[string]string{"a": "2"}))
	if !apierrors.IsConflict(err) {
		t.Errorf("apply gave %v, want a conflict: the next pass makes the object", err)
	}
}

// TestApplyWhileTheCacheLags: no write is sent twice because the cache does not
// show the first one yet.
func TestApplyWhileTheCacheLags(t *testing.T) {
	b := newBench(t)
	one, two := b.configMap(map[string]string{"a": "1"}), b.configMap(map[string]string{"a": "2"})
	b.apply(nil, one, "PATCH", true)
	b.apply(nil, one, "", false)
	b.apply((*corev1.ConfigMap)(nil), one, "", false)

	atOne := b.live(&corev1.ConfigMap{})
	b.apply(atOne, two, "PATCH", true)
	b.apply(atOne, two, "", false)

	// A wish that differs from what was written is sent all the same.
	b.apply(atOne, one, "PATCH", true)
	b.apply(b.live(&corev1.ConfigMap{}), one, "", false)
}

// TestApplyFindsWhatTheCacheDoesNotShow: an operator that made an object and lost its
// memory finds it again.
func TestApplyFindsWhatTheCacheDoesNotShow(t *testing.T) {
	b := newBench(t)
	one := b.configMap(map[string]string{"a": "1"})
	b.apply(nil, one, "PATCH", true)
	b.restart()
	b.apply(nil, one, "PATCH GET", false)
	b.apply(nil, one, "", false)

	b.restart()
	b.apply(nil, b.configMap(map[string]string{"a": "2"}), "PATCH GET PATCH", true)
}

func TestApplyMakesAnewWhatWasDeleted(t *testing.T) {
	b := newBench(t)
	clock := time.Now()
	b.clock = func() time.Time { return clock }
	intent := b.configMap(map[string]string{"a": "1"})
	b.apply(nil, intent, "PATCH", true)

	// The cache never showed it: only time tells a lag from a deletion.
	if err := b.admin.Delete(context.Background(), b.live(&corev1.ConfigMap{})); err != nil {
		t.Fatalf("delete: %v", err)
	}
	b.apply(nil, intent, "", false)
	clock = clock.Add(cacheLag)
	b.apply(nil, intent, "PATCH", true)

	// The cache showed it, and now shows that it is gone.
	b.apply(b.live(&corev1.ConfigMap{}), intent, "", false)
	if err := b.admin.Delete(context.Background(), b.live(&corev1.ConfigMap{})); err != nil {
		t.Fatalf("delete: %v", err)
	}
	b.apply(nil, intent, "PATCH", true)
}

func TestApplyLeavesDeletedObjectsAlone(t *testing.T) {
	b := newBench(t)
	b.apply(nil, b.configMap(map[string]string{"a": "1"}), "PATCH", true)
	cm := b.live(&corev1.ConfigMap{})
	cm.SetFinalizers([]string{"example.com/hold"})
	if err := b.admin.Update(context.Background(), cm); err != nil {
		t.Fatalf("add a finalizer: %v", err)
	}
	if err := b.admin.Delete(context.Background(), cm); err != nil {
		t.Fatalf("delete: %v", err)
	}
	b.apply(b.live(&corev1.ConfigMap{}), b.configMap(map[string]string{"a": "2"}), "", false)
}

// TestForget: the same name may be used by another owner afterwards.
func TestForget(t *testing.T) {
	b := newBench(t)
	b.apply(nil, b.configMap(map[string]string{"a": "1"}), "PATCH", true)
	b.Forget(client.ObjectKeyFromObject(b.owner))
	if len(b.records) != 0 {
		t.Errorf("%d owners are remembered", len(b.records))
	}
	b.apply(b.live(&corev1.ConfigMap{}), b.configMap(map[string]string{"a": "1"}), "", false)
}

func TestApplyInParallel(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	kinds := b.kinds()
	errs := make([]error, len(kinds))
	for i, kind := range kinds {
		wg.Go(func() { _, errs[i] = b.Apply(context.Background(), b.owner, nil, kind.intent) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("apply: %v", err)
	}
	b.sent.take()
	for _, kind := range kinds {
		b.apply(b.live(kind.empty), kind.intent, "", false)
	}
}

func (b *bench) secret(password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-auth", Namespace: b.owner.Namespace, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(b.owner, redisv1.GroupVersion.WithKind("RedisCluster"))}},
		Data: map[string][]byte{"password": []byte(password)},
	}
}

func TestEnsureSecretWritesOnce(t *testing.T) {
	b := newBench(t)
	for i, sent := range []string{"GET POST", "GET", "GET"} {
		got, err := b.EnsureSecret(context.Background(), b.owner, b.secret("password-"+string(rune('a'+i))))
		if err != nil {
			t.Fatalf("ensure: %v", err)
		}
		if password := string(got.Data["password"]); password != "password-a" {
			t.Errorf("call %d: the password is %q, want the first", i, password)
		}
		if methods := b.sent.take(); methods != sent {
			t.Errorf("call %d sent %q, want %q", i, methods, sent)
		}
	}
}

func TestEnsureSecretNeverTakesOver(t *testing.T) {
	b := newBench(t)
	stranger := b.secret("theirs")
	stranger.OwnerReferences = nil
	if err := b.admin.Create(context.Background(), stranger); err != nil {
		t.Fatalf("create: %v", err)
	}
	_, err := b.EnsureSecret(context.Background(), b.owner, b.secret("ours"))
	var conflict *NameConflictError
	if !errors.As(err, &conflict) || conflict.Kind != "Secret" || conflict.Name != "orders-auth" {
		t.Errorf("ensure gave %v, want a NameConflictError", err)
	}
	secret := b.live(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "orders-auth"}}).(*corev1.Secret)
	if string(secret.Data["password"]) != "theirs" || secret.ResourceVersion != stranger.ResourceVersion {
		t.Error("the stranger's Secret was changed")
	}
}
