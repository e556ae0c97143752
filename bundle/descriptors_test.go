package bundle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// descriptor is how a console shows one field, of the spec or of the status.
type descriptor struct {
	Description string
	UI          []string
}

// descriptors are those of a CRD, by path: "spec.storage.size".
func descriptors(crd *v1alpha1.CRDDescription) map[string]descriptor {
	out := map[string]descriptor{}
	for _, d := range crd.SpecDescriptors {
		out["spec."+d.Path] = descriptor{words(d.Description), d.XDescriptors}
	}
	for _, d := range crd.StatusDescriptors {
		out["status."+d.Path] = descriptor{words(d.Description), d.XDescriptors}
	}
	return out
}

// TestEveryFieldHasADescriptor: with the words of the CRD.
func TestEveryFieldHasADescriptor(t *testing.T) {
	b := load(t, current)
	for i := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		owned := &b.CSV.Spec.CustomResourceDefinitions.Owned[i]
		crd := b.V1CRDs[slices.IndexFunc(b.V1CRDs, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == owned.Name })]
		want := map[string]string{}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			properties(part, schema.Properties[part], fieldsOf(t), want)
		}
		got := map[string]string{}
		for path, d := range descriptors(owned) {
			got[path] = d.Description
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the fields in its CRD and the descriptors differ (-CRD +CSV), mark the field in api/v1 and run `make bundle`:\n%s", owned.Name, diff)
		}
	}
}

// properties collects the fields below one, with their descriptions. It stays among
// the fields that api/v1 declares: those of Kubernetes' own types have no markers.
func properties(path string, schema apiextensionsv1.JSONSchemaProps, ours map[string]bool, into map[string]string) {
	if schema.Items != nil && schema.Items.Schema != nil {
		path, schema = path+"[0]", *schema.Items.Schema
	}
	for name, p := range schema.Properties {
		if len(schema.Properties) > 0 && !ours[name] {
			continue
		}
		into[path+"."+name] = words(p.Description)
		switch name {
		case "conditions", "imagePullSecrets", "tolerations", "topologySpreadConstraints", "affinity", "podSecurityContext", "resources":
			continue
		}
		properties(path+"."+name, p, ours, into)
	}
}

var marker = regexp.MustCompile(`^// \+operator-sdk:csv:customresourcedefinitions:type=(spec|status)(?:,displayName="[^"]*")?(?:,order=\d+)?(?:,xDescriptors=\{(.*)\})?$`)

// markers are the x-descriptors of each marked field of api/v1, by type and JSON name.
func markers(t *testing.T) map[string]map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "api", "v1", "*_types.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("api/v1 holds %d files of types: %v", len(files), err)
	}
	out := map[string]map[string][]string{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			fields := map[string][]string{}
			for _, field := range structure.Fields.List {
				name := jsonName(field)
				if name == "" || field.Doc == nil {
					continue
				}
				for _, c := range field.Doc.List {
					if m := marker.FindStringSubmatch(c.Text); m != nil {
						fields[name] = split(m[2])
					} else if strings.Contains(c.Text, "+operator-sdk") {
						t.Errorf("%s: this test does not understand %s", name, c.Text)
					}
				}
			}
			out[spec.Name.Name] = fields
			return false
		})
	}
	return out
}

func jsonName(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
	return name
}

func split(list string) []string {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.Trim(s, `"`); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// fieldsOf are the JSON names of all marked fields.
func fieldsOf(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, fields := range markers(t) {
		for name := range fields {
			out[name] = true
		}
	}
	return out
}

// TestMarkers: each descriptor is what a marker of the field's name says.
func TestMarkers(t *testing.T) {
	marked := markers(t)
	for i := range load(t, current).CSV.Spec.CustomResourceDefinitions.Owned {
		owned := load(t, current).CSV.Spec.CustomResourceDefinitions.Owned[i]
		for path, d := range descriptors(&owned) {
			name := path[strings.LastIndex(path, ".")+1:]
			found := false
			for _, fields := range marked {
				ui, ok := fields[name]
				found = found || ok && slices.Equal(ui, d.UI)
			}
			if !found {
				t.Errorf("%s %s shows as %q, which no marker in api/v1 says: run `make bundle`", owned.Kind, path, d.UI)
			}
		}
	}
}

// TestEveryExampleKeyHasADescriptor, as scorecard's olm-spec-descriptors wants it.
func TestEveryExampleKeyHasADescriptor(t *testing.T) {
	csv := load(t, current).CSV
	for _, o := range examples(t) {
		i := slices.IndexFunc(csv.Spec.CustomResourceDefinitions.Owned, func(c v1alpha1.CRDDescription) bool { return c.Kind == o.GetKind() })
		if i < 0 {
			t.Errorf("there is an example of a %s, which the bundle does not own", o.GetKind())
			continue
		}
		described := descriptors(&csv.Spec.CustomResourceDefinitions.Owned[i])
		spec, _ := o.Object["spec"].(map[string]any)
		for key := range spec {
			if _, ok := described["spec."+key]; !ok {
				t.Errorf("%s %s uses spec.%s, which has no descriptor", o.GetKind(), o.GetName(), key)
			}
		}
	}
}
