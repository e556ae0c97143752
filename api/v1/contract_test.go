package v1_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/test/apiserver"
)

// TestContract holds what others build on: names, scope, subresources, types.
func TestContract(t *testing.T) {
	crd := servedCRD(t)
	names := crd.Spec.Names
	if crd.Spec.Group != "redis.example.com" || names.Plural != "redisclusters" || names.Singular != "rediscluster" ||
		names.Kind != "RedisCluster" || names.ListKind != "RedisClusterList" {
		t.Errorf("group %q, names %+v", crd.Spec.Group, names)
	}
	if !slices.Equal(names.ShortNames, []string{"rc", "rdc"}) {
		t.Errorf("short names %q, want rc and rdc", names.ShortNames)
	}
	if crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
		t.Errorf("scope %s", crd.Spec.Scope)
	}
	if len(crd.Spec.Versions) != 1 || !slices.Equal(crd.Status.StoredVersions, []string{"v1"}) {
		t.Fatalf("%d versions, stored %q; want v1 alone", len(crd.Spec.Versions), crd.Status.StoredVersions)
	}
	v1 := crd.Spec.Versions[0]
	if v1.Name != "v1" || !v1.Served || !v1.Storage {
		t.Errorf("version %s served %t storage %t", v1.Name, v1.Served, v1.Storage)
	}
	scale := v1.Subresources.Scale
	if v1.Subresources.Status == nil || scale == nil || scale.SpecReplicasPath != ".spec.replicas" ||
		scale.StatusReplicasPath != ".status.replicas" || scale.LabelSelectorPath == nil || *scale.LabelSelectorPath != ".status.selector" {
		t.Errorf("subresources %+v, scale %+v", v1.Subresources, scale)
	}
	root := v1.Schema.OpenAPIV3Schema
	replicas := root.Properties["spec"].Properties["replicas"]
	if replicas.Type != "integer" || replicas.Minimum == nil || *replicas.Minimum != 1 || string(replicas.Default.Raw) != "6" {
		t.Errorf("spec.replicas is %+v", replicas)
	}
	status := root.Properties["status"].Properties
	for path, got := range map[string]string{
		"string spec.version":          root.Properties["spec"].Properties["version"].Type,
		"integer status.readyReplicas": status["readyReplicas"].Type,
		"string status.phase":          status["phase"].Type,
	} {
		if want, _, _ := strings.Cut(path, " "); got != want {
			t.Errorf("%s has type %q", path, got)
		}
	}
}

func TestPrinterColumns(t *testing.T) {
	var columns, wide []string
	for _, c := range servedCRD(t).Spec.Versions[0].AdditionalPrinterColumns {
		if c.Priority == 0 {
			columns = append(columns, c.Name+" "+c.JSONPath)
		} else {
			wide = append(wide, c.Name)
		}
	}
	want := []string{
		"Phase .status.phase", "Ready .status.readyReplicas", "Replicas .spec.replicas", "Shards .status.shards",
		"Version .spec.version", "Age .metadata.creationTimestamp",
	}
	if !slices.Equal(columns, want) || !slices.Equal(wide, []string{"Reason", "Message"}) {
		t.Errorf("columns %q, wide %q", columns, wide)
	}
}

// TestEveryFieldIsDescribed: `kubectl explain` must help with each of them.
func TestEveryFieldIsDescribed(t *testing.T) {
	root := servedCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		for name, field := range root.Properties[part].Properties {
			if len(field.Description) < 10 {
				t.Errorf("%s.%s is described as %q", part, name, field.Description)
			}
		}
	}
}

func servedCRD(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return served(t, "redisclusters.redis.example.com")
}

func served(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatalf("make a scheme: %v", err)
	}
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(context.Background(), client.ObjectKey{Name: name}, crd); err != nil {
		t.Fatalf("get the CRD: %v", err)
	}
	return crd
}
