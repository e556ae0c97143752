package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/apiserver"
)

// programVariable makes the test binary the program that it tests.
const programVariable = "SCORECARD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	os.Exit(apiserver.Main(m))
}

// parse reads a whole log as scorecard does, and more strictly.
func parse(t *testing.T, log []byte) v1alpha3.TestResult {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(log))
	d.DisallowUnknownFields()
	var status v1alpha3.TestStatus
	if err := d.Decode(&status); err != nil {
		t.Fatalf("the log is no TestStatus: %v\n%s", err, log)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("there is more in the log than one TestStatus:\n%s", log)
	}
	if len(status.Results) != 1 {
		t.Fatalf("%d results, want one", len(status.Results))
	}
	return status.Results[0]
}

// TestProgram: whatever happens, the log is one TestStatus that says what.
func TestProgram(t *testing.T) {
	for _, tt := range []struct {
		name, namespace string
		args            []string
		want            string
	}{
		{"no test", "default", nil, `there is no test "", only backup-restore and cluster-lifecycle`},
		{"unknown test", "default", []string{"nonsense"}, `there is no test "nonsense"`},
		{"no namespace", "", []string{"cluster-lifecycle"}, "SCORECARD_NAMESPACE is not set"},
		{"no bundle", "default", []string{"backup-restore"}, "the bundle in /bundle has 0 ClusterServiceVersions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], tt.args...)
			cmd.Env = append(os.Environ(), programVariable+"=1", namespaceVariable+"="+tt.namespace)
			log, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, log)
			}
			result := parse(t, log)
			if result.State != v1alpha3.ErrorState || len(result.Errors) != 1 || !strings.Contains(result.Errors[0], tt.want) {
				t.Errorf("%+v, want an error that says %q", result, tt.want)
			}
		})
	}
}

// TestPanic: a test that breaks says so, and what it has made is not lost in silence.
func TestPanic(t *testing.T) {
	tests["panics"] = func(_ context.Context, s *stage) error {
		s.say("so far so good")
		panic("out of luck")
	}
	defer delete(tests, "panics")
	var log bytes.Buffer
	if err := write(&log, run(t.Context(), "panics", func() (*stage, error) { return &stage{}, nil })); err != nil {
		t.Fatal(err)
	}
	result := parse(t, log.Bytes())
	if result.State != v1alpha3.ErrorState || len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "out of luck") || result.Log != "so far so good" {
		t.Errorf("%+v", result)
	}
}

func TestExampleOfTheBundle(t *testing.T) {
	example, err := exampleOf("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	if example.Kind != "RedisCluster" || example.Spec.Version == "" {
		t.Errorf("the bundle begins with %+v", example)
	}
	if _, err := exampleOf(t.TempDir()); err == nil {
		t.Error("an empty folder is taken for a bundle")
	}
}

// TestWithoutAnOperator: the tests fail and say why, with the rights of their Role
// alone, and leave nothing behind; without it they say what to do.
func TestWithoutAnOperator(t *testing.T) {
	for name := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestStage(t)
			go protect(t.Context(), admin(t), s.namespace)
			result := run(t.Context(), name, func() (*stage, error) { return s, nil })
			if result.State != v1alpha3.FailState || len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "not within 2s: no operator has looked at it") {
				t.Errorf("%+v", result)
			}
			if len(result.Suggestions) == 0 || !strings.Contains(result.Suggestions[0], "install one that watches the namespace "+s.namespace) {
				t.Errorf("suggestions %q", result.Suggestions)
			}
			left := &redisv1.RedisClusterList{}
			if err := admin(t).List(t.Context(), left, client.InNamespace(s.namespace)); err != nil || len(left.Items) > 0 {
				t.Errorf("%d clusters are left, %v", len(left.Items), err)
			}
			claims := &corev1.PersistentVolumeClaimList{}
			if err := admin(t).List(t.Context(), claims, client.InNamespace(s.namespace)); err != nil || len(claims.Items) > 0 {
				t.Errorf("%d claims are left, %v", len(claims.Items), err)
			}
		})
	}
	t.Run("without its Role", func(t *testing.T) {
		s := newTestStage(t)
		s.Client = as(t, "system:serviceaccount:"+s.namespace+":default")
		result := run(t.Context(), "cluster-lifecycle", func() (*stage, error) { return s, nil })
		if result.State != v1alpha3.FailState || !strings.Contains(strings.Join(result.Suggestions, " "), "config/scorecard/rbac") {
			t.Errorf("%+v", result)
		}
	})
}

// newTestStage is a namespace on a real API server, seen with the rights of
// config/scorecard/rbac.
func newTestStage(t *testing.T) *stage {
	t.Helper()
	example, err := exampleOf("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{namespace: apiserver.Namespace(t), example: example, patience: 2 * time.Second}
	account, role, binding := &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for file, o := range map[string]client.Object{"service_account.yaml": account, "role.yaml": role, "role_binding.yaml": binding} {
		data, err := os.ReadFile("../../config/scorecard/rbac/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(data, o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		o.SetNamespace(s.namespace)
	}
	binding.Subjects[0].Namespace = s.namespace
	for _, o := range []client.Object{account, role, binding} {
		if err := admin(t).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.Client = as(t, "system:serviceaccount:"+s.namespace+":"+account.Name)
	return s
}

// protect plays the controller that lets claims go which nobody uses.
func protect(ctx context.Context, c client.Client, namespace string) {
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		claim := &corev1.PersistentVolumeClaim{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "scorecard-backups"}, claim)
		if err == nil && !claim.DeletionTimestamp.IsZero() {
			claim.Finalizers = nil
			_ = c.Update(ctx, claim) // the next look tries again
		}
		return false, nil
	}) // ends with the test
}

func admin(t *testing.T) client.Client { return as(t, "") }

// as is a client with the rights of a user; empty: those of the administrator.
func as(t *testing.T, user string) client.Client {
	t.Helper()
	config := apiserver.Config(t)
	config.QPS = -1 // a wait for the client's own limit would be told as the reason
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), redisv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
