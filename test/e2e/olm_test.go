package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/test/kube"
)

// The cases of this file put an operator of their own in the place of the deployed
// one, so they run alone. It has what a ClusterServiceVersion holds and nothing else:
// a right that the bundle forgets is missing here first.

// TestOLMInstallModes: in each of them the operator does its work where it should, and
// neither looks nor may look anywhere else.
func TestOLMInstallModes(t *testing.T) {
	for _, mode := range []v1alpha1.InstallModeType{
		v1alpha1.InstallModeTypeOwnNamespace, v1alpha1.InstallModeTypeSingleNamespace,
		v1alpha1.InstallModeTypeMultiNamespace, v1alpha1.InstallModeTypeAllNamespaces,
	} {
		t.Run(string(mode), func(t *testing.T) {
			o, other := newOLM(t), newUser(t)
			users := []*user{o.user}
			switch mode {
			case v1alpha1.InstallModeTypeSingleNamespace:
				users = []*user{newUser(t)}
			case v1alpha1.InstallModeTypeMultiNamespace:
				users = []*user{newUser(t), newUser(t)}
			case v1alpha1.InstallModeTypeAllNamespaces:
				users = []*user{newUser(t)}
			}
			if mode != v1alpha1.InstallModeTypeAllNamespaces {
				for _, u := range users {
					o.targets = append(o.targets, u.ns)
				}
			}
			pod := o.install(csvOf(t, "bundle"))
			for _, u := range users {
				u.life()
			}
			o.stays(other)
			o.metrics(pod)
			if lines := o.grudges(pod); len(lines) > 0 {
				t.Errorf("the operator lacks rights:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}

// life is what a cluster goes through: made, used, scaled, changed, backed up,
// restored, deleted.
func (u *user) life() {
	u.Helper()
	u.newClaim("backups")
	c := u.create(`{metadata: {name: orders}, spec: {replicas: 3, shards: 1, storage: {size: 64Mi}}}`)
	u.awaitRunning(c)
	u.works(c)
	u.edit(c, `{spec: {replicas: 4, shards: 2, config: {maxmemory-policy: allkeys-lru}}}`)
	u.awaitRunning(c)
	u.works(c)
	b := u.backup("nightly", "clusterName: orders, verify: Restore, destination: {persistentVolumeClaim: {claimName: backups}}")
	u.succeeds(b)
	restored := u.create(`{metadata: {name: restored}, spec: {replicas: 1, restoreFrom: {backupName: nightly}}}`)
	u.awaitRunningFor(restored, 2*toBackup)
	for _, o := range []client.Object{restored, c, b} {
		u.remove(o)
		u.await(toGo, o.GetName()+" is gone", cluster.Gone(o))
	}
}

// stays makes sure that the operator keeps to its namespaces.
func (o *olm) stays(other *user) {
	o.Helper()
	for _, right := range [][2]string{{"get", "secrets"}, {"list", "pods"}, {"create", "configmaps"}} {
		if got, want := o.may(right[0], "", right[1], other.ns), len(o.targets) == 0; got != want {
			o.Errorf("may %s %s in a namespace that it does not watch: %t, want %t", right[0], right[1], got, want)
		}
	}
	if o.may("list", "", "secrets", "") || !o.may("get", "storage.k8s.io", "storageclasses", "") {
		o.Error("the operator may list Secrets, or not get a StorageClass")
	}
	if len(o.targets) == 0 {
		return
	}
	ignored := other.create(`{metadata: {name: orders}, spec: {replicas: 1}}`)
	other.hold(5*time.Second, "the cluster of another namespace is ignored", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, keyOf(ignored), ignored); err != nil || ignored.Status.Phase != "" {
			return "it is " + string(ignored.Status.Phase), err
		}
		return "", nil
	})
	other.remove(ignored)
}

// metrics reads the metrics as Prometheus and the kubectl plugin do, which takes the
// operator's own rights to ask the API server who that is.
func (o *olm) metrics(pod *corev1.Pod) {
	o.Helper()
	for account, want := range map[string]int{"redis-operator-metrics-reader": http.StatusOK, "default": http.StatusForbidden} {
		token, err := cluster.Token(o.Context(), o.ns, account)
		if err != nil {
			o.Fatal(err)
		}
		status, body, err := kube.MetricsOf(o.Context(), pod, token)
		if err != nil || status != want {
			o.Errorf("metrics for %s: status %d, want %d: %v\n%.300s", account, status, want, err, body)
		}
	}
}
