package bundle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

const (
	deploymentName = "redis-operator-controller-manager"
	// permissionPrefix is what kustomize puts before the names in config/rbac.
	permissionPrefix = "redis-operator-"
)

// TestCRDs: those of config/crd and no other, to the letter, each of them owned.
func TestCRDs(t *testing.T) {
	b := load(t, current)
	got, want := map[string]any{}, map[string]any{}
	for _, crd := range b.V1CRDs {
		got[crd.Name] = crd.Spec
	}
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("config/crd/bases holds %d files: %v", len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		want[crd.Name] = crd.Spec
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CRDs differ (-config/crd +bundle), run `make bundle`:\n%s", diff)
	}
	var owned []string
	for _, crd := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		owned = append(owned, crd.Name)
		if crd.Description == "" || crd.DisplayName == "" || len(crd.Resources) == 0 {
			t.Errorf("%s lacks a description, a display name or resources", crd.Name)
		}
	}
	slices.Sort(owned)
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(owned, names) {
		t.Errorf("the bundle owns %v, want %v", owned, names)
	}
	var project struct {
		Resources []struct{ Kind string } `json:"resources"`
	}
	if err := yaml.Unmarshal([]byte(file(t, "PROJECT")), &project); err != nil {
		t.Fatal(err)
	}
	if len(project.Resources) != len(want) {
		t.Errorf("PROJECT has %d kinds, config/crd %d", len(project.Resources), len(want))
	}
}

// TestPermissions: the rules of config/rbac and no others. What has a namespace is
// granted in the namespaces of the OperatorGroup, so that an operator for one
// namespace cannot read the Secrets of the others.
func TestPermissions(t *testing.T) {
	install := load(t, current).CSV.Spec.InstallStrategy.StrategySpec
	roles := map[string][]rbacv1.PolicyRule{
		"manager-role":         config[rbacv1.ClusterRole](t, "ClusterRole", permissionPrefix+"manager-role").Rules,
		"leader-election-role": config[rbacv1.Role](t, "Role", permissionPrefix+"leader-election-role").Rules,
		"manager-cluster-role": config[rbacv1.ClusterRole](t, "ClusterRole", permissionPrefix+"manager-cluster-role").Rules,
	}
	for name, want := range map[string]string{"manager-role": "role.yaml", "leader-election-role": "leader_election_role.yaml", "manager-cluster-role": "cluster_role.yaml"} {
		role := rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(file(t, "config", "rbac", want)), &role); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(role.Rules, roles[name]); diff != "" {
			t.Errorf("config/rbac/%s and what kustomize makes of it differ:\n%s", want, diff)
		}
	}
	for _, tt := range []struct {
		name string
		got  []v1alpha1.StrategyDeploymentPermissions
		want []rbacv1.PolicyRule
	}{
		{"permissions", install.Permissions, slices.Concat(roles["leader-election-role"], roles["manager-role"])},
		{"clusterPermissions", install.ClusterPermissions, roles["manager-cluster-role"]},
	} {
		if diff := cmp.Diff(ruleSet(tt.want), ruleSet(granted(tt.got, deploymentName))); diff != "" {
			t.Errorf("%s differ (-config/rbac +bundle), run `make bundle`:\n%s", tt.name, diff)
		}
	}
	everywhere := []string{"authentication.k8s.io/tokenreviews create", "authorization.k8s.io/subjectaccessreviews create", "storage.k8s.io/storageclasses get"}
	manager := ruleSet(granted(install.ClusterPermissions, deploymentName))
	if got := manager; !slices.Equal(got, everywhere) {
		t.Errorf("in all namespaces the manager may %q, want %q alone", got, everywhere)
	}
	for _, rule := range append(ruleSet(granted(install.Permissions, deploymentName)), manager...) {
		if strings.Contains(rule, "*") || strings.Contains(rule, "customresourcedefinitions") || strings.Contains(rule, " escalate") || strings.Contains(rule, " bind") {
			t.Errorf("too much is granted: %s", rule)
		}
	}
}

// TestAccounts: beside the manager there is only the account that reads the metrics,
// and that may do nothing else.
func TestAccounts(t *testing.T) {
	install := load(t, current).CSV.Spec.InstallStrategy.StrategySpec
	want := config[rbacv1.ClusterRole](t, "ClusterRole", permissionPrefix+"metrics-reader").Rules
	if diff := cmp.Diff(want, granted(install.ClusterPermissions, permissionPrefix+"metrics-reader")); diff != "" {
		t.Errorf("the rights of the metrics' reader differ (-config/rbac +bundle):\n%s", diff)
	}
	if len(install.Permissions) != 1 || len(install.ClusterPermissions) != 2 {
		t.Errorf("there are permissions of %d accounts in namespaces and of %d everywhere, want 1 and 2", len(install.Permissions), len(install.ClusterPermissions))
	}
}

// granted are the rules of one ServiceAccount.
func granted(permissions []v1alpha1.StrategyDeploymentPermissions, account string) []rbacv1.PolicyRule {
	for _, p := range permissions {
		if p.ServiceAccountName == account {
			return p.Rules
		}
	}
	return nil
}

// ruleSet is each right by itself, as "apps/statefulsets get", in order.
func ruleSet(rules []rbacv1.PolicyRule) []string {
	set := map[string]bool{}
	for _, r := range rules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					set[fmt.Sprintf("%s/%s %s", group, resource, verb)] = true
				}
			}
			for _, url := range r.NonResourceURLs {
				set[url+" "+verb] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// TestDeployment: that of `make deploy`, but for the release's image, and for the
// namespaces, which OLM writes into an annotation of the Pod.
func TestDeployment(t *testing.T) {
	csv := load(t, current).CSV
	specs := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs
	if len(specs) != 1 || specs[0].Name != deploymentName {
		t.Fatalf("%d deployments, want %s alone", len(specs), deploymentName)
	}
	want := config[appsv1.Deployment](t, "Deployment", deploymentName)
	manager := &want.Spec.Template.Spec.Containers[0]
	placeholder, image := manager.Image, csv.Annotations["containerImage"]
	manager.Image = image
	watched := false
	for i, v := range manager.Env {
		switch {
		case v.Name == "WATCH_NAMESPACE":
			watched = true
			manager.Env[i] = corev1.EnvVar{Name: v.Name, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['olm.targetNamespaces']"},
			}}
		case v.Value == placeholder:
			manager.Env[i].Value = image
		}
	}
	if !watched {
		t.Error("the manager has no WATCH_NAMESPACE, so that no install mode but AllNamespaces works")
	}
	if diff := cmp.Diff(want.Spec, specs[0].Spec); diff != "" {
		t.Errorf("Deployments differ (-config +bundle), run `make bundle`:\n%s", diff)
	}
	if diff := cmp.Diff(want.Labels, map[string]string(specs[0].Label)); diff != "" {
		t.Errorf("labels of the Deployments differ (-config +bundle):\n%s", diff)
	}
	for _, c := range specs[0].Spec.Template.Spec.Containers {
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("the container %s requests no CPU or no memory", c.Name)
		}
	}
}

// TestRelatedImages: a mirror copies what is listed, so everything that ever runs
// must be, and pins it, so that nothing may be named twice in different ways.
func TestRelatedImages(t *testing.T) {
	csv := load(t, current).CSV
	listed := map[string]bool{}
	for _, i := range csv.Spec.RelatedImages {
		if listed[i.Image] || i.Name == "" {
			t.Errorf("%s is listed twice, or has no name", i.Image)
		}
		listed[i.Image] = true
	}
	used := map[string]bool{csv.Annotations["containerImage"]: true}
	for _, d := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
			used[c.Image] = true
			for _, v := range c.Env {
				if strings.HasPrefix(v.Name, "RELATED_IMAGE_") {
					used[v.Value] = true
				}
			}
		}
	}
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("the images in use and relatedImages differ (-used +listed):\n%s", diff)
	}
	// What an example asks for is what is mirrored.
	mirrored := manifests.Images{}
	for _, v := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers[0].Env {
		maps.Copy(mirrored, manifests.ImagesFrom([]string{v.Name + "=" + v.Value}))
	}
	for _, o := range examples(t) {
		if o.GetKind() != "RedisCluster" {
			continue
		}
		cluster := into[redisv1.RedisCluster](t, o.Object)
		if cluster.Spec.Version == "" {
			cluster.Spec.Version = "8.0" // the default
		}
		plain := manifests.Image(cluster)
		mirrored.Fill(cluster)
		if cluster.Spec.Image == "" || cluster.Spec.Image != plain {
			t.Errorf("the image of the example %s is %q, want %s, so that an update of the operator rolls no Pod", cluster.Name, cluster.Spec.Image, plain)
		}
	}
}

// TestOtherObjects: what the CSV does not carry is as in config/ too.
func TestOtherObjects(t *testing.T) {
	for _, o := range load(t, current).Objects {
		switch o.GetKind() {
		case "ClusterServiceVersion", "CustomResourceDefinition":
		case "Role":
			want := config[rbacv1.Role](t, o.GetKind(), o.GetName())
			want.Namespace = "" // OLM puts it beside the operator
			if diff := cmp.Diff(want, into[rbacv1.Role](t, o.Object)); diff != "" {
				t.Errorf("Role %s differs (-config +bundle), run `make bundle`:\n%s", o.GetName(), diff)
			}
		case "ClusterRole":
			want := config[rbacv1.ClusterRole](t, o.GetKind(), o.GetName())
			got := into[rbacv1.ClusterRole](t, o.Object)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("ClusterRole %s differs (-config +bundle), run `make bundle`:\n%s", o.GetName(), diff)
			}
		default:
			t.Errorf("%s %s: this test does not know how to compare it", o.GetKind(), o.GetName())
		}
	}
}

// TestBase: everything else is what the base of the CSV says.
func TestBase(t *testing.T) {
	base := config[v1alpha1.ClusterServiceVersion](t, "ClusterServiceVersion", "redis-operator.v0.0.0")
	got := load(t, current).CSV
	base.Name = got.Name
	base.Spec.Version = got.Spec.Version
	base.Spec.InstallStrategy = got.Spec.InstallStrategy
	base.Spec.RelatedImages = got.Spec.RelatedImages
	for _, csv := range []*v1alpha1.ClusterServiceVersion{base, got} { // the generator has an order of its own
		slices.SortFunc(csv.Spec.CustomResourceDefinitions.Owned, func(a, b v1alpha1.CRDDescription) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, key := range []string{"alm-examples", "containerImage", "operators.operatorframework.io/builder", "operators.operatorframework.io/project_layout"} {
		base.Annotations[key] = got.Annotations[key]
	}
	if diff := cmp.Diff(base, got); diff != "" {
		t.Errorf("the CSV and its base in config/manifests differ (-base +bundle), run `make bundle`:\n%s", diff)
	}
}

// TestPermissionsAreExplained: docs/permissions.md has every resource with its verbs.
func TestPermissionsAreExplained(t *testing.T) {
	verbs := map[string]string{} // by resource
	for _, line := range strings.Split(file(t, "docs", "permissions.md"), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, resource := range strings.Split(cells[1], ",") {
			verbs[strings.Trim(strings.TrimSpace(resource), "`")] = cells[2]
		}
	}
	install := load(t, current).CSV.Spec.InstallStrategy.StrategySpec
	for _, right := range append(ruleSet(granted(install.Permissions, deploymentName)), ruleSet(granted(install.ClusterPermissions, deploymentName))...) {
		_, right, _ = strings.Cut(right, "/")
		resource, verb, _ := strings.Cut(right, " ")
		if !slices.Contains(strings.FieldsFunc(verbs[resource], func(r rune) bool { return r == ',' || r == ' ' }), verb) {
			t.Errorf("docs/permissions.md does not say what %s of %s is for", verb, resource)
		}
	}
}
