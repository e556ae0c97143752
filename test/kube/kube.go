// Package kube is what the end-to-end tests and the benchmarks know of a real
// cluster in which the operator is deployed from config/default: how to reach
// it, its nodes and its manager, how to wait, and what to print when waiting was
// in vain. It looks at Redis by itself, without the operator's own code.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// Where config/default puts the operator.
const (
	OperatorNamespace  = "redis-operator-system"
	OperatorDeployment = "redis-operator-controller-manager"
	// OperatorUser is the operator's name at the API server.
	OperatorUser = "system:serviceaccount:" + OperatorNamespace + ":redis-operator-controller-manager"
	// MetricsReader is the ClusterRole that lets its holder get /metrics.
	MetricsReader = "redis-operator-metrics-reader"
)

// kubeconfigVariable names the kubeconfig file of the cluster.
const kubeconfigVariable = "KUBECONFIG"

// Kube is a cluster with the operator in it, seen by its administrator.
type Kube struct {
	client.WithWatch
	// Set reads logs and asks for tokens.
	Set *kubernetes.Clientset
	// Metadata lists objects of any kind.
	Metadata metadata.Interface
	// Kubeconfig is the path of the file that the cluster was reached by.
	Kubeconfig string
}

// Connect reaches the cluster of KUBECONFIG and makes sure that the operator is
// available in it and that the addresses of Pods can be dialled from here. The
// error is one line. It blocks for up to a minute.
func Connect(ctx context.Context) (*Kube, error) {
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		return nil, fmt.Errorf("%s is not set: it must name the kubeconfig of a cluster with the operator in it, as `make quickstart` makes one", kubeconfigVariable)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", path, err)
	}
	config.QPS = -1
	// Listing every kind of object also lists those that are deprecated.
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), redisv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make a scheme: %w", err)
	}
	k := &Kube{Kubeconfig: path}
	if k.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("reach the cluster of %s: %w", path, err)
	}
	if k.Set, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reach the cluster of %s: %w", path, err)
	}
	if k.Metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reach the cluster of %s: %w", path, err)
	}
	return k, k.check(ctx)
}

// check fails in one line if the operator is not there or Pods are out of reach.
func (k *Kube) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var d appsv1.Deployment
	if err := k.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: OperatorDeployment}, &d); err != nil {
		return fmt.Errorf("no operator in the cluster of %s, deploy it with `make deploy`: %w", k.Kubeconfig, err)
	}
	err := Await(ctx, nil, "the operator is available", func(ctx context.Context) (string, error) {
		_, err := k.Manager(ctx)
		return text(err), nil
	})
	if err != nil {
		return err
	}
	pod, err := k.Manager(ctx)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(pod.Status.PodIP, "8081")
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("addresses of Pods cannot be reached from here, and Redis clients need that: %w", err)
	}
	return conn.Close()
}

// text is the error's message, or empty.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Namespace makes a namespace in which Pods must meet the restricted Pod
// Security Standard. Its name starts with the prefix.
func (k *Kube) Namespace(ctx context.Context, prefix string) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix + "-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := k.Create(ctx, ns); err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	return ns.Name, nil
}
