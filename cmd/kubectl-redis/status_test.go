package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// scaled is a cluster of two shards, one of which has lost its replica.
func (d *desk) scaled() *redisv1.RedisCluster {
	d.Helper()
	four := int32(4)
	c := d.cluster("orders", redisv1.RedisClusterSpec{Replicas: &four}, redisv1.RedisClusterStatus{
		Phase: redisv1.PhaseRecovering, Replicas: 4, ReadyReplicas: 3, Shards: 2, Version: "8.0.2", Selector: "app.kubernetes.io/instance=orders",
		ShardStatuses: []redisv1.ShardStatus{
			{Index: 0, Primary: "orders-0-1", Slots: "0-8191", Replicas: 2, ReadyReplicas: 2},
			{Index: 1, Primary: "orders-1-0", Slots: "8192-16000 16383", Replicas: 2, ReadyReplicas: 1},
		},
		Conditions: []metav1.Condition{
			condition(redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonPodsNotReady, "orders-1-1 is not ready"),
			condition(redisv1.ConditionAvailable, metav1.ConditionTrue, redisv1.ReasonSlotsServed, "all 16384 slots are served"),
		},
	})
	for name, ready := range map[string]corev1.ConditionStatus{"orders-0-0": "True", "orders-0-1": "True", "orders-1-0": "True", "orders-1-1": "False"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.namespace, Labels: map[string]string{
				"app.kubernetes.io/instance": "orders", redisv1.LabelShard: name[7:8], redisv1.LabelRole: redisv1.RoleReplica}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "redis", Image: "redis"}}},
		}
		if err := d.admin.Create(d.Context(), pod); err != nil {
			d.Fatal(err)
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		if err := d.admin.Status().Update(d.Context(), pod); err != nil {
			d.Fatal(err)
		}
	}
	return c
}

// TestStatusShowsACluster with its shards, links, backups and what is waited for.
func TestStatusShowsACluster(t *testing.T) {
	d := newDesk(t)
	d.scaled()
	b := &redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: d.namespace}, Spec: redisv1.RedisBackupSpec{
		ClusterName: "orders", Destination: redisv1.BackupDestination{PersistentVolumeClaim: &redisv1.ClaimDestination{ClaimName: "backups"}}}}
	if err := d.admin.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	ended := metav1.NewTime(time.Now().Add(-3 * time.Hour))
	b.Status = redisv1.RedisBackupStatus{Phase: redisv1.BackupSucceeded, CompletionTime: &ended, Size: "1.2 GiB", Keys: 1034}
	if err := d.admin.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := d.run("status", "orders")
	d.exits("status", code, exitNotSo, out, errOut)
	d.has(errOut, "orders is not ready: orders-1-1 is not ready")
	d.has(out, "/orders  Recovering  3 of 4 nodes ready, 2 shards, Redis 8.0.2", "waits for: orders-1-1 is not ready",
		"0      orders-0-1  "+strings.Repeat("█", 16)+strings.Repeat("·", 16)+"  0-8191", "2/2       orders-0-0 up",
		"1      orders-1-0  "+strings.Repeat("·", 16)+strings.Repeat("█", 15)+"▒  8192-16000 16383", "1/2       orders-1-1 DOWN",
		"382 of 16384 slots have no primary", "backups: 1 succeeded, 0 failed; the last one, nightly, succeeded 3h ago (1034 keys, 1.2 GiB)",
		"Available  True    SlotsServed", "all 16384 slots are served")
	for _, format := range []string{"json", "yaml"} {
		code, out, errOut := d.run("status", "orders", "-o", format)
		d.exits("status -o "+format, code, exitNotSo, out, errOut)
		var v clusterView
		data, err := yaml.YAMLToJSON([]byte(out))
		if err == nil {
			err = json.Unmarshal(data, &v)
		}
		if err != nil || v.Name != "orders" || v.Ready || v.SlotsServed != 16002 || len(v.Shards) != 2 || v.Shards[1].Replicas[0] != (replicaView{Pod: "orders-1-1"}) ||
			v.Backups.Last.Name != "nightly" {
			t.Errorf("-o %s: %v: %+v", format, err, v)
		}
	}
}

// TestStatusOfAReadyCluster ends well; of one that the operator has not looked at since
// its spec was changed it does not.
func TestStatusOfAReadyCluster(t *testing.T) {
	d := newDesk(t)
	one := int32(1)
	c := d.cluster("cart", redisv1.RedisClusterSpec{Replicas: &one}, redisv1.RedisClusterStatus{Phase: redisv1.PhaseRunning, Conditions: []metav1.Condition{
		condition(redisv1.ConditionReady, metav1.ConditionTrue, redisv1.ReasonConverged, "1 nodes in 1 shards are ready")}})
	code, out, errOut := d.run("status", "cart")
	d.exits("status", code, exitOK, out, errOut)
	if strings.Contains(out, "waits for") || strings.Contains(out, "backups") {
		t.Errorf("a ready cluster without backups:\n%s", out)
	}
	two := int32(2)
	c.Spec.Replicas = &two
	if err := d.admin.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	code, out, errOut = d.run("status", "cart")
	d.exits("status of a new spec", code, exitNotSo, out, errOut)
	d.has(out, "waits for: the operator has not looked at the present spec yet")
}

// TestStatusNeedsNoMoreThanItSays: without the right to list Pods and backups they are
// left out, and that is said.
func TestStatusNeedsNoMoreThanItSays(t *testing.T) {
	d := newDesk(t)
	d.scaled()
	code, out, errOut := d.may("viewer", rule("redisclusters", "get"))("status", "orders")
	d.exits("status", code, exitNotSo, out, errOut)
	d.has(out, "orders-0-1", "left out, because you may not: list pods", "left out, because you may not: list redisbackups")
	if strings.Contains(out, "orders-0-0") {
		t.Errorf("Pods that may not be listed are shown:\n%s", out)
	}
	code, out, errOut = d.may("nobody")("status", "orders")
	d.exits("status without any right", code, exitFailed, out, errOut)
	d.has(errOut, "get RedisCluster", "forbidden")
}

// TestStatusFollowsChanges until the cluster is deleted.
func TestStatusFollowsChanges(t *testing.T) {
	d := newDesk(t)
	c := d.scaled()
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-time.After(500 * time.Millisecond)
		c.Status.Phase = redisv1.PhaseRunning
		if err := d.admin.Status().Update(t.Context(), c); err != nil {
			t.Error(err)
		}
		<-time.After(500 * time.Millisecond)
		if err := d.admin.Delete(t.Context(), c); err != nil {
			t.Error(err)
		}
	}()
	code, out, errOut := d.run("status", "orders", "--watch")
	<-done
	d.exits("status --watch", code, exitNotSo, out, errOut)
	d.has(out, "/orders  Recovering", "/orders  Running")
	d.has(errOut, "orders was deleted")
}

// TestWrongCommandLines are refused with a word on what is wrong.
func TestWrongCommandLines(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status"}, exitUsage, "status wants the name of one RedisCluster, got 0"},
		{[]string{"status", "a", "b"}, exitUsage, "got 2"},
		{[]string{"status", "missing"}, exitFailed, `there is no RedisCluster "missing" in namespace "` + d.namespace},
		{[]string{"statsu"}, exitUsage, `"statsu" is none of status, latency, backup and failover`},
		{[]string{"status", "a", "-o", "xml"}, exitUsage, "only json and yaml"},
		{[]string{"status", "a", "--no-such-flag"}, exitUsage, "unknown flag"},
		{[]string{"failover", "a"}, exitUsage, "--shard"},
		{[]string{"backup", "a", "--bucket", "b"}, exitUsage, "--bucket and --credentials belong together"},
		{[]string{"backup", "a", "--bucket", "b", "--claim", "c"}, exitUsage, "not both"},
		{[]string{"backup", "a", "--sub-path", "c"}, exitUsage, "--sub-path needs --claim"},
		{[]string{"latency", "a", "b"}, exitUsage, "got 2"},
	} {
		code, out, errOut := d.run(c.args...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%q exits with %d, want %d with %q:\n%s%s", c.args, code, c.code, c.want, out, errOut)
		}
	}
	if code, out, _ := d.run(); code != exitOK || !strings.Contains(out, "kubectl redis [command]") {
		t.Errorf("without a verb: %d\n%s", code, out)
	}
}

// TestNamesAreCompleted with their phases.
func TestNamesAreCompleted(t *testing.T) {
	d := newDesk(t)
	d.scaled()
	for _, verb := range []string{"status", "latency", "backup", "failover"} {
		_, out, _ := d.run("__complete", verb, "")
		d.has(out, "orders\tRecovering")
	}
	_, out, _ := d.run("__complete", "status", "-n", "")
	d.has(out, d.namespace)
}
