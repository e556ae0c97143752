package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// scorecardImage is test/scorecard, which must have been loaded.
	scorecardImage = "redis-operator-scorecard:e2e"
	toScorecard    = 8 * time.Minute
)

// TestScorecard runs the project's own scorecard tests as `operator-sdk scorecard
// --pod-security=restricted` does: each entry of the bundle's configuration in a Pod
// with the bundle unpacked at /bundle (by a ConfigMap here, where scorecard has an init
// container untar one), under the ServiceAccount and Role of
// config/scorecard/rbac. The whole log has to be one TestStatus.
func TestScorecard(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	account := u.scorecardAccount()
	bundle := u.bundleMap()
	for _, test := range u.scorecardTests() {
		log := u.runScorecard(account, bundle, test)
		result := u.testStatus(log)
		want := strings.TrimSuffix(test.Labels["test"], "-test")
		if result.Name != want || result.State != v1alpha3.PassState || len(result.Errors) > 0 || result.Log == "" {
			t.Errorf("%s: %+v", want, result)
		}
	}
	u.await(toGo, "nothing is left of the tests", func(ctx context.Context) (string, error) {
		all, err := cluster.Inventory(ctx, u.ns)
		for name := range all {
			if strings.Contains(name, "scorecard-") && !strings.HasPrefix(name, "pods/scorecard-test-") {
				return name + " is there", err
			}
		}
		return "", err
	})
}

// scorecardAccount makes what config/scorecard/rbac holds, and gives the account's name.
func (u *user) scorecardAccount() string {
	u.Helper()
	read := func(file string, o client.Object) {
		data, err := os.ReadFile("../../config/scorecard/rbac/" + file)
		if err != nil {
			u.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(data, o); err != nil {
			u.Fatal(err)
		}
		o.SetNamespace(u.ns)
	}
	account, role, binding := &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}
	read("service_account.yaml", account)
	read("role.yaml", role)
	read("role_binding.yaml", binding)
	binding.Subjects[0].Namespace = u.ns
	for _, o := range []client.Object{account, role, binding} {
		if err := cluster.Create(u.Context(), o); err != nil {
			u.Fatal(err)
		}
	}
	return account.Name
}

// scorecardTests are the entries of the bundle's configuration that are ours.
func (u *user) scorecardTests() []v1alpha3.TestConfiguration {
	u.Helper()
	data, err := os.ReadFile("../../bundle/tests/scorecard/config.yaml")
	if err != nil {
		u.Fatal(err)
	}
	var config v1alpha3.Configuration
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		u.Fatal(err)
	}
	var out []v1alpha3.TestConfiguration
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			if test.Labels["suite"] == "redis-operator" {
				out = append(out, test)
			}
		}
	}
	if len(out) == 0 {
		u.Fatal("the bundle has no tests of ours")
	}
	return out
}

// bundleMap puts the bundle into a ConfigMap, and gives a volume that has it unpacked.
func (u *user) bundleMap() corev1.ConfigMapVolumeSource {
	u.Helper()
	data := map[string]string{}
	var items []corev1.KeyToPath
	bundle := os.DirFS("../../bundle")
	err := fs.WalkDir(bundle, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(bundle, path)
		key := strings.ReplaceAll(path, "/", "_")
		data[key] = string(content)
		items = append(items, corev1.KeyToPath{Key: key, Path: path})
		return err
	})
	if err != nil {
		u.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: "bundle"}, Data: data}
	if err := cluster.Create(u.Context(), object); err != nil {
		u.Fatal(err)
	}
	return corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: object.Name}, Items: items}
}

// runScorecard runs one test and gives the whole log of its container.
func (u *user) runScorecard(account string, bundle corev1.ConfigMapVolumeSource, test v1alpha3.TestConfiguration) []byte {
	u.Helper()
	restricted := corev1.SecurityContext{
		RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, GenerateName: "scorecard-test-", Labels: map[string]string{"app": "scorecard-test"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "scorecard-test", Image: scorecardImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: test.Entrypoint, SecurityContext: &restricted,
				VolumeMounts: []corev1.VolumeMount{{Name: "bundle", MountPath: "/bundle", ReadOnly: true}},
				Env: []corev1.EnvVar{{Name: "SCORECARD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"},
				}}},
			}},
			Volumes: []corev1.Volume{{Name: "bundle", VolumeSource: corev1.VolumeSource{ConfigMap: &bundle}}},
		},
	}
	if err := cluster.Create(u.Context(), pod); err != nil {
		u.Fatal(err)
	}
	u.await(toScorecard, test.Labels["test"]+" ends", func(ctx context.Context) (string, error) {
		err := cluster.Get(ctx, keyOf(pod), pod)
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return "", err
		}
		return "its Pod is " + string(pod.Status.Phase), err
	})
	log, err := cluster.Set.CoreV1().Pods(u.ns).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	return log
}

// testStatus reads a whole log, strictly.
func (u *user) testStatus(log []byte) v1alpha3.TestResult {
	u.Helper()
	d := json.NewDecoder(bytes.NewReader(log))
	d.DisallowUnknownFields()
	var status v1alpha3.TestStatus
	if err := d.Decode(&status); err != nil || len(status.Results) != 1 {
		u.Fatalf("the log is not a TestStatus with one result, %v:\n%s", err, log)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		u.Fatalf("there is more in the log than one TestStatus:\n%s", log)
	}
	return status.Results[0]
}
