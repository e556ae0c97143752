package e2e

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/example/redis-operator/test/kube"
)

// olm installs an operator as the Operator Lifecycle Manager does.
type olm struct {
	*user // in the operator's namespace
	// targets are the namespaces of the OperatorGroup; none stands for all.
	targets []string
	// image takes the place of the one that the bundle names: that is not published yet.
	image string
	// made are the objects without a namespace, by name.
	made map[string]client.Object
}

// newOLM turns the deployed operator off until the end of the case.
func newOLM(t *testing.T) *olm {
	t.Helper()
	o := &olm{user: newUser(t), made: map[string]client.Object{}}
	o.image = o.scaleDeployed(t.Context(), 0)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), toRun) // the test's own has ended
		defer cancel()
		for _, made := range o.made {
			if err := client.IgnoreNotFound(cluster.Delete(ctx, made)); err != nil {
				t.Errorf("delete %s: %v", made.GetName(), err)
			}
		}
		// The namespace goes after this, and the operator must not fight the deployed one.
		if err := cluster.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(o.ns)); err != nil {
			t.Error(err)
		}
		o.scaleDeployed(ctx, 1)
		err := kube.Await(ctx, nil, "the deployed operator is back", func(ctx context.Context) (string, error) {
			missing := ""
			if _, err := cluster.Manager(ctx); err != nil {
				missing = err.Error()
			}
			return missing, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	o.await(toGo, "the deployed operator is gone", func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(kube.OperatorNamespace), client.MatchingLabels{"control-plane": "controller-manager"})
		if err != nil || len(pods.Items) > 0 {
			return "there is a Pod", err
		}
		return "", nil
	})
	return o
}

// scaleDeployed sets the replicas of the deployed operator and gives its image.
func (o *olm) scaleDeployed(ctx context.Context, replicas int32) string {
	d := &appsv1.Deployment{}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: kube.OperatorNamespace, Name: kube.OperatorDeployment}, d); err != nil {
		o.Fatal(err)
	}
	base := d.DeepCopy()
	d.Spec.Replicas = &replicas
	if err := cluster.Patch(ctx, d, client.MergeFrom(base)); err != nil {
		o.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// csvOf reads the ClusterServiceVersion of a bundle.
func csvOf(t *testing.T, bundle string) *v1alpha1.ClusterServiceVersion {
	t.Helper()
	data, err := os.ReadFile("../../" + bundle + "/manifests/redis-operator.clusterserviceversion.yaml")
	if err != nil {
		t.Fatal(err)
	}
	csv := &v1alpha1.ClusterServiceVersion{}
	if err := yaml.UnmarshalStrict(data, csv); err != nil {
		t.Fatal(err)
	}
	return csv
}

// install makes what OLM makes of a ClusterServiceVersion, or brings it to a new one,
// and waits until the operator is ready.
func (o *olm) install(csv *v1alpha1.ClusterServiceVersion) *corev1.Pod {
	o.Helper()
	install := csv.Spec.InstallStrategy.StrategySpec
	for _, p := range slices.Concat(install.Permissions, install.ClusterPermissions) {
		o.apply(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: p.ServiceAccountName}})
	}
	for _, p := range install.ClusterPermissions {
		o.grantEverywhere(p.ServiceAccountName, p.ServiceAccountName+"-everywhere", p.Rules)
	}
	for _, p := range install.Permissions {
		if len(o.targets) == 0 {
			o.grantEverywhere(p.ServiceAccountName, p.ServiceAccountName, p.Rules)
			continue
		}
		for _, ns := range slices.Compact(slices.Sorted(slices.Values(append([]string{o.ns}, o.targets...)))) {
			meta := metav1.ObjectMeta{Namespace: ns, Name: p.ServiceAccountName}
			o.apply(&rbacv1.Role{ObjectMeta: meta, Rules: p.Rules})
			o.apply(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: o.account(p.ServiceAccountName)})
		}
	}
	for _, d := range install.DeploymentSpecs {
		d.Spec.Template.Annotations = maps.Clone(d.Spec.Template.Annotations)
		maps.Copy(d.Spec.Template.Annotations, map[string]string{
			"olm.targetNamespaces": strings.Join(o.targets, ","), "olm.operatorNamespace": o.ns, "olm.operatorGroup": "group",
		})
		for i := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[i]
			for j := range c.Env {
				if c.Env[j].Value == c.Image {
					c.Env[j].Value = o.image
				}
			}
			c.Image = o.image
		}
		o.apply(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: d.Name, Labels: d.Label}, Spec: d.Spec})
	}
	return o.manager()
}

func (o *olm) grantEverywhere(account, name string, rules []rbacv1.PolicyRule) {
	o.Helper()
	name = o.ns + "-" + name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: o.account(account),
	}
	o.made["role "+name], o.made["binding "+name] = role, binding
	o.apply(role)
	o.apply(binding)
}

func (o *olm) account(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.ns, Name: name}}
}

// apply makes an object or replaces the one of its name.
func (o *olm) apply(object client.Object) {
	o.Helper()
	existing, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		o.Fatalf("%s is no object", object.GetName())
	}
	err := cluster.Get(o.Context(), keyOf(object), existing)
	switch {
	case client.IgnoreNotFound(err) != nil:
	case err != nil:
		err = cluster.Create(o.Context(), object)
	default:
		object.SetResourceVersion(existing.GetResourceVersion())
		err = cluster.Update(o.Context(), object)
	}
	if err != nil {
		o.Fatalf("apply %s: %v", object.GetName(), err)
	}
}

// manager waits until the operator's Deployment has rolled and gives its Pod.
func (o *olm) manager() *corev1.Pod {
	o.Helper()
	var pods corev1.PodList
	o.await(toRun, "the operator of the bundle is ready", func(ctx context.Context) (string, error) {
		d := &appsv1.Deployment{}
		if err := cluster.Get(ctx, client.ObjectKey{Namespace: o.ns, Name: kube.OperatorDeployment}, d); err != nil {
			return "", err
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 1 || d.Status.Replicas != 1 || d.Status.ReadyReplicas != 1 {
			return "it rolls", nil
		}
		if err := cluster.List(ctx, &pods, client.InNamespace(o.ns), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return "", err
		}
		if len(pods.Items) != 1 {
			return "there is more than one Pod", nil
		}
		return "", nil
	})
	return &pods.Items[0]
}

// may asks the API server what the operator may do in a namespace.
func (o *olm) may(verb, group, resource, namespace string) bool {
	o.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + o.ns + ":" + kube.OperatorDeployment,
		Groups:             []string{"system:serviceaccounts", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource},
	}}
	if err := cluster.Create(o.Context(), review); err != nil {
		o.Fatal(err)
	}
	return review.Status.Allowed
}

// grudges are the lines of an operator's log in which the API server refuses it.
func (o *olm) grudges(pod *corev1.Pod) []string {
	o.Helper()
	log, err := cluster.Set.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(o.Context())
	if err != nil {
		o.Fatal(err)
	}
	var out []string
	for _, line := range strings.Split(string(log), "\n") {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "Unauthorized") {
			out = append(out, line)
		}
	}
	return out
}
