package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// TestNamespaces: the manager sees the namespaces in WATCH_NAMESPACE and no others, and
// needs no right beyond them. Empty, it sees all, with the rights to.
func TestNamespaces(t *testing.T) {
	one, two, other := apiserver.Namespace(t), apiserver.Namespace(t), apiserver.Namespace(t)
	admin := newClient(t)
	role := &rbacv1.ClusterRole{}
	data, err := os.ReadFile("config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, role); err != nil {
		t.Fatal(err)
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	confined, everywhere := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "confined"}, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "everywhere"}
	objects := []client.Object{role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everywhere"}, RoleRef: ref, Subjects: []rbacv1.Subject{everywhere}}}
	for _, ns := range []string{one, two} {
		objects = append(objects, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "confined"}, RoleRef: ref, Subjects: []rbacv1.Subject{confined}})
	}
	for _, ns := range []string{one, two, other} {
		objects = append(objects, &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "orders"}})
	}
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, user, variable string
		want                 []string
	}{
		{"one namespace", "confined", one, []string{one}},
		{"two namespaces", "confined", one + "," + two, []string{one, two}},
		{"all", "everywhere", "", []string{one, two, other}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := seen(t, tt.user, watchNamespaces(tt.variable))
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("clusters of the namespaces %v are seen, want %v", got, tt.want)
			}
		})
	}
}

// seen are the namespaces whose RedisClusters are in the cache of a manager.
func seen(t *testing.T, user string, namespaces []string) []string {
	t.Helper()
	o := cacheOptions(namespaces)
	o.Scheme = newScheme()
	c, err := cache.New(impersonate(t, user), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if !c.WaitForCacheSync(t.Context()) { // it has begun
		t.Fatal("the cache did not start")
	}
	var list redisv1.RedisClusterList
	// Each waits until it is in sync, which it is not without the right to list.
	for _, l := range []client.ObjectList{&list, &redisv1.RedisBackupList{}, &appsv1.StatefulSetList{}} {
		if err := c.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, rc := range list.Items {
		out = append(out, rc.Namespace)
	}
	slices.Sort(out)
	return out
}

func impersonate(t *testing.T, user string) *rest.Config {
	t.Helper()
	config := apiserver.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(rbacv1.AddToScheme(scheme), redisv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
