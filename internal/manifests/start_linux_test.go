package manifests

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// everywhere runs a test in each shell with each server of this machine.
func everywhere(t *testing.T, test func(*testing.T, shell, redistest.Version)) {
	for _, v := range redistest.Versions(t) {
		for _, sh := range shells(t) {
			t.Run(v.String()+"/"+sh.name, func(t *testing.T) {
				t.Parallel()
				test(t, sh, v)
			})
		}
	}
}

// full has all directives that the operator may write.
func full() redisv1.RedisClusterSpec {
	return redisv1.RedisClusterSpec{
		Storage:   &redisv1.StorageSpec{Size: resource.MustParse("1Gi")},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}},
		Config: map[string]redisv1.ConfigValue{
			"client-output-buffer-limit": "pubsub 64mb 16mb 60", "notify-keyspace-events": "", "min-replicas-max-lag": "10",
		},
	}
}

func TestStart(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		p := newPod(t, sh, v, full())
		p.start()
		for _, user := range []struct{ name, password string }{{"", clientPassword}, {"default", clientPassword}, {OperatorUser, operatorPassword}} {
			c := p.client(user.name, user.password)
			for _, command := range [][]any{{"CONFIG", "GET", "port"}, {"PUBLISH", "channel", "x"}, {"DBSIZE"}} {
				if _, err := c.Do(t.Context(), command...).Result(); err != nil {
					t.Errorf("%v as %q: %v", command, user.name, err)
				}
			}
		}
		for _, user := range []struct{ name, password string }{{"", ""}, {"", strings.TrimSpace(clientPassword)}, {"default", operatorPassword}, {OperatorUser, clientPassword}} {
			if _, err := p.client(user.name, user.password).Do(t.Context(), "DBSIZE").Result(); err == nil {
				t.Errorf("let in as %q with a wrong password", user.name)
			}
		}
		if !strings.Contains(p.do("INFO", "cluster"), "cluster_enabled:1") {
			t.Error("cluster mode is off")
		}
		for name, want := range map[string]string{
			"cluster-announce-ip": p.ip.String(), "masteruser": OperatorUser, "masterauth": operatorPassword,
			"appendonly": "yes", "save": "", "shutdown-timeout": "10", "maxmemory": strconv.Itoa(166 * mib),
			"cluster-node-timeout": "5000", "repl-diskless-load": "disabled", "dir": p.path("data"),
			"client-output-buffer-limit": "normal 0 0 0 slave 268435456 0 0 pubsub 67108864 16777216 60",
		} {
			if got := p.config(name); got != want {
				t.Errorf("CONFIG GET %s = %q, want %q", name, got, want)
			}
		}
		p.keepsSecrets()
	})
}

// config reads one directive from the server.
func (p *pod) config(name string) string {
	p.t.Helper()
	reply, err := p.client(OperatorUser, operatorPassword).ConfigGet(context.Background(), name).Result()
	if err != nil {
		p.t.Fatalf("CONFIG GET %s: %v", name, err)
	}
	return reply[name]
}

// keepsSecrets holds that only the files for it show a password, and those to
// their owner alone.
func (p *pod) keepsSecrets() {
	p.t.Helper()
	shows := func(where, text string) {
		if strings.Contains(text, operatorPassword) || strings.Contains(text, strings.TrimSpace(clientPassword)) {
			p.t.Errorf("%s shows a password", where)
		}
	}
	shows("the log", p.log())
	for _, name := range []string{"cmdline", "environ"} {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.process.Pid), name))
		if err != nil {
			p.t.Fatal(err)
		}
		shows(name, string(data))
	}
	err := filepath.WalkDir(p.path(runDir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			p.t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
	users, err := os.ReadFile(p.path(runDir + "/users.acl"))
	if err != nil {
		p.t.Fatal(err)
	}
	shows("users.acl", string(users))
}

func TestStartWithoutAuth(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		p := newPod(t, sh, v, redisv1.RedisClusterSpec{Auth: &redisv1.AuthSpec{Disabled: true}})
		if err := os.RemoveAll(p.path(authDir)); err != nil {
			t.Fatal(err)
		}
		p.start()
		if _, err := p.client("", "").Do(t.Context(), "DBSIZE").Result(); err != nil {
			t.Errorf("without a password: %v", err)
		}
		if _, err := p.client(OperatorUser, "wrong").Do(t.Context(), "DBSIZE").Result(); err == nil {
			t.Error("the operator's user let in with a wrong password")
		}
		p.do("DBSIZE")
	})
}

// TestStartAgain holds that a restart keeps the node and reads new passwords.
func TestStartAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		p := newPod(t, sh, v, full())
		p.start()
		id := p.do("CLUSTER", "MYID")
		p.stop(syscall.SIGTERM)
		p.write(authDir+"/password", "new")
		p.start()
		if again := p.do("CLUSTER", "MYID"); again != id {
			t.Errorf("the node's id was %s and is %s", id, again)
		}
		if _, err := p.client("", "new").Do(t.Context(), "DBSIZE").Result(); err != nil {
			t.Errorf("with the new password: %v", err)
		}
	})
}

func TestStartRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*pod)
		want string
	}{
		{"no password of the operator", func(p *pod) { p.remove(operatorDir + "/password") }, "password of the operator is missing"},
		{"an empty password of the operator", func(p *pod) { p.write(operatorDir+"/password", "") }, "password of the operator is empty"},
		{"an odd password of the operator", func(p *pod) { p.write(operatorDir+"/password", "SECRET word") }, "more than letters and digits"},
		{"no password of the default user", func(p *pod) { p.remove(authDir + "/password") }, "password of the default user is missing"},
		{"an empty password of the default user", func(p *pod) { p.write(authDir+"/password", "") }, "password of the default user is empty"},
		{"no redis.conf", func(p *pod) { p.remove(configDir + "/redis.conf") }, "redis.conf cannot be read"},
		{"no engine", func(p *pod) { p.env = append(p.env, "ENGINE=") }, "ENGINE is not set"},
		{"no address", func(p *pod) { p.env = append(p.env, "POD_IP=") }, "POD_IP is not set"},
	} {
		for _, sh := range shells(t) {
			t.Run(test.name+"/"+sh.name, func(t *testing.T) {
				p := newPod(t, sh, redistest.Versions(t)[0], full())
				test.set(p)
				got := p.run(startFile)
				if got.code != 1 || !strings.Contains(got.stderr, "start: ") || !strings.Contains(got.stderr, test.want) {
					t.Errorf("exit %d, stderr %q; want 1 and %q", got.code, got.stderr, test.want)
				}
				if strings.Contains(got.stderr+got.stdout, "SECRET") {
					t.Errorf("shows the password: %q", got.stderr)
				}
			})
		}
	}
}

func (p *pod) remove(name string) {
	p.t.Helper()
	if err := os.Remove(p.path(name)); err != nil {
		p.t.Fatal(err)
	}
}

// TestStartListensOnAllAddresses runs with redis.conf as a Pod has it, on a port
// of its own, because all servers of this machine share its addresses.
func TestStartListensOnAllAddresses(t *testing.T) {
	for _, v := range redistest.Versions(t) {
		t.Run(v.String(), func(t *testing.T) {
			p := newPod(t, shells(t)[0], v, full())
			p.write(configDir+"/redis.conf", ConfigMap(newCluster(func(*redisv1.RedisClusterSpec) {}), nil, "").Data[redisConfFile])
			p.port = freePort(t)
			p.start()
			for _, ip := range []string{"127.0.0.1", p.ip.String(), "::1"} {
				if ip == "::1" && !hasIPv6() {
					t.Log("this machine has no IPv6")
					continue
				}
				for _, port := range []int{p.port, p.port + 10000} {
					conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, strconv.Itoa(port)), time.Second)
					if err != nil {
						t.Error(err)
						continue
					}
					_ = conn.Close()
				}
			}
		})
	}
}

// freePort finds a port that is free with its bus port, below those that the
// kernel gives to outgoing connections.
func freePort(t *testing.T) int {
	t.Helper()
	for port := 20000 + rand.IntN(1000); port < 22768; port++ {
		a, errA := net.Listen("tcp", ":"+strconv.Itoa(port))
		b, errB := net.Listen("tcp", ":"+strconv.Itoa(port+10000))
		if errA == nil {
			_ = a.Close()
		}
		if errB == nil {
			_ = b.Close()
		}
		if errA == nil && errB == nil {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return false
	}
	return l.Close() == nil
}
