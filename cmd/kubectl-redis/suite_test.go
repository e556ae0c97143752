package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// desk is a namespace on a real API server, and a user who sits before it.
type desk struct {
	*testing.T
	admin      client.WithWatch
	namespace  string
	kubeconfig string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, redisv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	config := apiserver.Config(t)
	admin, err := client.NewWithWatch(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, admin: admin, namespace: apiserver.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: d.namespace}
	file.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*file, d.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs the plugin and gives its exit code and what it wrote.
func (d *desk) run(args ...string) (code int, out, errOut string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
	code = execute(ctx, streams, append([]string{"--kubeconfig", d.kubeconfig}, args...))
	return code, stdout.String(), stderr.String()
}

// may gives a user nothing but some rights in the namespace, and runs the plugin as that
// user.
func (d *desk) may(user string, rules ...rbacv1.PolicyRule) func(args ...string) (int, string, string) {
	d.Helper()
	meta := metav1.ObjectMeta{Namespace: d.namespace, Name: user}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}},
	} {
		if err := d.admin.Create(d.Context(), o); err != nil {
			d.Fatal(err)
		}
	}
	return func(args ...string) (int, string, string) { return d.run(append([]string{"--as", user}, args...)...) }
}

func rule(resources, verbs string) rbacv1.PolicyRule {
	group := redisv1.GroupVersion.Group
	if resources == "pods" {
		group = ""
	}
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, ","), Verbs: strings.Split(verbs, ",")}
}

// cluster makes a RedisCluster with a status as the operator writes it.
func (d *desk) cluster(name string, spec redisv1.RedisClusterSpec, s redisv1.RedisClusterStatus) *redisv1.RedisCluster {
	d.Helper()
	c := &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.namespace}, Spec: spec}
	if err := d.admin.Create(d.Context(), c); err != nil {
		d.Fatal(err)
	}
	c.Status = s
	c.Status.ObservedGeneration = c.Generation
	if err := d.admin.Status().Update(d.Context(), c); err != nil {
		d.Fatal(err)
	}
	return c
}

// condition is one that has just become so.
func condition(typ string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

// has fails the test unless the text holds all the parts.
func (d *desk) has(text string, parts ...string) {
	d.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			d.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// exits fails the test unless a command line ended with a code.
func (d *desk) exits(what string, got, want int, out, errOut string) {
	d.Helper()
	if got != want {
		d.Fatalf("%s exits with %d, want %d:\n%s%s", what, got, want, out, errOut)
	}
}
