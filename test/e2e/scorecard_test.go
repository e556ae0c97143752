package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	// tarImage is any image with tar and gzip, as scorecard's --untar-image.
	tarImage    = "docker.io/library/redis:8.0"
	toScorecard = 8 * time.Minute
)

// TestScorecard runs the project's own scorecard tests as `operator-sdk scorecard
// --pod-security=restricted` does: each entry of the bundle's configuration in a Pod
// with the bundle unpacked at /bundle, under the ServiceAccount and Role of
// config/scorecard/rbac. The whole log has to be one TestStatus.
func TestScorecard(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	account := u.scorecardAccount()
	u.bundleMap()
	for _, test := range u.scorecardTests() {
		log := u.runScorecard(account, test)
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

// bundleMap puts the bundle into a ConfigMap, packed.
func (u *user) bundleMap() {
	u.Helper()
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	packed := tar.NewWriter(zipped)
	if err := errors.Join(packed.AddFS(os.DirFS("../../bundle")), packed.Close(), zipped.Close()); err != nil {
		u.Fatal(err)
	}
	err := cluster.Create(u.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: "bundle"}, BinaryData: map[string][]byte{"bundle.tar.gz": buffer.Bytes()},
	})
	if err != nil {
		u.Fatal(err)
	}
}

// runScorecard runs one test and gives the whole log of its container.
func (u *user) runScorecard(account string, test v1alpha3.TestConfiguration) []byte {
	u.Helper()
	restricted := corev1.SecurityContext{
		RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	unpacks := restricted
	unpacks.RunAsUser = new(int64(65532)) // scorecard's own image has a numeric user
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, GenerateName: "scorecard-test-", Labels: map[string]string{"app": "scorecard-test"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			InitContainers: []corev1.Container{{
				Name: "scorecard-untar", Image: tarImage, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: &unpacks,
				Args:         []string{"tar", "xvzf", "/scorecard/bundle.tar.gz", "-C", "/scorecard-bundle"},
				VolumeMounts: []corev1.VolumeMount{{Name: "scorecard-bundle", MountPath: "/scorecard", ReadOnly: true}, {Name: "scorecard-untar", MountPath: "/scorecard-bundle"}},
			}},
			Containers: []corev1.Container{{
				Name: "scorecard-test", Image: scorecardImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: test.Entrypoint, SecurityContext: &restricted,
				VolumeMounts: []corev1.VolumeMount{{Name: "scorecard-untar", MountPath: "/bundle", ReadOnly: true}},
				Env: []corev1.EnvVar{{Name: "SCORECARD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"},
				}}},
			}},
			Volumes: []corev1.Volume{
				{Name: "scorecard-bundle", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "bundle"}}}},
				{Name: "scorecard-untar", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
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
	stream, err := cluster.Set.CoreV1().Pods(u.ns).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "scorecard-test"}).Stream(u.Context())
	if err != nil {
		u.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	log, err := io.ReadAll(stream)
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
