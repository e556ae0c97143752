package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/example/redis-operator/test/kube"
)

// latencyReader is the Role in the operator's namespace that lets its holder run
// `kubectl redis latency`.
const latencyReader = "redis-operator-latency-reader"

// plugin builds `kubectl redis` and gives what runs it with a kubeconfig: its exit code,
// and all that it wrote.
func (u *user) plugin() func(kubeconfig string, args ...string) (int, string) {
	u.Helper()
	binary := filepath.Join(u.TempDir(), "kubectl-redis")
	if out, err := exec.CommandContext(u.Context(), "go", "build", "-o", binary, "../../cmd/kubectl-redis").CombinedOutput(); err != nil {
		u.Fatalf("build kubectl-redis: %v\n%s", err, out)
	}
	return func(kubeconfig string, args ...string) (int, string) {
		u.Helper()
		cmd := exec.CommandContext(u.Context(), binary, append([]string{"-n", u.ns}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if cmd.ProcessState == nil {
			u.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
}

// kubeconfig makes one for a ServiceAccount: a token, as most people have.
func (u *user) kubeconfig(account string) string {
	u.Helper()
	u.account(account)
	token, err := cluster.Token(u.Context(), u.ns, account)
	if err != nil {
		u.Fatal(err)
	}
	file, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		u.Fatal(err)
	}
	file.AuthInfos = map[string]*clientcmdapi.AuthInfo{"me": {Token: token}}
	file.Contexts = map[string]*clientcmdapi.Context{"me": {Cluster: file.Contexts[file.CurrentContext].Cluster, AuthInfo: "me"}}
	file.CurrentContext = "me"
	path := filepath.Join(u.TempDir(), account)
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		u.Fatal(err)
	}
	return path
}

// TestPlugin: `kubectl redis` on a real cluster, through TLS, token and port-forward,
// with a client certificate, and with a token that may do nothing else.
func TestPlugin(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	run := u.plugin()
	c := u.create(`{metadata: {name: orders}, spec: {replicas: 4, shards: 2}}`)
	u.awaitRunning(c)
	succeeds := func(kubeconfig string, want string, args ...string) {
		t.Helper()
		code, out := run(kubeconfig, args...)
		t.Logf("kubectl redis %s\n%s", strings.Join(args, " "), out)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q exits with %d, want 0 with %q", args, code, want)
		}
	}
	succeeds(cluster.Kubeconfig, u.ns+"/orders  Running  4 of 4 nodes ready, 2 shards", "status", "orders")
	succeeds(cluster.Kubeconfig, u.ns+"/orders: the last change took", "latency", "orders")
	succeeds(cluster.Kubeconfig, "probe: step 1 takes", "latency", "--probe")

	reader := u.kubeconfig("reader")
	if code, out := run(reader, "latency", "orders"); code != 1 || !strings.Contains(out, "list the operator's Pods") {
		t.Errorf("without any right latency exits with %d:\n%s", code, out)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.OperatorNamespace, Name: u.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: latencyReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: u.ns, Name: "reader"}},
	}
	if err := cluster.Create(t.Context(), binding); err != nil {
		t.Fatalf("bind %s: %v", latencyReader, err)
	}
	t.Cleanup(func() {
		if err := cluster.Delete(context.Background(), binding); err != nil {
			t.Errorf("delete the RoleBinding: %v", err)
		}
	})
	succeeds(reader, "STEP  WHAT HAPPENS", "latency", "orders")

	u.reread(c)
	from := c.Status.ShardStatuses[0].Primary
	succeeds(cluster.Kubeconfig, "is the primary of shard 0 in place of "+from, "failover", "orders", "--shard", "0")
	u.awaitRunning(c)
	u.awaitWhole(c)
}
