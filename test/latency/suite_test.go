//go:build linux

package latency

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/latency"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis/redistest"
	"github.com/example/redis-operator/test/apiserver"
	"github.com/example/redis-operator/test/stand"
)

// record is where to write the metrics of each case to, for internal/latency/testdata.
var record = flag.String("record", "", "folder to write the metrics of each case to")

// bin is where the programs under test are.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "latency-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	build := exec.Command("go", "build", "-o", dir+"/", "../..", "../../cmd/kubectl-redis")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	ctrl.SetLogger(logr.Discard()) // the stand's; the manager has a log of its own
	return apiserver.Main(m)
}

// lab is a namespace with a manager of its own, behind a proxy.
type lab struct {
	*testing.T
	admin     client.Client
	stand     *stand.Stand
	proxy     *proxy
	namespace string
	metrics   string // its URL
	// kubeconfig leads to the proxy.
	kubeconfig string
}

// options of a lab.
type options struct {
	// hung are the Pods whose servers never answer.
	hung func(types.NamespacedName) bool
	// faults are there when the manager starts.
	faults func(verb, path string) fault
}

func newLab(t *testing.T, o options) *lab {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), redisv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	config := apiserver.Config(t)
	config.QPS = -1
	admin, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, admin: admin, namespace: apiserver.Namespace(t), proxy: newProxy(t, config)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if l.stand, err = stand.Start(ctx, stand.Options{Config: config, Dir: t.TempDir(), Hung: o.hung, Namespace: l.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.stand.Stop(); err != nil {
			t.Errorf("the stand: %v", err)
		}
	})
	l.proxy.set(o.faults)
	l.startManager()
	return l
}

// startManager runs the manager until the test ends, and waits until it is ready.
func (l *lab) startManager() {
	l.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	l.metrics = "http://" + address + "/metrics"
	l.kubeconfig = filepath.Join(l.TempDir(), "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: l.proxy.url}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", Namespace: l.namespace}
	file.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*file, l.kubeconfig); err != nil {
		l.Fatal(err)
	}
	log, err := os.Create(filepath.Join(l.TempDir(), "manager.log"))
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "redis-operator"), "--metrics-bind-address="+address, "--metrics-secure=false", "--health-probe-bind-address=0")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig, "WATCH_NAMESPACE="+l.namespace, "RELATED_IMAGE_OPERATOR=operator:1")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && l.Failed() {
			l.Logf("the end of the manager's log:\n%s", text[max(0, len(text)-2000):])
		}
	})
	redistest.Eventually(l, 30*time.Second, func() error {
		_, err := l.samples()
		return err
	})
}

// samples are the manager's metrics now.
func (l *lab) samples() (latency.Samples, error) {
	response, err := http.Get(l.metrics)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return latency.Read(response.Body)
}

// keep writes down the metrics that the analysis needs, for a namespace of a fixed name.
func (l *lab) keep() {
	l.Helper()
	if *record == "" {
		return
	}
	response, err := http.Get(l.metrics)
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		l.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(text), l.namespace, "shop")) {
		if strings.HasPrefix(strings.TrimPrefix(line, "# TYPE "), metrics.Prefix) {
			kept.WriteString(line)
		}
	}
	name := strings.ReplaceAll(strings.TrimPrefix(l.Name(), "Test"), "/", "_") + ".prom"
	if err := os.WriteFile(filepath.Join(*record, name), []byte(kept.String()), 0o644); err != nil {
		l.Fatal(err)
	}
}

// create makes a RedisCluster.
func (l *lab) create(name string, replicas, shards int32) *redisv1.RedisCluster {
	l.Helper()
	c := &redisv1.RedisCluster{}
	c.Namespace, c.Name = l.namespace, name
	c.Spec = redisv1.RedisClusterSpec{Replicas: &replicas, Shards: &shards, Version: "7.0"}
	if err := l.admin.Create(l.Context(), c); err != nil {
		l.Fatal(err)
	}
	return c
}

// await waits until a cluster is as its spec asks.
func (l *lab) await(c *redisv1.RedisCluster) {
	l.Helper()
	redistest.Eventually(l, 2*time.Minute, func() error {
		if err := l.admin.Get(l.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.Status.Phase == redisv1.PhaseRunning && c.Status.ObservedGeneration == c.Generation {
			return nil
		}
		message := ""
		for _, condition := range c.Status.Conditions {
			if condition.Type == redisv1.ConditionReady {
				message = condition.Message
			}
		}
		return fmt.Errorf("%s is %s: %s", c.Name, c.Status.Phase, message)
	})
}
