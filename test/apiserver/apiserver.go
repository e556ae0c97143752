// Package apiserver gives tests a real Kubernetes API server with etcd behind
// it and the project's CRDs in it: one for each test process, started when the
// first test asks for it. Nothing else of Kubernetes runs there: no controller
// makes Pods, and nothing is garbage collected.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assetsVariable names the folder that holds the etcd and kube-apiserver binaries.
const assetsVariable = "KUBEBUILDER_ASSETS"

var server struct {
	once   sync.Once
	env    *envtest.Environment
	config *rest.Config
	err    error
}

// Main runs the tests of a package and stops the server after them. A package
// that uses Config calls it from TestMain: os.Exit(apiserver.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	if server.env == nil {
		return code
	}
	if err := server.env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return max(code, 1)
	}
	return code
}

// Config is how to reach the API server, as its administrator. The first call
// starts it and blocks until it serves and knows the CRDs. The test fails if
// the binaries are not there.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	return rest.CopyConfig(server.config)
}

// Namespace makes a namespace for one test and gives its name. It is not
// deleted: the server's data ends with the test process.
func Namespace(t testing.TB) string {
	t.Helper()
	c, err := client.New(Config(t), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(context.Background(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return ns.Name
}

func start() {
	assets := os.Getenv(assetsVariable)
	if assets == "" {
		server.err = fmt.Errorf("%s is not set, so there is no API server to test against: run `make test`", assetsVariable)
		return
	}
	root, err := moduleRoot()
	if err != nil {
		server.err = err
		return
	}
	server.env = &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	if server.config, err = server.env.Start(); err != nil {
		server.err = fmt.Errorf("start the API server from %s: %w", assets, err)
	}
}

// moduleRoot is the folder of this module's go.mod. Tests run in their package's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working folder: %w", err)
	}
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/example/redis-operator\n") {
			return at, nil
		}
	}
	return "", fmt.Errorf("%s is not inside the project", dir)
}
