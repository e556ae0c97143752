package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// plays does something in the operator's place as soon as it can, and waits for its end
// with the test.
func (d *desk) plays(part func(ctx context.Context) (done bool, err error)) {
	d.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			done, err := part(ctx)
			if err != nil && ctx.Err() == nil {
				d.Error(err)
				return
			}
			if done {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	}()
	d.Cleanup(func() { stop(); <-ended })
}

// TestFailoverAsksTheOperator by the annotation, waits for another primary, and takes
// the request back.
func TestFailoverAsksTheOperator(t *testing.T) {
	d := newDesk(t)
	c := d.scaled()
	key := client.ObjectKeyFromObject(c)
	d.plays(func(ctx context.Context) (bool, error) {
		latest := &redisv1.RedisCluster{}
		if err := d.admin.Get(ctx, key, latest); err != nil || latest.HandOver(time.Now()) == "" {
			return false, err
		}
		if got := latest.HandOver(time.Now()); got != "orders-0-1" {
			return true, fmt.Errorf("%s is to hand over, want orders-0-1", got)
		}
		latest.Status.ShardStatuses[0].Primary = "orders-0-0"
		return true, d.admin.Status().Update(ctx, latest)
	})
	run := d.may("switcher", rule("redisclusters", "get,patch"))
	code, out, errOut := run("failover", "orders", "--shard", "0")
	d.exits("failover", code, exitOK, out, errOut)
	d.has(out, "orders-0-0 is the primary of shard 0 in place of orders-0-1")
	if err := d.admin.Get(t.Context(), key, c); err != nil || c.Annotations[redisv1.AnnotationHandOver] != "" {
		t.Errorf("the request is left behind: %v, %v", c.Annotations, err)
	}
}

// TestFailoverThatCannotBe is refused before anything is asked.
func TestFailoverThatCannotBe(t *testing.T) {
	d := newDesk(t)
	c := d.scaled()
	refused := func(shard string, code int, want string) {
		t.Helper()
		got, out, errOut := d.run("failover", "orders", "--shard", shard)
		if got != code || !strings.Contains(errOut, want) {
			t.Errorf("failover of shard %s exits with %d, want %d with %q:\n%s%s", shard, got, code, want, out, errOut)
		}
	}
	refused("2", exitUsage, "orders has no shard 2: it has 2, from 0 on")
	c.Status.ShardStatuses[0].Primary, c.Status.ShardStatuses[1].Replicas = "", 1
	if err := d.admin.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	refused("0", exitNotSo, "shard 0 of orders has no primary now: orders-1-1 is not ready")
	refused("1", exitNotSo, "has no other node that could take the place of orders-1-0")
	c.Spec.Paused = true
	if err := d.admin.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	refused("1", exitNotSo, "orders is paused")
	if err := d.admin.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil || len(c.Annotations) > 0 {
		t.Errorf("something was asked for: %v, %v", c.Annotations, err)
	}
}

// TestBackupIsTakenAndWaitedFor: it goes where the cluster's spec says, or the flags do.
func TestBackupIsTakenAndWaitedFor(t *testing.T) {
	d := newDesk(t)
	two := int32(2)
	d.cluster("orders", redisv1.RedisClusterSpec{Replicas: &two, Backup: &redisv1.BackupSpec{Schedule: "0 3 * * *", Destination: redisv1.BackupDestination{
		S3: &redisv1.S3Destination{Bucket: "shop", CredentialsSecretName: "s3"}}}}, redisv1.RedisClusterStatus{})
	d.cluster("plain", redisv1.RedisClusterSpec{Replicas: &two}, redisv1.RedisClusterStatus{})
	ends := func(name string, phase redisv1.BackupPhase) {
		key := client.ObjectKey{Namespace: d.namespace, Name: name}
		d.plays(func(ctx context.Context) (bool, error) {
			b := &redisv1.RedisBackup{}
			if err := d.admin.Get(ctx, key, b); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			b.Status = redisv1.RedisBackupStatus{Phase: phase, Size: "10 MiB", Keys: 7,
				Conditions: []metav1.Condition{condition(redisv1.ConditionComplete, metav1.ConditionTrue, redisv1.ReasonSucceeded, "7 keys of 2 shards")}}
			return true, d.admin.Status().Update(ctx, b)
		})
	}
	made := func(name string) *redisv1.RedisBackup {
		t.Helper()
		b := &redisv1.RedisBackup{}
		if err := d.admin.Get(t.Context(), client.ObjectKey{Namespace: d.namespace, Name: name}, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	run := d.may("keeper", rule("redisclusters", "get"), rule("redisbackups", "get,create"))

	ends("one", redisv1.BackupSucceeded)
	code, out, errOut := run("backup", "orders", "--name", "one", "--verify")
	d.exits("backup", code, exitOK, out, errOut)
	d.has(out, "redisbackup/one Succeeded: 7 keys of 2 shards (10 MiB)")
	if b := made("one"); b.Spec.ClusterName != "orders" || b.Spec.Destination.S3.Bucket != "shop" || b.Spec.Verify != redisv1.VerifyRestore {
		t.Errorf("made: %+v", b.Spec)
	}
	ends("two", redisv1.BackupFailed)
	code, out, errOut = run("backup", "plain", "--name", "two", "--claim", "backups", "--sub-path", "redis", "-o", "json")
	d.exits("backup that fails", code, exitNotSo, out, errOut)
	d.has(out, `"phase": "Failed"`)
	d.has(errOut, "backup two has failed")
	if b := made("two"); b.Spec.Destination.PersistentVolumeClaim.ClaimName != "backups" || b.Spec.Destination.PersistentVolumeClaim.SubPath != "redis" {
		t.Errorf("made: %+v", b.Spec)
	}
	code, out, errOut = run("backup", "plain")
	d.exits("backup to nowhere", code, exitUsage, out, errOut)
	d.has(errOut, "plain has no spec.backup.destination")
	code, out, errOut = run("backup", "plain", "--claim", "backups", "--timeout", "1s", "--name", "slow")
	d.exits("backup that takes long", code, exitNotSo, out, errOut)
	d.has(errOut, "backup slow has not ended within 1s; it goes on")
	// With the destination given and no waiting the right to create is enough.
	code, out, errOut = d.may("thrower", rule("redisbackups", "create"))("backup", "plain", "--claim", "backups", "--wait=false")
	d.exits("backup without waiting", code, exitOK, out, errOut)
	d.has(out, "redisbackup/plain-", " made")
}

// TestProbeTimesTheFirstTwoSteps and stores nothing.
func TestProbeTimesTheFirstTwoSteps(t *testing.T) {
	d := newDesk(t)
	recorded := "../../internal/latency/testdata/created.prom"
	code, out, errOut := d.may("prober", rule("redisclusters", "create"))("latency", "--metrics", recorded, "--probe")
	d.exits("latency --probe", code, exitOK, out, errOut)
	d.has(out, "probe: step 1 takes ", "step 2 takes ")
	var list redisv1.RedisClusterList
	if err := d.admin.List(t.Context(), &list, client.InNamespace(d.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d clusters were made, %v", len(list.Items), err)
	}
}
