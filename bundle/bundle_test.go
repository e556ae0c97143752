// Package bundle holds the OLM bundle; here are its tests. Bundle, config/ and
// the markers in api/v1 must tell the same, since `make bundle`, which makes one
// of the others, needs a program that not every machine has.
package bundle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/example/redis-operator/test/apiserver"
)

// root is the project's folder, as seen from the tests.
const root = ".."

// current is the folder of the bundle that is worked on.
const current = "../bundle"

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// load reads a bundle as OLM's own tools do.
func load(t *testing.T, dir string) *manifests.Bundle {
	t.Helper()
	b, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		t.Fatalf("read the bundle in %s: %v", dir, err)
	}
	return b
}

// built is what kustomize makes of config/manifests, as `make bundle` reads it.
var built = sync.OnceValues(func() ([]unstructured.Unstructured, error) {
	tools, err := filepath.Abs(filepath.Join(root, "hack", "tools", "go.mod"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", "-modfile="+tools, "kustomize", "build", "config/manifests")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	return decode(out)
})

// config finds one object of what kustomize makes of config/manifests.
func config[T any](t *testing.T, kind, name string) *T {
	t.Helper()
	objects, err := built()
	if err != nil {
		t.Fatalf("kustomize build config/manifests: %v", err)
	}
	for i := range objects {
		if objects[i].GetKind() == kind && objects[i].GetName() == name {
			return into[T](t, objects[i].Object)
		}
	}
	t.Fatalf("config/manifests has no %s %s", kind, name)
	return nil
}

// into converts an object to its type; an unknown field fails the test.
func into[T any](t *testing.T, object map[string]any) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, out, true); err != nil {
		t.Fatalf("convert %v: %v", object["kind"], err)
	}
	return out
}

// file reads a file of the project.
func file(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// decode reads the objects of a stream of YAML documents.
func decode(data []byte) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		o := unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// words is a text without its line breaks.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }
