package bundle

import (
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdify "sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
)

// reviewed are the rules that a release adds to a place that existed before, about a
// field that did not: no object that exists can break them. OLM v1 cannot know that
// and refuses the update unless its check is told to let it pass: docs/release.md and
// docs/install-olm.md must say so for each of them.
var reviewed = map[string][]string{
	"redis-operator.v0.2.0": {"spec: restoreFrom"},
}

// TestCRDUpgrades: a release takes nothing away from objects that exist. The checks
// are those of OLM v1, as it configures them.
func TestCRDUpgrades(t *testing.T) {
	checks, err := runner.New(&crdify.Config{
		Conversion: crdify.ConversionPolicyIgnore, UnhandledEnforcement: crdify.EnforcementPolicyError,
		Validations: []crdify.ValidationConfig{
			{Name: "description", Enforcement: crdify.EnforcementPolicyNone},
			{Name: "enum", Enforcement: crdify.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": "Allow"}},
		},
	}, runner.DefaultRegistry())
	if err != nil {
		t.Fatal(err)
	}
	releases := bundles(t)
	for i := 1; i < len(releases); i++ {
		from, to := load(t, releases[i-1]), load(t, releases[i])
		var added []string
		for _, older := range from.V1CRDs {
			newer := crdOf(to, older.Name)
			if newer == nil {
				t.Errorf("%s of %s is gone in %s", older.Name, from.Name, to.Name)
				continue
			}
			for v := range older.Spec.Versions {
				was, is := older.Spec.Versions[v].Schema.OpenAPIV3Schema, newer.Spec.Versions[v].Schema.OpenAPIV3Schema
				for part := range was.Properties {
					now := is.Properties[part]
					for _, field := range setApart(was.Properties[part], &now) {
						added = append(added, part+": "+field)
					}
					is.Properties[part] = now
				}
			}
			if results := checks.Run(older, newer); results.HasFailures() {
				t.Errorf("%s, from %s to %s:\n%s", older.Name, from.Name, to.Name, results.RenderPlainText())
			}
		}
		if !slices.Equal(added, reviewed[to.Name]) {
			t.Errorf("%s adds rules about %q, reviewed are %q", to.Name, added, reviewed[to.Name])
		}
	}
}

// setApart takes out of a schema the rules about fields that it did not have before,
// and gives these fields.
func setApart(was apiextensionsv1.JSONSchemaProps, is *apiextensionsv1.JSONSchemaProps) []string {
	var fields []string
	is.XValidations = slices.DeleteFunc(slices.Clone(is.XValidations), func(r apiextensionsv1.ValidationRule) bool {
		for field := range is.Properties {
			if _, existed := was.Properties[field]; !existed && strings.Contains(r.Rule, "self."+field) {
				fields = append(fields, field)
				return true
			}
		}
		return false
	})
	return fields
}

func crdOf(b *manifests.Bundle, name string) *apiextensionsv1.CustomResourceDefinition {
	for _, crd := range b.V1CRDs {
		if crd.Name == name {
			return crd
		}
	}
	return nil
}
