package kube

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managerLabels select the operator's Pods.
var managerLabels = client.MatchingLabels{
	"app.kubernetes.io/name": "redis-operator", "control-plane": "controller-manager",
}

// Manager is the ready Pod of the operator. It is an error if there is none, or
// more than one.
func (k *Kube) Manager(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(OperatorNamespace), managerLabels); err != nil {
		return nil, fmt.Errorf("list the operator's Pods: %w", err)
	}
	var ready []*corev1.Pod
	for i := range pods.Items {
		if Ready(&pods.Items[i]) {
			ready = append(ready, &pods.Items[i])
		}
	}
	if len(ready) != 1 {
		return nil, fmt.Errorf("%d of the operator's %d Pods are ready, want one", len(ready), len(pods.Items))
	}
	return ready[0], nil
}

// Leader is the name of the manager's Pod that holds the Lease, empty when none
// does.
func (k *Kube) Leader(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: OperatorNamespace, Name: "redis-operator.redis.example.com"}
	if err := k.Get(ctx, key, &lease); err != nil {
		return "", fmt.Errorf("get the operator's Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// ManagerLog is the end of the manager's log: those of its latest lines that
// hold the word.
func (k *Kube) ManagerLog(ctx context.Context, word string, lines int) ([]string, error) {
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(OperatorNamespace), managerLabels); err != nil {
		return nil, fmt.Errorf("list the operator's Pods: %w", err)
	}
	var found []string
	for i := range pods.Items {
		tail := int64(20000)
		stream, err := k.Set.CoreV1().Pods(OperatorNamespace).GetLogs(pods.Items[i].Name, &corev1.PodLogOptions{TailLines: &tail}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log of Pod %s: %w", pods.Items[i].Name, err)
		}
		scanner := bufio.NewScanner(stream)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if strings.Contains(scanner.Text(), word) {
				found = append(found, scanner.Text())
			}
		}
		_ = stream.Close() // nothing is written to it
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("read the log of Pod %s: %w", pods.Items[i].Name, err)
		}
	}
	return found[max(0, len(found)-lines):], nil
}

// Token is a short-lived token of a ServiceAccount.
func (k *Kube) Token(ctx context.Context, namespace, account string) (string, error) {
	seconds := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := k.Set.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", namespace, account, err)
	}
	return answer.Status.Token, nil
}

// Metrics gets the manager's metrics with a token, or without any when it is
// empty. The status is that of HTTP.
func (k *Kube) Metrics(ctx context.Context, token string) (status int, body string, err error) {
	pod, err := k.Manager(ctx)
	if err != nil {
		return 0, "", err
	}
	return MetricsOf(ctx, pod, token)
}

// MetricsOf gets the metrics of a manager that is not where config/default puts it.
func MetricsOf(ctx context.Context, pod *corev1.Pod, token string) (status int, body string, err error) {
	// The manager makes its own certificate at each start.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	url := "https://" + net.JoinHostPort(pod.Status.PodIP, "8443") + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make a request for %s: %w", url, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("get the manager's metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read the manager's metrics: %w", err)
	}
	return response.StatusCode, string(data), nil
}

// Sum adds up the samples of a metric, in the text that a manager serves, whose
// labels hold all of the given texts, as `controller="rediscluster"`.
func Sum(metrics, name string, labels ...string) float64 {
	var sum float64
	for line := range strings.Lines(metrics) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !containsAll(rest, labels) {
			continue
		}
		if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			sum += v
		}
	}
	return sum
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// Ready tells whether Kubernetes calls a Pod ready and nobody deletes it.
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp.IsZero()
		}
	}
	return false
}
