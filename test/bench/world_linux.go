package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
	"github.com/example/redis-operator/test/stand"
)

// world is a control plane without nodes, what stands in for them, and a manager.
type world struct {
	env       *envtest.Environment
	admin     client.Client
	stand     *stand.Stand
	manager   *exec.Cmd
	audit     *auditLog
	dir       string
	namespace string
	metrics   string
	// version is that of the redis-server on PATH.
	version string
	start   time.Time
}

// auditPolicy writes down each request once, when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata, users: ["` + kube.OperatorUser + `"]}, {level: None}]
`

// openWorld starts all of it, in a folder below dir.
func openWorld(ctx context.Context, dir string, n int) (w *world, err error) {
	ctrl.SetLogger(logr.Discard()) // the stand's; the manager has a log of its own
	w = &world{dir: filepath.Join(dir, strconv.Itoa(n)), namespace: "many", start: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return w, err
	}
	config, err := w.startControlPlane(ctx)
	if err != nil {
		return w, err
	}
	if w.version, err = serverVersion(ctx); err != nil {
		return w, err
	}
	if w.stand, err = stand.Start(ctx, stand.Options{Config: config, Dir: filepath.Join(w.dir, "pods")}); err != nil {
		return w, err
	}
	return w, w.startManager(ctx, config)
}

func (w *world) progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1f s] many: %s\n", time.Since(w.start).Seconds(), fmt.Sprintf(format, arguments...))
}

// startControlPlane starts etcd and an API server with an audit log.
func (w *world) startControlPlane(ctx context.Context) (*restclient.Config, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		out, err := exec.CommandContext(ctx, "hack/assets.sh").Output()
		if err != nil {
			return nil, fmt.Errorf("build etcd and kube-apiserver (hack/assets.sh): %w", err)
		}
		assets = strings.TrimSpace(string(out))
	}
	policy, log := filepath.Join(w.dir, "audit-policy.yaml"), filepath.Join(w.dir, "audit.log")
	if err := errors.Join(os.WriteFile(policy, []byte(auditPolicy), 0o600), os.WriteFile(log, nil, 0o600)); err != nil {
		return nil, err
	}
	w.env = &envtest.Environment{BinaryAssetsDirectory: assets, CRDDirectoryPaths: []string{"config/crd/bases"}, ErrorIfCRDPathMissing: true}
	w.env.ControlPlane.GetAPIServer().Configure().Append("audit-policy-file", policy).Append("audit-log-path", log)
	config, err := w.env.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	config.QPS = -1
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), redisv1.AddToScheme(s)); err != nil {
		return nil, err
	}
	if w.admin, err = client.New(config, client.Options{Scheme: s}); err != nil {
		return nil, err
	}
	if err := w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}); err != nil {
		return nil, fmt.Errorf("create the namespace: %w", err)
	}
	w.audit, err = openAuditLog(log)
	return config, err
}

// startManager builds the manager and runs it with the settings of its Deployment, as a
// user of the operator's name.
func (w *world) startManager(ctx context.Context, config *restclient.Config) error {
	binary := filepath.Join(w.dir, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the manager: %w\n%s", err, out)
	}
	user, err := w.env.AddUser(envtest.User{Name: kube.OperatorUser, Groups: []string{"system:masters"}}, restclient.CopyConfig(config))
	if err != nil {
		return fmt.Errorf("make the manager's user: %w", err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("make the manager's kubeconfig: %w", err)
	}
	path := filepath.Join(w.dir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := free.Addr().String()
	_ = free.Close()
	w.metrics = "http://" + address + "/metrics"
	log, err := os.Create(filepath.Join(w.dir, "manager.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	w.manager = exec.Command(binary, "--metrics-bind-address="+address, "--metrics-secure=false", "--health-probe-bind-address=0")
	w.manager.Env = append(os.Environ(), "KUBECONFIG="+path, "WATCH_NAMESPACE=", "OPERATOR_IMAGE=operator:1", "GOGC=40", "GOMEMLIMIT=100MiB")
	w.manager.Stdout, w.manager.Stderr = log, log
	if err := w.manager.Start(); err != nil {
		return fmt.Errorf("start the manager: %w", err)
	}
	for range 300 {
		if _, err = w.samples(ctx); err == nil {
			return nil
		}
		if err := waitFor(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the manager serves no metrics: %w", err)
}

// get asks for the manager's metrics.
func (w *world) get(ctx context.Context) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.metrics, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get the manager's metrics: %w", err)
	}
	return response.Body, nil
}

// close ends all of it.
func (w *world) close() error {
	var errs []error
	if w.manager != nil && w.manager.Process != nil {
		_ = w.manager.Process.Signal(syscall.SIGTERM)
		_ = w.manager.Wait() // it was told to end
	}
	if w.stand != nil {
		errs = append(errs, w.stand.Stop())
	}
	if w.audit != nil {
		_ = w.audit.Close() // it was only read
	}
	if w.env != nil {
		errs = append(errs, w.env.Stop())
	}
	return errors.Join(errs...)
}

// serverVersion is the minor version of the redis-server on PATH.
func serverVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redis-server must be on PATH: %w", err)
	}
	for _, word := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return strings.Join(strings.SplitN(v, ".", 3)[:2], "."), nil
		}
	}
	return "", fmt.Errorf("redis-server --version says %q", out)
}

// clockTick is the unit of /proc/PID/stat on Linux.
const clockTick = 10 * time.Millisecond

// processorTime is what a process has used so far.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of the manager: %w", err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(errUser, errSystem)
}
