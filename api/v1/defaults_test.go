package v1_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestDefaults creates manifests that must work as they are, and compares what
// the API server made of their spec.
func TestDefaults(t *testing.T) {
	for _, c := range []struct{ name, manifest, want string }{
		{"nothing at all", ``, `{replicas: 6, version: "8.0", engine: Redis}`},
		{"empty spec", `spec: {}`, `{replicas: 6, version: "8.0", engine: Redis}`},
		{"the six lines", `spec: {replicas: 6, version: "8.0"}`, `{replicas: 6, version: "8.0", engine: Redis}`},
		{"one node", `spec: {replicas: 1}`, `{replicas: 1, version: "8.0", engine: Redis}`},
		{"seven nodes", `spec: {replicas: 7, version: "7.0"}`, `{replicas: 7, version: "7.0", engine: Redis}`},
		{"the limit", `spec: {replicas: 1000, shards: 1000}`, `{replicas: 1000, shards: 1000, version: "8.0", engine: Redis}`},
		{"no replicas of shards", `spec: {replicas: 3, shards: 3}`, `{replicas: 3, shards: 3, version: "8.0", engine: Redis}`},
		{"Valkey", `spec: {engine: Valkey, version: "9.1.2"}`, `{replicas: 6, version: "9.1.2", engine: Valkey}`},
		{"storage", `spec: {storage: {size: 8Gi}}`, `{replicas: 6, version: "8.0", engine: Redis, storage: {size: 8Gi, retain: true}}`},
		{"storage not retained", `spec: {storage: {size: 8Gi, storageClassName: fast, retain: false}}`,
			`{replicas: 6, version: "8.0", engine: Redis, storage: {size: 8Gi, storageClassName: fast, retain: false}}`},
		{"auth by a Secret", `spec: {auth: {secretName: mine}}`, `{replicas: 6, version: "8.0", engine: Redis, auth: {secretName: mine}}`},
		{"auth off", `spec: {auth: {disabled: true}}`, `{replicas: 6, version: "8.0", engine: Redis, auth: {disabled: true}}`},
		{"config", `spec: {config: {maxmemory-policy: allkeys-lru, save: "", notify-keyspace-events: "K$"}}`,
			`{replicas: 6, version: "8.0", engine: Redis, config: {maxmemory-policy: allkeys-lru, save: "", notify-keyspace-events: "K$"}}`},
		{"Pod settings", `spec: {podLabels: {team: shop}, podAnnotations: {a/b: "c d"}, podSecurityContext: {}, priorityClassName: high}`,
			`{replicas: 6, version: "8.0", engine: Redis, podLabels: {team: shop}, podAnnotations: {a/b: "c d"}, podSecurityContext: {}, priorityClassName: high}`},
		{"the longest name", "metadata: {name: " + strings.Repeat("a", 48) + "}", `{replicas: 6, version: "8.0", engine: Redis}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newUser(t).create(c.manifest)
			var want map[string]any
			data, err := yaml.YAMLToJSON([]byte(c.want))
			if err != nil {
				t.Fatalf("read the expectation: %v", err)
			}
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatalf("read the expectation: %v", err)
			}
			if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultVersionIsStored: an operator that comes with another default must
// not move the clusters that exist. What is stored has an owner, what a reader
// is merely shown has none.
func TestDefaultVersionIsStored(t *testing.T) {
	u := newUser(t)
	stored := reread(t, u, u.create(""))
	owned := slices.ContainsFunc(stored.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return strings.Contains(e.FieldsV1.GetRawString(), `"f:version"`)
	})
	if version, _, _ := unstructured.NestedString(stored.Object, "spec", "version"); version != "8.0" || !owned {
		t.Errorf("spec.version = %q, owned by a writer: %t; want 8.0, stored at creation", version, owned)
	}
}

// TestSamplesAreAdmitted creates every sample as it is.
func TestSamplesAreAdmitted(t *testing.T) {
	u := newUser(t)
	for name, manifest := range samples(t) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		o.SetNamespace(u.namespace)
		if err := client.WithFieldValidation(u.Client, metav1.FieldValidationStrict).Create(context.Background(), o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// samples are the manifests of config/samples by file name.
func samples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../config/samples/redis_*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("find the samples: %v, %v", files, err)
	}
	out := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read a sample: %v", err)
		}
		out[filepath.Base(file)] = string(data)
	}
	return out
}
