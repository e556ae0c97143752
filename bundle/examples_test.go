package bundle

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/test/apiserver"
)

// examples are the manifests that a console offers to those who make an object.
func examples(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var list []map[string]any
	csv := load(t, current).CSV
	if err := json.Unmarshal([]byte(csv.Annotations["alm-examples"]), &list); err != nil {
		t.Fatalf("alm-examples: %v", err)
	}
	out := make([]unstructured.Unstructured, len(list))
	for i, o := range list {
		out[i].Object = o
	}
	return out
}

// TestExamplesAreTheSamples: each of config/samples, and one of each kind at least.
func TestExamplesAreTheSamples(t *testing.T) {
	got, want := map[string]any{}, map[string]any{}
	var kinds []string
	for _, o := range examples(t) {
		got[o.GetKind()+" "+o.GetName()] = o.Object
		kinds = append(kinds, o.GetKind())
	}
	csv := load(t, current).CSV
	owned := map[string]bool{}
	for _, crd := range csv.Spec.CustomResourceDefinitions.Owned {
		owned[crd.Kind] = true
		if !slices.Contains(kinds, crd.Kind) {
			t.Errorf("no example of a %s", crd.Kind)
		}
	}
	objects, err := built()
	if err != nil {
		t.Fatalf("kustomize build config/manifests: %v", err)
	}
	for _, o := range objects {
		if owned[o.GetKind()] {
			want[o.GetKind()+" "+o.GetName()] = o.Object
		}
	}
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
		t.Errorf("alm-examples and config/samples differ (-samples +examples), run `make bundle`:\n%s", diff)
	}
}

// TestExamplesAreAdmitted by a real API server that refuses what it does not know.
func TestExamplesAreAdmitted(t *testing.T) {
	c, err := client.New(apiserver.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c, "Strict")
	namespace := apiserver.Namespace(t)
	for _, o := range examples(t) {
		o.SetNamespace(namespace)
		if err := strict.Create(t.Context(), &o); err != nil {
			t.Errorf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// asJSON brings numbers of different types to one.
func asJSON(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
