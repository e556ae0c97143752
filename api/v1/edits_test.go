package v1_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/apiserver"
)

// TestEdit edits a cluster once; want empty means that the edit is admitted.
func TestEdit(t *testing.T) {
	const (
		shrink       = "size cannot shrink: a volume can only grow"
		classChanged = "spec.storage.storageClassName: Invalid value: storageClassName cannot be changed: the volumes exist already"
		storageMoved = "spec: Invalid value: storage can be neither added nor removed once the cluster exists: make a new cluster and move the data"
		engine       = "engine cannot be changed: the engines do not read each other's files; make a new cluster and move the data"
	)
	cases := []struct {
		name, before string
		// status as the operator wrote it before the edit.
		status     string
		edit, want string
	}{
		{name: "more nodes", edit: `spec: {replicas: 8}`},
		{name: "no nodes", edit: `spec: {replicas: 0}`,
			want: "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"},
		{name: "fewer nodes than shards", before: `spec: {replicas: 6, shards: 3}`, edit: `spec: {replicas: 2}`,
			want: "spec: Invalid value: shards (3) must not exceed replicas (2): every shard needs a node to hold its slots"},
		{name: "more shards than nodes", edit: `spec: {shards: 7}`,
			want: "spec: Invalid value: shards (7) must not exceed replicas (6): every shard needs a node to hold its slots"},
		{name: "another engine", edit: `spec: {engine: Valkey}`, want: `spec.engine: Invalid value: "Valkey": ` + engine},
		{name: "engine left out is the default, not another", before: `spec: {engine: Valkey}`, edit: `spec: {engine: null}`,
			want: `spec.engine: Invalid value: "Redis": ` + engine},

		{name: "newer minor", status: `{version: "8.0"}`, edit: `spec: {version: "8.2"}`},
		{name: "no version", status: `{version: "8.0"}`, edit: `spec: {version: newest}`,
			want: `spec.version: Invalid value: "newest": "newest" is no version: write major.minor or major.minor.patch, as "8.0" or "8.0.2"`},
		{name: "older minor", before: `spec: {version: "8.2"}`, status: `{version: "8.2.1"}`, edit: `spec: {version: "8.0"}`,
			want: "spec.version: Invalid value: a downgrade to 8.0 is refused: 8.2.1 has already written the data"},
		{name: "older major", before: `spec: {version: "10.0"}`, status: `{version: "10.0.0"}`, edit: `spec: {version: "9.9"}`,
			want: "spec.version: Invalid value: a downgrade to 9.9 is refused: 10.0.0 has already written the data"},
		{name: "too old", status: `{version: "8.0"}`, edit: `spec: {version: "6.2"}`,
			want: "spec.version: Invalid value: a downgrade to 6.2 is refused: 8.0 has already written the data\n" +
				`spec.version: Invalid value: "6.2": version 6.2 is too old: 7.0 is the oldest that this operator runs`},
		{name: "older patch of the same minor", before: `spec: {version: "8.0.6"}`, status: `{version: "8.0.6"}`, edit: `spec: {version: "8.0.2"}`},
		{name: "back from a typo that never served", before: `spec: {version: "80.0"}`, status: `{version: "8.0.6"}`, edit: `spec: {version: "8.0"}`},
		{name: "back before anything has served", before: `spec: {version: "8.2"}`, edit: `spec: {version: "7.0"}`},
		{name: "another field while the version is below what served", before: `spec: {version: "8.0"}`, status: `{version: "8.2.1"}`, edit: `spec: {replicas: 8}`},

		{name: "storage grows", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: {size: 2Gi}}`},
		{name: "storage in another unit", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: {size: 1024Mi}}`},
		{name: "storage shrinks", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: {size: 1023Mi}}`,
			want: `spec.storage.size: Invalid value: "1023Mi": ` + shrink},
		{name: "storage shrinks to a number", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: {size: 1000}}`,
			want: "spec.storage.size: Invalid value: 1000: " + shrink},
		{name: "storage added", edit: `spec: {storage: {size: 1Gi}}`, want: storageMoved},
		{name: "storage removed", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: null}`, want: storageMoved},
		{name: "a class corrected before Pods exist", before: `spec: {storage: {size: 1Gi, storageClassName: a}}`, status: `{phase: Pending, replicas: 0}`, edit: `spec: {storage: {storageClassName: b}}`},
		{name: "another class once Pods exist", before: `spec: {storage: {size: 1Gi, storageClassName: a}}`, status: `{replicas: 1}`, edit: `spec: {storage: {storageClassName: b}}`, want: classChanged},
		{name: "another class once data was served", before: `spec: {storage: {size: 1Gi, storageClassName: a}}`, status: `{version: "8.0"}`, edit: `spec: {storage: {storageClassName: b}}`, want: classChanged},
		{name: "a class added once Pods exist", before: `spec: {storage: {size: 1Gi}}`, status: `{replicas: 1}`, edit: `spec: {storage: {storageClassName: b}}`, want: classChanged},
		{name: "a class removed once Pods exist", before: `spec: {storage: {size: 1Gi, storageClassName: a}}`, status: `{replicas: 1}`, edit: `spec: {storage: {storageClassName: null}}`, want: classChanged},
		{name: "retain", before: `spec: {storage: {size: 1Gi}}`, edit: `spec: {storage: {retain: false}}`},

		{name: "auth off", edit: `spec: {auth: {disabled: true}}`},
		{name: "auth on and off", before: `spec: {auth: {secretName: mine}}`, edit: `spec: {auth: {disabled: true}}`,
			want: "spec.auth: Invalid value: secretName and disabled exclude each other"},
		{name: "a directive", edit: `spec: {config: {maxmemory-policy: allkeys-lru}}`},
		{name: "an owned directive", before: `spec: {config: {maxmemory: 1gb}}`, edit: `spec: {config: {requirepass: x}}`,
			want: `spec.config: Invalid value: owned by the operator, remove from config: ["requirepass"]`},
		{name: "a directive in a value", before: `spec: {config: {maxmemory: 1gb}}`, edit: `spec: {config: {maxmemory: "2gb\nport 1"}}`,
			want: `spec.config: Invalid value: a value must be a single line: ["maxmemory"]`},
		{name: "the operator's label", edit: `spec: {podLabels: {redis.example.com/role: primary}}`,
			want: "spec.podLabels: Invalid value: labels under redis.example.com/ and app.kubernetes.io/ are owned by the operator"},
		{name: "paused", edit: `spec: {paused: true}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t)
			o := u.create(c.before)
			if c.status != "" {
				u.setStatus(o, c.status)
			}
			err := u.edit(o, c.edit)
			if c.want == "" {
				if err != nil {
					t.Errorf("edit: %v", err)
				}
				return
			}
			if got := refusal(err); !slices.Equal(got, strings.Split(c.want, "\n")) {
				t.Errorf("edit gave %v\nwant %s", err, c.want)
			}
			if now := reread(t, u, o); now.GetResourceVersion() != o.GetResourceVersion() {
				t.Errorf("a refused edit changed the object: %v", now.Object["spec"])
			}
		})
	}
}

func reread(t *testing.T, u *user, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	now := o.DeepCopy()
	if err := u.Get(context.Background(), client.ObjectKeyFromObject(o), now); err != nil {
		t.Fatalf("get: %v", err)
	}
	return now
}

// TestScale scales as `kubectl scale rdc` and an HPA do.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		to             int32
		want           []string
	}{
		{name: "out", to: 8},
		{name: "in", to: 1},
		{name: "to nothing", to: 0,
			want: []string{"spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"}},
		{name: "above the limit", to: 1001,
			want: []string{"spec.replicas: Invalid value: 1001: spec.replicas in body should be less than or equal to 1000"}},
		{name: "below the shards", manifest: `spec: {shards: 3}`, to: 2,
			want: []string{"spec: Invalid value: shards (3) must not exceed replicas (2): every shard needs a node to hold its slots"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t)
			o := u.create(c.manifest)
			scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace()}, Spec: autoscalingv1.ScaleSpec{Replicas: c.to}}
			err := u.SubResource("scale").Update(context.Background(), o.DeepCopy(), client.WithSubResourceBody(scale))
			if got := refusal(err); !slices.Equal(got, c.want) || (err != nil) != (c.want != nil) {
				t.Fatalf("scale to %d gave %v\nwant %q", c.to, err, c.want)
			}
			want := int64(6)
			if c.want == nil {
				want = int64(c.to)
			}
			if got, _, _ := unstructured.NestedInt64(reread(t, u, o).Object, "spec", "replicas"); got != want {
				t.Errorf("spec.replicas = %d, want %d", got, want)
			}
		})
	}
}

func TestScaleShowsStatus(t *testing.T) {
	u := newUser(t)
	o := u.create("")
	u.setStatus(o, `{replicas: 5, readyReplicas: 4, shards: 3, selector: app.kubernetes.io/instance=orders}`)
	scheme := runtime.NewScheme()
	if err := redisv1.AddToScheme(scheme); err != nil {
		t.Fatalf("make a scheme: %v", err)
	}
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	cluster := &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace()}}
	scale := &autoscalingv1.Scale{}
	if err := c.SubResource("scale").Get(context.Background(), cluster, scale); err != nil {
		t.Fatalf("get the scale: %v", err)
	}
	if scale.Spec.Replicas != 6 || scale.Status.Replicas != 5 || scale.Status.Selector != "app.kubernetes.io/instance=orders" {
		t.Errorf("scale = %+v, %+v", scale.Spec, scale.Status)
	}
}
