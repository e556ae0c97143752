package manifests

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/example/redis-operator/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// warnings collects what the API server warns about.
type warnings struct {
	mu   sync.Mutex
	seen []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// TestAPIServerAccepts applies every object in a namespace under the restricted
// Pod Security Standard: no refusal, no warning, and nothing to change when it
// is applied again.
func TestAPIServerAccepts(t *testing.T) {
	config := apiserver.Config(t)
	heard := &warnings{}
	config.WarningHandlerWithContext = heard
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "databases"}, Value: 1}
	if err := c.Create(t.Context(), class); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, test := range clusters {
		t.Run(test.name, func(t *testing.T) {
			cluster := test.cluster.DeepCopy()
			cluster.Namespace = apiserver.Namespace(t)
			restrict(t, c, cluster.Namespace)
			for _, secret := range []*corev1.Secret{AuthSecret(cluster, NewPassword()), OperatorSecret(cluster, NewPassword())} {
				if err := c.Create(t.Context(), secret); err != nil {
					t.Error(err)
				}
			}
			for _, object := range []runtime.ApplyConfiguration{
				ConfigMap(cluster, UserDirectives(&cluster.Spec), "1"), HeadlessService(cluster), ClientService(cluster), NetworkPolicy(cluster),
				StatefulSet(cluster, 0, 2, ""), StatefulSet(cluster, 1, 2, "1"), PodDisruptionBudget(cluster, 0), PodDisruptionBudget(cluster, 1),
			} {
				for range 2 {
					if err := c.Apply(t.Context(), object, client.FieldOwner("redis-operator")); err != nil {
						t.Fatal(err)
					}
				}
			}
			set := &appsv1.StatefulSet{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: ShardName(cluster, 0)}, set); err != nil {
				t.Fatal(err)
			}
			if set.Generation != 1 {
				t.Errorf("the second apply changed the StatefulSet: generation %d", set.Generation)
			}
			pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
			pod.Name, pod.Namespace = PodName(cluster, 0, 0), cluster.Namespace
			if cluster.Spec.Storage != nil { // the StatefulSet's controller adds the volume
				pod.Spec.Volumes = append(slices.Clone(pod.Spec.Volumes), corev1.Volume{Name: DataVolume, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(cluster, 0, 0)},
				}})
			}
			if err := c.Create(t.Context(), pod); err != nil {
				t.Errorf("a Pod of the StatefulSet: %v", err)
			}
			if seen := heard.take(); len(seen) > 0 {
				t.Errorf("the API server warns: %q", seen)
			}
		})
	}
}

// restrict has the namespace refuse Pods that are not restricted, and warn about
// templates of such Pods.
func restrict(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	labels := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted","pod-security.kubernetes.io/warn":"restricted"}}}`
	if err := c.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(labels))); err != nil {
		t.Fatal(err)
	}
}
