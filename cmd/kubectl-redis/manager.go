package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/example/redis-operator/internal/latency"
	"github.com/example/redis-operator/internal/metrics"
)

// managerOptions say how the metrics of the operator are read.
type managerOptions struct {
	namespace, account, bearer string
}

const (
	// managerSelector finds the operator's Pods.
	managerSelector = "app.kubernetes.io/name=redis-operator,control-plane=controller-manager"
	// metricsPort is the manager's port for metrics.
	metricsPort = 8443
	// scrapeTimeout bounds the reading of one Pod's metrics.
	scrapeTimeout = 20 * time.Second
)

// managerSamples reads the metrics of the Pod that works: of several, one holds the
// Lease and the others wait.
func (p *plugin) managerSamples(ctx context.Context, o managerOptions) (latency.Samples, error) {
	_, config, _, err := p.connect()
	if err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	pods, err := set.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: managerSelector})
	if err != nil {
		return nil, fmt.Errorf("list the operator's Pods in namespace %s: %w", o.namespace, err)
	}
	if o.bearer == "" && len(pods.Items) > 0 {
		if o.bearer, err = token(ctx, set, o); err != nil {
			return nil, err
		}
	}
	var working latency.Samples
	most := -1.0
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		samples, err := scrape(ctx, config, set, pod, o.bearer)
		if err != nil {
			return nil, err
		}
		passes := 0.0
		for _, m := range samples[metrics.Prefix+"pass_duration_seconds"].GetMetric() {
			passes += float64(m.GetHistogram().GetSampleCount())
		}
		if passes > most {
			working, most = samples, passes
		}
	}
	if working == nil {
		return nil, fmt.Errorf("no Pod of the operator runs in namespace %s: name its namespace with --operator-namespace", o.namespace)
	}
	return working, nil
}

// token asks for one that may read the metrics and nothing else.
func token(ctx context.Context, set kubernetes.Interface, o managerOptions) (string, error) {
	seconds := int64(600)
	answer, err := set.CoreV1().ServiceAccounts(o.namespace).CreateToken(ctx, o.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s in namespace %s: %w", o.account, o.namespace, err)
	}
	return answer.Status.Token, nil
}

// scrape reads one Pod's metrics through a port-forward.
func scrape(ctx context.Context, config *rest.Config, set kubernetes.Interface, pod *corev1.Pod, bearer string) (latency.Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	port, stop, err := forward(ctx, config, set, pod)
	if err != nil {
		return nil, fmt.Errorf("forward a port to Pod %s: %w", pod.Name, err)
	}
	defer stop()
	// The manager makes its own certificate at each start. The way there is the API
	// server's, and the token is good for nothing but this.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	body, err := get(ctx, &http.Client{Transport: transport}, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), bearer)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of Pod %s: %w", pod.Name, err)
	}
	defer func() { _ = body.Close() }()
	return latency.Read(body)
}

// forward opens a local port that leads to the Pod's port for metrics.
func forward(ctx context.Context, config *rest.Config, set kubernetes.Interface, pod *corev1.Pod) (port uint16, stop func(), err error) {
	url := set.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	// WebSockets pass through proxies that SPDY does not.
	if tunnel, err := portforward.NewSPDYOverWebsocketDialer(url, config); err == nil {
		dialer = portforward.NewFallbackDialer(tunnel, dialer, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
	}
	done, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", metricsPort)}, done, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	var failure error // is set once it has ended
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = forwarder.ForwardPorts()
	}()
	select {
	case <-ready:
	case <-ended:
		return 0, nil, failure
	case <-ctx.Done():
		close(done)
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(done)
		return 0, nil, err
	}
	stop = func() {
		close(done)
		<-ended
	}
	return ports[0].Local, stop, nil
}

// get asks a URL for text.
func get(ctx context.Context, c *http.Client, url, bearer string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", url, err)
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get the metrics: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	if slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, response.StatusCode) {
		return nil, fmt.Errorf("get the metrics: %s: the token may not get /metrics", strings.ToLower(response.Status))
	}
	return nil, fmt.Errorf("get the metrics: %s", response.Status)
}
