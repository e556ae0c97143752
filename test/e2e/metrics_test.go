package e2e

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/test/kube"
)

// TestMetricsNeedALogin: only whom the API server lets get /metrics sees them.
func TestMetricsNeedALogin(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.account("nobody")
	nobody, err := cluster.Token(u.Context(), u.ns, "nobody")
	if err != nil {
		u.Fatal(err)
	}
	for _, c := range []struct {
		name, token string
		want        int
	}{
		{"no token", "", http.StatusUnauthorized},
		// No JWT at all: the review ends in an error, which controller-runtime answers so.
		{"a wrong token", "wrong", http.StatusInternalServerError},
		{"a token without the right", nobody, http.StatusForbidden},
		{"a token with the right", u.metricsToken(), http.StatusOK},
	} {
		status, body, err := cluster.Metrics(u.Context(), c.token)
		if err != nil {
			u.Fatalf("%s: %v", c.name, err)
		}
		if status != c.want {
			u.Errorf("%s: the answer is %d, want %d", c.name, status, c.want)
		}
		if shown := kube.Sum(body, "controller_runtime_reconcile_total") > 0; shown != (c.want == http.StatusOK) {
			u.Errorf("%s: metrics are shown: %t", c.name, shown)
		}
	}
}

// account makes a ServiceAccount.
func (u *user) account(name string) {
	u.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: name}}
	if err := cluster.Create(u.Context(), account); err != nil {
		u.Fatalf("create ServiceAccount %s: %v", name, err)
	}
}

// metricsToken is a token that may get /metrics, as long as the case runs.
func (u *user) metricsToken() string {
	u.Helper()
	u.account("prometheus")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kube.MetricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: u.ns, Name: "prometheus"}},
	}
	if err := cluster.Create(u.Context(), binding); err != nil {
		u.Fatalf("create a ClusterRoleBinding: %v", err)
	}
	u.Cleanup(func() {
		if err := cluster.Delete(context.Background(), binding); err != nil {
			u.Errorf("delete ClusterRoleBinding %s: %v", binding.Name, err)
		}
	})
	token, err := cluster.Token(u.Context(), u.ns, "prometheus")
	if err != nil {
		u.Fatal(err)
	}
	return token
}

// metrics are the manager's metrics, as text.
func (u *user) metrics(token string) string {
	u.Helper()
	status, body, err := cluster.Metrics(u.Context(), token)
	if err != nil || status != http.StatusOK {
		u.Fatalf("get the manager's metrics: %d, %v", status, err)
	}
	return body
}

// eventCount is the number of Events in the namespace, repetitions counted.
func (u *user) eventCount(ctx context.Context) int {
	u.Helper()
	var list eventsv1.EventList
	if err := cluster.List(ctx, &list, client.InNamespace(u.ns)); err != nil {
		u.Fatalf("list Events: %v", err)
	}
	n := len(list.Items)
	for _, e := range list.Items {
		if e.Series != nil {
			n += int(e.Series.Count)
		}
	}
	return n
}

// keyOf names an object.
func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
