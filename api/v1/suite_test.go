package v1_test

import (
	"context"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/example/redis-operator/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// user does with manifests what a person does with kubectl, in a namespace of
// one test.
type user struct {
	t testing.TB
	client.Client
	namespace string
}

func newUser(t testing.TB) *user {
	t.Helper()
	c, err := client.New(apiserver.Config(t), client.Options{})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return &user{t: t, Client: c, namespace: apiserver.Namespace(t)}
}

// object reads a manifest of a RedisCluster named orders, unless it says otherwise.
func (u *user) object(manifest string) *unstructured.Unstructured {
	u.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
		u.t.Fatalf("read the manifest: %v\n%s", err, manifest)
	}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetAPIVersion("redis.example.com/v1")
	if o.GetKind() == "" {
		o.SetKind("RedisCluster")
	}
	o.SetNamespace(u.namespace)
	if o.GetName() == "" {
		o.SetName("orders")
	}
	return o
}

// create makes an object that must be admitted.
func (u *user) create(manifest string) *unstructured.Unstructured {
	u.t.Helper()
	o := u.object(manifest)
	if err := u.Create(context.Background(), o); err != nil {
		u.t.Fatalf("create: %v", err)
	}
	return o
}

// setStatus merges into the status, as the operator does.
func (u *user) setStatus(o *unstructured.Unstructured, status string) {
	u.t.Helper()
	data, err := yaml.YAMLToJSON([]byte("{status: " + status + "}"))
	if err != nil {
		u.t.Fatalf("read the status: %v", err)
	}
	if err := u.Status().Patch(context.Background(), o, client.RawPatch(types.MergePatchType, data)); err != nil {
		u.t.Fatalf("write the status: %v", err)
	}
}

// edit applies a merge patch in YAML, as `kubectl patch --type=merge` does.
func (u *user) edit(o *unstructured.Unstructured, patch string) error {
	u.t.Helper()
	data, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		u.t.Fatalf("read the patch: %v", err)
	}
	return u.Patch(context.Background(), o.DeepCopy(), client.RawPatch(types.MergePatchType, data))
}
