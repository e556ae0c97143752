package bundle

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	"sigs.k8s.io/yaml"
)

// TestValidators runs what `operator-sdk bundle validate` does, also with
// --select-optional suite=operatorframework. A warning is as bad as an error.
func TestValidators(t *testing.T) {
	for _, dir := range bundles(t) {
		b := load(t, dir)
		validators := append(slices.Clone(validation.DefaultBundleValidators), interfaces.Validators{
			validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
			validation.GoodPracticesValidator, validation.AlphaDeprecatedAPIsValidator, validation.ObjectValidator,
		}...)
		results := validators.Validate(b.ObjectsToValidate()...)
		if len(results) == 0 {
			t.Errorf("%s: nothing was validated", dir)
		}
		for _, r := range results {
			for _, e := range r.Errors {
				t.Errorf("%s: error: %v", dir, e)
			}
			for _, e := range r.Warnings {
				t.Errorf("%s: warning: %v", dir, e)
			}
		}
	}
}

// TestSize: a bundle lives in a ConfigMap while OLM unpacks it, and that holds 1 MiB.
func TestSize(t *testing.T) {
	for _, dir := range bundles(t) {
		if b := load(t, dir); b.CompressedSize == 0 || b.CompressedSize > 256<<10 {
			t.Errorf("%s has %d bytes compressed, want some and at most 256 KiB", dir, b.CompressedSize)
		}
	}
}

// TestContents: OLM makes the Deployment, the ServiceAccount and the bindings
// itself, and some kinds would bind the bundle to what a cluster may lack.
func TestContents(t *testing.T) {
	allowed := []string{"ClusterServiceVersion", "CustomResourceDefinition", "Service", "Role", "ClusterRole"}
	for _, dir := range bundles(t) {
		for _, o := range load(t, dir).Objects {
			if !slices.Contains(allowed, o.GetKind()) {
				t.Errorf("%s holds %s %s, want only %v", dir, o.GetKind(), o.GetName(), allowed)
			}
			if o.GetNamespace() != "" && o.GetKind() != "ClusterServiceVersion" {
				t.Errorf("%s: %s %s names the namespace %s", dir, o.GetKind(), o.GetName(), o.GetNamespace())
			}
		}
	}
}

// TestLabels: the labels of the image are what tools read first, the annotations
// what they read when they have unpacked it.
func TestLabels(t *testing.T) {
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal([]byte(file(t, "bundle", "metadata", "annotations.yaml")), &metadata); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^LABEL ([^=]+)=(.*)$`).FindAllStringSubmatch(file(t, "bundle.Dockerfile"), -1) {
		labels[m[1]] = m[2]
	}
	if diff := cmp.Diff(metadata.Annotations, labels); diff != "" {
		t.Errorf("bundle/metadata/annotations.yaml and the labels in bundle.Dockerfile differ (-annotations +labels):\n%s", diff)
	}
	b := load(t, current)
	v := b.CSV.Spec.Version
	major, minor := fmt.Sprintf("v%d", v.Major), fmt.Sprintf("v%d.%d", v.Major, v.Minor)
	channels := []string{"candidate-" + major, "candidate-" + minor, "fast-" + major, "fast-" + minor, "stable-" + major, "stable-" + minor}
	const prefix = "operators.operatorframework.io."
	for key, want := range map[string]string{
		"bundle.mediatype.v1":       "registry+v1",
		"bundle.manifests.v1":       "manifests/",
		"bundle.metadata.v1":        "metadata/",
		"bundle.package.v1":         "redis-operator",
		"bundle.channels.v1":        strings.Join(channels, ","),
		"bundle.channel.default.v1": "stable-" + minor,
		"test.mediatype.v1":         "scorecard+v1",
		"test.config.v1":            "tests/scorecard/",
	} {
		if got := labels[prefix+key]; got != want {
			t.Errorf("%s = %q, want %q", prefix+key, got, want)
		}
	}
}

// TestHeadline: what people and catalogs see of the operator before they install it.
func TestHeadline(t *testing.T) {
	csv := load(t, current).CSV
	if want := "redis-operator.v" + csv.Spec.Version.String(); csv.Name != want {
		t.Errorf("name = %s, want %s", csv.Name, want)
	}
	for _, key := range []string{
		"alm-examples", "capabilities", "categories", "containerImage", "createdAt", "description", "repository", "support", "olm.skipRange",
		"operatorframework.io/suggested-namespace", "operatorframework.io/initialization-resource",
	} {
		if csv.Annotations[key] == "" {
			t.Errorf("the annotation %s is missing", key)
		}
	}
	for key, value := range csv.Annotations {
		if strings.HasPrefix(key, "features.operators.openshift.io/") && value != "true" && value != "false" {
			t.Errorf("%s = %q, want \"true\" or \"false\"", key, value)
		}
	}
	if _, err := time.Parse(time.RFC3339, csv.Annotations["createdAt"]); err != nil {
		t.Errorf("createdAt: %v", err)
	}
	inside, err := semver.ParseRange(csv.Annotations["olm.skipRange"])
	if err != nil {
		t.Fatalf("olm.skipRange: %v", err)
	}
	if replaced := strings.TrimPrefix(csv.Spec.Replaces, "redis-operator.v"); !inside(semver.MustParse(replaced)) || inside(csv.Spec.Version.Version) {
		t.Errorf("olm.skipRange %s must hold %s, which is replaced, and not %s itself", csv.Annotations["olm.skipRange"], replaced, csv.Spec.Version)
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(csv.Annotations["operatorframework.io/initialization-resource"]), &first); err != nil {
		t.Errorf("operatorframework.io/initialization-resource: %v", err)
	}
	if len(csv.Spec.Description) < 500 || csv.Spec.DisplayName == "" || len(csv.Spec.Keywords) == 0 || len(csv.Spec.Links) == 0 ||
		len(csv.Spec.Maintainers) == 0 || csv.Spec.Provider.Name == "" || csv.Spec.Maturity == "" || csv.Spec.MinKubeVersion == "" {
		t.Error("one of description, displayName, keywords, links, maintainers, provider, maturity, minKubeVersion is missing")
	}
	modes := map[v1alpha1.InstallModeType]bool{}
	for _, m := range csv.Spec.InstallModes {
		modes[m.Type] = m.Supported
	}
	for _, mode := range []v1alpha1.InstallModeType{
		v1alpha1.InstallModeTypeOwnNamespace, v1alpha1.InstallModeTypeSingleNamespace, v1alpha1.InstallModeTypeMultiNamespace, v1alpha1.InstallModeTypeAllNamespaces,
	} {
		if !modes[mode] {
			t.Errorf("the install mode %s is not supported", mode)
		}
	}
}

// TestIcon: the icon is the project's drawing.
func TestIcon(t *testing.T) {
	icons := load(t, current).CSV.Spec.Icon
	if len(icons) != 1 || icons[0].MediaType != "image/svg+xml" {
		t.Fatalf("%d icons, want one, of the type image/svg+xml", len(icons))
	}
	svg, err := base64.StdEncoding.DecodeString(icons[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	if string(svg) != file(t, "config", "manifests", "icon.svg") {
		t.Error("the icon is not config/manifests/icon.svg: run `make bundle`")
	}
	for d, elements := xml.NewDecoder(strings.NewReader(string(svg))), 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && elements > 1 {
			break
		}
		if err != nil {
			t.Fatalf("the icon is no SVG: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok {
			if elements++; elements == 1 && start.Name.Local != "svg" {
				t.Errorf("the icon's root is %s, want svg", start.Name.Local)
			}
		}
	}
}

// bundles are the folders of all bundles, this one and those of earlier releases.
func bundles(t *testing.T) []string {
	t.Helper()
	earlier, err := filepath.Glob(filepath.Join(root, "releases", "*"))
	if err != nil || len(earlier) == 0 {
		t.Fatalf("releases holds %d bundles: %v", len(earlier), err)
	}
	return append(earlier, current)
}
