//go:build linux

package latency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/latency"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// names fails the test unless `kubectl redis latency` names a step for the cluster orders.
func (l *lab) names(step metrics.Step, text string) {
	l.Helper()
	l.keep()
	run := func(args ...string) string {
		code, out, errOut := l.plugin(append([]string{"latency", "orders", "--metrics", l.metrics}, args...)...)
		if code != 0 {
			l.Fatalf("kubectl redis latency exits with %d:\n%s", code, errOut)
		}
		return out
	}
	var r latency.Report
	if err := json.Unmarshal([]byte(run("-o", "json")), &r); err != nil {
		l.Fatal(err)
	}
	table := run()
	l.Log("\n" + table)
	if r.Verdict.Step != step || !strings.Contains(r.Verdict.Text, text) || !strings.Contains(table, "\n"+r.Verdict.Text+"\n") {
		l.Errorf("named is step %d, %s, want %s with %q", r.Verdict.Number, r.Verdict.Step, step, text)
	}
}

// onVerb is a fault of one verb.
func onVerb(verb string, f fault) func(string, string) fault {
	return func(v, _ string) fault {
		if v == verb {
			return f
		}
		return fault{}
	}
}

// TestASlowAPIServer: each verb in turn is delayed before the API server, and the step
// that waits for it is named.
func TestASlowAPIServer(t *testing.T) {
	for _, c := range []struct {
		verb  string
		delay time.Duration
		step  metrics.Step
		text  string
		// change is what the operator is watched at, with the fault; nil is the creation.
		change func(*lab, *redisv1.RedisCluster)
	}{
		{"get", time.Second, metrics.ObserveKubernetes, "answers reads late, most of all get", nil},
		{"create", 700 * time.Millisecond, metrics.Store, "writes take long, most of all create", nil},
		{"apply", 700 * time.Millisecond, metrics.Store, "writes take long, most of all apply", nil},
		{"patch", 700 * time.Millisecond, metrics.Store, "writes take long, most of all patch", nil},
		{"delete", 3 * time.Second, metrics.Store, "writes take long, most of all delete", func(l *lab, c *redisv1.RedisCluster) {
			one, two := int32(1), int32(2)
			c.Spec.Shards, c.Spec.Replicas = &one, &two
			if err := l.admin.Update(l.Context(), c); err != nil {
				l.Fatal(err)
			}
			l.await(c)
		}},
		{"list", 2 * time.Second, metrics.ObserveKubernetes, "answers reads late, most of all list", func(l *lab, c *redisv1.RedisCluster) {
			l.crash(c.Status.ShardStatuses[0].Primary)
			redistest.Eventually(l, time.Minute, func() error { return l.changed("recover") })
		}},
	} {
		t.Run(c.verb, func(t *testing.T) {
			l := newLab(t, options{})
			slow := onVerb(c.verb, fault{delay: c.delay})
			if c.change == nil {
				l.proxy.set(slow)
				l.await(l.create("orders", 3, 1))
			} else {
				cluster := l.create("orders", 4, 2)
				l.await(cluster)
				l.proxy.set(slow)
				c.change(l, cluster)
			}
			l.names(c.step, c.text)
		})
	}
}

// crash ends the server of a Pod, and keeps it from being started for a while, so that
// the operator has to look for it.
func (l *lab) crash(pod string) {
	l.Helper()
	if err := l.stand.Kill(types.NamespacedName{Namespace: l.namespace, Name: pod}); err != nil {
		l.Fatal(err)
	}
}

// changed tells whether a change of a kind has ended.
func (l *lab) changed(kind string) error {
	s, err := l.samples()
	if err != nil {
		return err
	}
	for _, m := range s[metrics.Prefix+"convergence_seconds"].GetMetric() {
		if m.GetLabel()[0].GetValue() == kind && m.GetHistogram().GetSampleCount() > 0 {
			return nil
		}
	}
	return errors.New("no " + kind + " has ended")
}

// TestASlowWatch: what the API server has stored comes back two seconds later.
func TestASlowWatch(t *testing.T) {
	l := newLab(t, options{faults: onVerb("watch", fault{stream: 2 * time.Second})})
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Watch, "late by the watch of")
}

// TestThrottling: the API server takes every third write only a second later.
func TestThrottling(t *testing.T) {
	l := newLab(t, options{})
	var n atomic.Int64
	l.proxy.set(func(verb, _ string) fault {
		if verb != "get" && verb != "list" && verb != "watch" && n.Add(1)%3 == 0 {
			return fault{answer: http.StatusTooManyRequests, retryAfter: 1}
		}
		return fault{}
	})
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Submit, "429")
}

// TestFailingPasses: the API server fails to store the status ten times, and each time
// the object waits twice as long in the queue.
func TestFailingPasses(t *testing.T) {
	l := newLab(t, options{})
	var n atomic.Int64
	l.proxy.set(func(verb, path string) fault {
		if verb == "patch" && strings.HasSuffix(path, "/status") && n.Add(1) <= 10 {
			return fault{answer: http.StatusInternalServerError}
		}
		return fault{}
	})
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Requeue, "passes fail")
}

// TestASlowRedis: every server is blocked most of the time, as by a command that goes
// through all keys.
func TestASlowRedis(t *testing.T) {
	l := newLab(t, options{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.blockServers(ctx, "orders")
	}()
	l.await(l.create("orders", 3, 1))
	stop()
	<-ended
	l.names(metrics.ObserveRedis, "Redis nodes answer late")
}

// blockServers blocks all servers of a cluster for three tenths of a second, again and
// again.
func (l *lab) blockServers(ctx context.Context, cluster string) {
	blocked := map[string]bool{}
	for ctx.Err() == nil {
		password, err := l.stand.Password(ctx, types.NamespacedName{Namespace: l.namespace, Name: cluster})
		for _, address := range l.stand.Addresses() {
			if err != nil || blocked[address] {
				continue
			}
			blocked[address] = true
			go func() {
				c := goredis.NewClient(&goredis.Options{Addr: address, Username: "operator", Password: password, Protocol: 2})
				defer func() { _ = c.Close() }()
				for ctx.Err() == nil {
					_ = c.Do(ctx, "DEBUG", "SLEEP", "0.3").Err() // it may not listen yet
					<-time.After(20 * time.Millisecond)
				}
			}()
		}
		<-time.After(50 * time.Millisecond)
	}
}

// TestASlowDiskUnderEtcd: each write to etcd's log takes 300 ms more. It is delayed in the
// kernel (strace), so that the disk is truly slow, for etcd as well.
func TestASlowDiskUnderEtcd(t *testing.T) {
	l := newLab(t, options{})
	pid := child(t, "etcd")
	args := []string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=write", "-e", "inject=write:delay_exit=300000", "-p", strconv.Itoa(pid)}
	for _, log := range logsOf(t, pid) {
		args = append(args, "-P", log)
	}
	trace := exec.CommandContext(t.Context(), "strace", args...)
	trace.Cancel = func() error { return trace.Process.Signal(syscall.SIGINT) } // it lets etcd go
	var said bytes.Buffer
	trace.Stderr = &said
	if err := trace.Start(); err != nil {
		t.Fatalf("strace, which slows etcd's disk down: %v", err)
	}
	t.Cleanup(func() {
		_ = trace.Process.Signal(syscall.SIGINT)
		_ = trace.Wait()
		if t.Failed() {
			t.Logf("strace: %s", said.String())
		}
	})
	<-time.After(500 * time.Millisecond) // it attaches to each thread
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Store, "the disk of etcd")
}

// logsOf are the files that etcd writes its log to, before it answers.
func logsOf(t *testing.T, pid int) []string {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasSuffix(target, ".wal") {
			out = append(out, target)
		}
	}
	if len(out) == 0 {
		t.Fatal("etcd has no log open")
	}
	return out
}

// child is the process of a program that this one has started.
func child(t *testing.T, program string) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		var pid, parent int
		var state string
		open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if _, err := fmt.Sscan(string(text[:open]), &pid); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(text[end+1:]), &state, &parent); err != nil {
			t.Fatal(err)
		}
		if string(text[open+1:end]) == program && parent == os.Getpid() {
			return pid
		}
	}
	t.Fatalf("no process %s of this one", program)
	return 0
}

// TestBusyWorkers: the servers of two dozen other clusters take connections and never
// answer, so that all workers wait for them.
func TestBusyWorkers(t *testing.T) {
	l := newLab(t, options{hung: func(pod types.NamespacedName) bool { return strings.HasPrefix(pod.Name, "hung-") }})
	for i := range 24 {
		l.create(fmt.Sprintf("hung-%d", i), 1, 1)
	}
	redistest.Eventually(t, time.Minute, func() error {
		if n := len(l.stand.Addresses()); n < 24 {
			return fmt.Errorf("%d servers hang", n)
		}
		return nil
	})
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Worker, "all workers are busy")
}

// TestNoFault: nobody is named when nothing is slow.
func TestNoFault(t *testing.T) {
	l := newLab(t, options{})
	l.await(l.create("orders", 3, 1))
	l.names(metrics.Wait, "nothing is slow in the operator")
}
