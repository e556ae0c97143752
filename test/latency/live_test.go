//go:build linux

package latency

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// TestEveryDocumentedMetricIsLive: a manager that has made a cluster, seen a backup of
// it, and was refused, put off and failed once shows every metric that docs/metrics.md
// describes, and no other of the operator's, with the label values that it lists and no
// other. When the cluster is gone its series are.
func TestEveryDocumentedMetricIsLive(t *testing.T) {
	l := newLab(t, options{})
	l.refuse()
	var n atomic.Int64
	l.proxy.set(func(verb, path string) fault {
		if verb != "patch" || !strings.HasSuffix(path, "/status") {
			return fault{}
		}
		switch n.Add(1) {
		case 1:
			return fault{answer: http.StatusTooManyRequests, retryAfter: 1}
		case 2:
			return fault{answer: http.StatusInternalServerError}
		}
		return fault{}
	})
	c := l.create("orders", 4, 2)
	l.await(c)
	l.back(c)
	redistest.Eventually(t, 30*time.Second, func() error { return l.documented() })
	if err := l.admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 30*time.Second, func() error {
		s, err := l.samples()
		if err != nil {
			return err
		}
		for name, family := range s {
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "name" && label.GetValue() == "orders" && strings.HasPrefix(name, metrics.Prefix) {
						return fmt.Errorf("%s is left of a cluster that is gone", name)
					}
				}
			}
		}
		return nil
	})
}

// refuse lets the API server refuse one more NetworkPolicy: that of a cluster of its own,
// by a quota.
func (l *lab) refuse() {
	l.Helper()
	none := corev1.ResourceList{"count/networkpolicies.networking.k8s.io": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: l.namespace}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	if err := l.admin.Create(l.Context(), quota); err != nil {
		l.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if err := l.admin.Status().Update(l.Context(), quota); err != nil {
		l.Fatal(err)
	}
	refused := l.create("refused", 1, 1)
	redistest.Eventually(l, 30*time.Second, func() error {
		s, err := l.samples()
		if err == nil && len(s[metrics.Prefix+"api_rejections_total"].GetMetric()) == 0 {
			err = errors.New("nothing is refused")
		}
		return err
	})
	for _, o := range []client.Object{refused, quota} {
		if err := l.admin.Delete(l.Context(), o); err != nil {
			l.Fatal(err)
		}
	}
}

// back gives a cluster a schedule, and a backup that has ended well. Its Job, which
// nobody runs here, is left aside.
func (l *lab) back(c *redisv1.RedisCluster) {
	l.Helper()
	where := redisv1.BackupDestination{PersistentVolumeClaim: &redisv1.ClaimDestination{ClaimName: "backups"}}
	c.Spec.Backup = &redisv1.BackupSpec{Schedule: "@daily", Destination: where}
	if err := l.admin.Update(l.Context(), c); err != nil {
		l.Fatal(err)
	}
	b := &redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: "done", Namespace: l.namespace}, Spec: redisv1.RedisBackupSpec{ClusterName: c.Name, Destination: where}}
	if err := l.admin.Create(l.Context(), b); err != nil {
		l.Fatal(err)
	}
	redistest.Eventually(l, 30*time.Second, func() error {
		if err := l.admin.Get(l.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if b.Status.Phase == "" {
			return errors.New("the operator has not looked at it") // it would write over what follows
		}
		now := metav1.Now()
		b.Status.Phase, b.Status.CompletionTime = redisv1.BackupSucceeded, &now
		return l.admin.Status().Update(l.Context(), b)
	})
}

// documented compares what is served with docs/metrics.md.
func (l *lab) documented() error {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		return err
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	s, err := l.samples()
	if err != nil {
		return err
	}
	for name := range sections {
		if len(s[name].GetMetric()) == 0 {
			return fmt.Errorf("%s is documented, and not served", name)
		}
	}
	for name, family := range s {
		if !strings.HasPrefix(name, metrics.Prefix) {
			continue
		}
		text, ok := sections[name]
		if !ok {
			return fmt.Errorf("%s is served, and not documented", name)
		}
		if !strings.HasPrefix(strings.ToUpper(text), "\n"+family.GetType().String()+":") {
			return fmt.Errorf("%s is a %s, documented as %q", name, family.GetType(), text[:20])
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				row := "| `" + label.GetName() + "` | "
				if slices.Contains([]string{"namespace", "name"}, label.GetName()) {
					row += "of the RedisCluster"
				} else if !strings.Contains(text, "`"+label.GetValue()+"`") {
					return fmt.Errorf("%s has %s=%q, which is not documented", name, label.GetName(), label.GetValue())
				}
				if !strings.Contains(text, row) {
					return fmt.Errorf("%s has a label %s, which is not documented", name, label.GetName())
				}
			}
		}
	}
	if len(sections) != len(metrics.Names()) {
		return fmt.Errorf("%d metrics are documented, there are %d", len(sections), len(metrics.Names()))
	}
	return nil
}
