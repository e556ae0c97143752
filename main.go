// Command manager runs the operator: it watches RedisClusters and RedisBackups,
// makes Redis Clusters of the ones and takes the others.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // the zones of schedules, whatever the image holds

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/controllers"
	"github.com/example/redis-operator/internal/footprint"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
)

// version is set by the linker.
var version = "dev"

// leaderElectionID names the Lease that one manager at a time holds.
const leaderElectionID = "redis-operator.redis.example.com"

// shutdownTimeout bounds how long a pass may go on after a signal. It is below
// the grace period of the manager's Pod, so that the Lease is still released.
const shutdownTimeout = 8 * time.Second

// startup is the time in which the manager has started, and looked at all clusters.
const startup = 30 * time.Second

// flags are the command line.
type flags struct {
	metricsAddress string
	metricsSecure  bool
	probeAddress   string
	leaderElect    bool
	version        bool
	zap            zap.Options
}

func main() {
	if code, ok := subcommand(os.Args[1:]); ok {
		os.Exit(code)
	}
	f := parseFlags()
	if f.version {
		fmt.Println(version)
		return
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&f.zap)))
	logger := ctrl.Log.WithName("setup")
	if err := run(f); err != nil {
		logger.Error(err, "the manager ends")
		os.Exit(1)
	}
}

func parseFlags() *flags {
	f := &flags{}
	flag.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "Address of the metrics endpoint; 0 turns it off.")
	flag.BoolVar(&f.metricsSecure, "metrics-secure", true, "Serve metrics by TLS, to those whom the API server lets get /metrics.")
	flag.StringVar(&f.probeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz.")
	flag.BoolVar(&f.leaderElect, "leader-elect", false, "Work only while holding the Lease, so that of several managers one works.")
	flag.BoolVar(&f.version, "version", false, "Print the version and exit.")
	f.zap.BindFlags(flag.CommandLine)
	flag.Parse()
	return f
}

// All that the manager asks for beyond the namespaces that it watches: a
// StorageClass has none, and the metrics endpoint asks the API server who is
// scraping it. The rules inside namespaces are in controllers/.
//
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// run builds the manager and blocks until a signal ends it.
func run(f *flags) error {
	namespaces := watchNamespaces(os.Getenv("WATCH_NAMESPACE"))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster's configuration: %w", err)
	}
	// The API server's own priority and fairness throttles; a limit here would
	// only delay recovery.
	config.QPS = -1
	rest.AddUserAgent(config, "redis-operator/"+version)
	if f.metricsAddress == "0" {
		metrics.Enable(false) // nobody could ask for them
	}
	config.Wrap(metrics.Transport)
	if err := metrics.Register(ctrlmetrics.Registry); err != nil {
		return err
	}

	mgr, err := ctrl.NewManager(config, options(f, namespaces))
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := controllers.MeasureWatches(context.Background(), mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return fmt.Errorf("add the liveness check: %w", err)
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	reconciler := &controllers.RedisClusterReconciler{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Recorder:  mgr.GetEventRecorder("redis-operator"),
		// The image of this very Pod: backups and restores run in it.
		OperatorImage: os.Getenv(controllers.OperatorImageVariable),
		Images:        manifests.ImagesFrom(os.Environ()),
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the RedisCluster controller: %w", err)
	}
	backups := &controllers.RedisBackupReconciler{
		Client: reconciler.Client, APIReader: reconciler.APIReader, Recorder: reconciler.Recorder, OperatorImage: reconciler.OperatorImage, Images: reconciler.Images,
	}
	if err := backups.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the RedisBackup controller: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(shrink)); err != nil {
		return fmt.Errorf("add what keeps the memory small: %w", err)
	}
	ctrl.Log.WithName("setup").Info("the manager starts", "version", version, "namespaces", namespaces)
	return mgr.Start(ctrl.SetupSignalHandler())
}

// shrink gives back, once the start is over, what only the start needed.
func shrink(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(startup):
		footprint.ForgetProgram()
	}
	return nil
}

// watchNamespaces reads WATCH_NAMESPACE, a list separated by commas. An empty
// answer stands for all namespaces.
func watchNamespaces(env string) []string {
	var out []string
	for _, name := range strings.Split(env, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func options(f *flags, namespaces []string) ctrl.Options {
	timeout := shutdownTimeout
	endpoint := metricsserver.Options{
		BindAddress:   f.metricsAddress,
		SecureServing: f.metricsSecure,
		// HTTP/2 is off because of its stream resets (CVE-2023-44487).
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	}
	if f.metricsSecure {
		endpoint.FilterProvider = func(c *rest.Config, h *http.Client) (metricsserver.Filter, error) {
			return filters.WithAuthenticationAndAuthorization(c, h)
		}
	}
	return ctrl.Options{
		Scheme:                        newScheme(),
		Metrics:                       endpoint,
		HealthProbeBindAddress:        f.probeAddress,
		LeaderElection:                f.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionReleaseOnCancel: true, // main returns as soon as the manager has stopped
		GracefulShutdownTimeout:       &timeout,
		Cache:                         cacheOptions(namespaces),
		Client: client.Options{Cache: &client.CacheOptions{
			// Caching these would mean to list and watch all of a cluster's.
			DisableFor: []client.Object{&corev1.Secret{}, &storagev1.StorageClass{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.PersistentVolume{}},
		}},
	}
}

// cacheOptions keeps the cache to the operator's own objects: what the label
// does not select is neither sent by the API server nor held in memory. The
// managed fields of what the operator applies are kept, they tell whether
// anything differs from what was applied; nobody reads those of the rest.
func cacheOptions(namespaces []string) cache.Options {
	own := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "redis-operator"})
	applied := cache.ByObject{Label: own}
	observed := cache.ByObject{Label: own, Transform: cache.TransformStripManagedFields()}
	o := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&redisv1.RedisBackup{}:          {Transform: cache.TransformStripManagedFields()},
		&batchv1.Job{}:                  observed,
		&redisv1.RedisCluster{}:         {Transform: cache.TransformStripManagedFields()},
		&corev1.Pod{}:                   observed,
		&corev1.PersistentVolumeClaim{}: observed,
		&appsv1.StatefulSet{}:           applied,
		&corev1.Service{}:               applied,
		&corev1.ConfigMap{}:             applied,
		&policyv1.PodDisruptionBudget{}: applied,
		&networkingv1.NetworkPolicy{}:   applied,
	}}
	for _, name := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[name] = cache.Config{}
	}
	return o
}

// newScheme knows the kinds that the operator reads or writes and no others.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		redisv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			// The kinds are compiled in: this cannot depend on anything outside.
			panic(err)
		}
	}
	return scheme
}
