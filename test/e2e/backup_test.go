package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/redis/go-redis/v9"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// toBackup is how long a small backup or restore may take on a busy machine.
const toBackup = 2 * time.Minute

// store is an S3 server in the namespace of a case, with a bucket.
type store struct {
	*user
	client *minio.Client
}

// toStore is the bucket as a destination.
const toStore = `s3: {bucket: backups, prefix: some/prefix, endpoint: "http://s3:7070", pathStyle: true, credentialsSecretName: s3}`

func (u *user) newStore() *store {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), toRun)
	defer cancel()
	s, err := cluster.StartStore(ctx, u.ns)
	if err != nil {
		u.Fatal(err)
	}
	return &store{user: u, client: s.Client}
}

// objects are the names of all that is in the bucket.
func (s *store) objects() []string {
	s.Helper()
	var names []string
	for o := range s.client.ListObjects(s.Context(), "backups", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			s.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	for o := range s.client.ListIncompleteUploads(s.Context(), "backups", "", true) {
		if o.Err != nil {
			s.Fatal(o.Err)
		}
		names = append(names, "upload of "+o.Key)
	}
	return names
}

// newClaim makes a volume to keep backups on.
func (u *user) newClaim(name string) {
	u.Helper()
	err := cluster.Create(u.Context(), object[corev1.PersistentVolumeClaim](u, fmt.Sprintf(
		`{metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, name)))
	if err != nil {
		u.Fatal(err)
	}
}

// object reads a manifest into the namespace of the case.
func object[T any, P interface {
	*T
	client.Object
}](u *user, manifest string) P {
	u.Helper()
	o := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(manifest), o); err != nil {
		u.Fatalf("read the manifest: %v\n%s", err, manifest)
	}
	o.SetNamespace(u.ns)
	return o
}

func (u *user) backup(name, spec string) *redisv1.RedisBackup {
	u.Helper()
	b := object[redisv1.RedisBackup](u, "{metadata: {name: "+name+"}, spec: {"+spec+"}}")
	if err := cluster.Create(u.Context(), b); err != nil {
		u.Fatalf("create RedisBackup: %v", err)
	}
	return b
}

// ends waits until a backup has ended, and gives its condition Complete.
func (u *user) ends(b *redisv1.RedisBackup) *metav1.Condition {
	u.Helper()
	var c *metav1.Condition
	u.await(toBackup, b.Name+" ends", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return "", err
		}
		c = meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete)
		switch {
		case b.Done():
			return "", nil
		case c != nil:
			return fmt.Sprintf("%s, %s: %s", b.Status.Phase, c.Reason, c.Message), nil
		}
		return "nothing is said of it", nil
	})
	return c
}

func (u *user) succeeds(b *redisv1.RedisBackup) {
	u.Helper()
	if c := u.ends(b); b.Status.Phase != redisv1.BackupSucceeded {
		u.Fatalf("%s is %s, %s: %s", b.Name, b.Status.Phase, c.Reason, c.Message)
	}
}

// everything writes keys of every type, some of them with a lifetime, and a library
// of functions to every primary.
func (u *user) everything(c *redisv1.RedisCluster) {
	u.Helper()
	ctx, rdb := u.Context(), u.clusterClient(c)
	var errs []error
	do := func(args ...any) { errs = append(errs, rdb.Do(ctx, args...).Err()) }
	for i := range 300 {
		do("SET", fmt.Sprint("string", i), strings.Repeat(fmt.Sprint("v", i), 50))
		do("SADD", fmt.Sprint("{tag}set", i), i, "a")
	}
	do("SET", "expiring", "v", "EX", 7200)
	do("RPUSH", "list", "a", "b", strings.Repeat("x", 9000))
	do("SADD", "ints", 1, 2, 3)
	do("ZADD", "zset", "1.5", "a", "-inf", "b")
	do("HSET", "hash", "f", "v", "g", "w")
	do("HPEXPIRE", "hash", 7200000, "FIELDS", 1, "f")
	do("SETBIT", "bitmap", 9999, 1)
	do("PFADD", "hll", "a", "b", "c")
	do("GEOADD", "geo", "13.361389", "38.115556", "Palermo")
	do("XADD", "stream", "1-1", "k", "v")
	do("XADD", "stream", "1-2", "k", "w")
	do("XGROUP", "CREATE", "stream", "group", "0")
	do("XREADGROUP", "GROUP", "group", "consumer", "COUNT", 1, "STREAMS", "stream", ">")
	errs = append(errs, rdb.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error {
		return n.FunctionLoad(ctx, "#!lua name=lib\nredis.register_function('f', function() return 1 end)").Err()
	}))
	for _, err := range errs {
		if err != nil {
			u.Fatal(err)
		}
	}
}

// content is every key of a cluster, its value by what its type has and when it
// expires, and the functions of each primary.
func (u *user) content(c *redisv1.RedisCluster) map[string]string {
	u.Helper()
	rdb := u.clusterClient(c)
	out, functions := map[string]string{}, map[string]bool{}
	var mu sync.Mutex
	err := rdb.ForEachMaster(u.Context(), func(ctx context.Context, n *redis.Client) error {
		libraries, err := n.FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		functions[fmt.Sprint(libraries)] = true
		mu.Unlock()
		keys := n.Scan(ctx, 0, "*", 1000).Iterator()
		for keys.Next(ctx) {
			value, err := valueOf(ctx, n, keys.Val())
			if err != nil {
				return fmt.Errorf("read %s: %w", keys.Val(), err)
			}
			mu.Lock()
			out[keys.Val()] = value
			mu.Unlock()
		}
		return keys.Err()
	})
	if err != nil {
		u.Fatal(err)
	}
	out["the functions"] = fmt.Sprint(slices.Sorted(maps.Keys(functions)))
	return out
}

func valueOf(ctx context.Context, n *redis.Client, key string) (string, error) {
	kind, err := n.Type(ctx, key).Result()
	if err != nil {
		return "", err
	}
	read := map[string][]any{
		"string": {"GET", key}, "list": {"LRANGE", key, 0, -1}, "set": {"SMEMBERS", key}, "zset": {"ZRANGE", key, 0, -1, "WITHSCORES"},
		"hash": {"HMGET", key, "f", "g"}, "stream": {"XRANGE", key, "-", "+"},
	}[kind]
	value, err := n.Do(ctx, read...).Result()
	if err != nil {
		return "", err
	}
	var more any
	switch kind {
	case "set":
		members := strings.Fields(fmt.Sprint(value))
		sort.Strings(members)
		value = members
	case "hash":
		more, err = n.Do(ctx, "HPEXPIRETIME", key, "FIELDS", 2, "f", "g").Result()
	case "stream":
		more, err = n.XPending(ctx, key, "group").Result()
	}
	if err != nil {
		return "", err
	}
	expires, err := n.Do(ctx, "PEXPIRETIME", key).Result()
	return fmt.Sprint(kind, " ", value, " ", more, " ", expires), err
}

// same compares two contents.
func (u *user) same(want, got map[string]string) {
	u.Helper()
	for key, value := range want {
		if !alike(got[key], value) {
			u.Errorf("%s is %.200q, want %.200q", key, got[key], value)
		}
	}
	if len(got) != len(want) {
		u.Errorf("%d keys, want %d", len(got), len(want))
	}
}

// alike compares two values, of which the last word is the time of expiry: where a key
// moves to another node, Redis hands over what is left of its life, to which the way
// adds some milliseconds.
func alike(a, b string) bool {
	i, j := strings.LastIndexByte(a, ' '), strings.LastIndexByte(b, ' ')
	if a == b || i < 0 || j < 0 || a[:i] != b[:j] {
		return a == b
	}
	x, errX := strconv.ParseInt(a[i+1:], 10, 64)
	y, errY := strconv.ParseInt(b[j+1:], 10, 64)
	return errX == nil && errY == nil && max(x-y, y-x) < 1000
}

// TestBackupToS3: taken and verified, restored into fewer shards and into more, value
// by value, and deleted with its objects.
func TestBackupToS3(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	s := u.newStore()
	source := u.create(`{metadata: {name: source}, spec: {replicas: 6}}`)
	u.awaitRunning(source)
	u.everything(source)
	want := u.content(source)
	b := u.backup("nightly", "clusterName: source, verify: Restore, deletionPolicy: Delete, destination: {"+toStore+"}")
	u.succeeds(b)
	st := b.Status
	if int(st.Keys) != len(want)-1 || st.Shards != 3 || st.TotalBytes == 0 || st.RedisVersion == "" || !strings.HasPrefix(st.Location, "s3://backups/some/prefix/nightly-") ||
		!meta.IsStatusConditionTrue(st.Conditions, redisv1.ConditionVerified) {
		t.Errorf("%d keys were written: %+v", len(want)-1, st)
	}
	if len(s.objects()) != 4 {
		t.Errorf("the bucket has %q", s.objects())
	}
	fewer := u.create(`{metadata: {name: fewer}, spec: {replicas: 4, shards: 2, storage: {size: 1Gi}, restoreFrom: {backupName: nightly}}}`)
	more := u.create(`{metadata: {name: more}, spec: {replicas: 5, shards: 5, restoreFrom: {id: ` + st.ID + `, destination: {` + toStore + `}}}}`)
	for _, c := range []*redisv1.RedisCluster{fewer, more} {
		u.awaitRunningFor(c, 2*toBackup)
		u.same(want, u.content(c))
		if !meta.IsStatusConditionTrue(c.Status.Conditions, redisv1.ConditionRestored) || c.Status.Restore.ID != st.ID {
			t.Errorf("%s: %+v", c.Name, c.Status)
		}
		u.works(c)
	}
	if err := cluster.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	u.await(toGo, "the backup is gone", cluster.Gone(b))
	if left := s.objects(); len(left) > 0 {
		t.Errorf("%q is left in the bucket", left)
	}
}

// TestBackupToVolume: two backups at once queue, a Pod of a Job that is killed is
// replaced, and a cluster starts from the backup with another engine's refusal beside.
func TestBackupToVolume(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.newClaim("backups")
	source := u.create(`{metadata: {name: source}, spec: {replicas: 2, shards: 2}}`)
	u.awaitRunning(source)
	u.everything(source)
	want := u.content(source)
	const spec = "clusterName: source, compression: None, destination: {persistentVolumeClaim: {claimName: backups, subPath: redis}}"
	first, second := u.backup("first", spec), u.backup("second", spec)
	u.killTask(first)
	u.succeeds(first)
	u.succeeds(second)
	if first.Status.CompletionTime.After(second.Status.StartTime.Time) {
		t.Errorf("the first ended at %s, the second began at %s", first.Status.CompletionTime, second.Status.StartTime)
	}
	c := u.create(`{metadata: {name: restored}, spec: {replicas: 2, shards: 1, restoreFrom: {backupName: first}}}`)
	valkey := u.create(`{metadata: {name: valkey}, spec: {engine: Valkey, version: "8.1", replicas: 2, restoreFrom: {backupName: first}}}`)
	u.awaitRunningFor(c, 2*toBackup)
	u.same(want, u.content(c))
	u.await(toBackup, "a restore into Valkey is refused", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(valkey), valkey); err != nil {
			return "", err
		}
		restored := meta.FindStatusCondition(valkey.Status.Conditions, redisv1.ConditionRestored)
		if valkey.Status.Phase != redisv1.PhaseFailed || restored == nil || restored.Reason != "Incompatible" {
			return fmt.Sprintf("%s, %+v", valkey.Status.Phase, restored), nil
		}
		return "", nil
	})
	if pods := u.pods(valkey); len(pods) > 0 {
		t.Errorf("%d Pods were made of a restore that is refused", len(pods))
	}
}

// killTask deletes the Pod of a backup's Job as soon as there is one.
func (u *user) killTask(b *redisv1.RedisBackup) {
	u.Helper()
	u.await(toBackup, "the Pod of "+b.Name+" is there", func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		if err := cluster.List(ctx, &pods, client.InNamespace(u.ns), client.MatchingLabels{redisv1.LabelBackup: b.Name}); err != nil {
			return "", err
		}
		if len(pods.Items) == 0 {
			return "there is none", nil
		}
		return "", cluster.Delete(ctx, &pods.Items[0], client.GracePeriodSeconds(0))
	})
}

// TestBackupSaysWhatIsWrong within seconds, and goes on when it is put right.
func TestBackupSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.newStore()
	source := u.create(`{metadata: {name: source}, spec: {replicas: 1}}`)
	u.awaitRunning(source)
	wrong := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: "wrong"}, StringData: map[string]string{"accessKeyID": "operator", "secretAccessKey": "wrong"}}
	if err := cluster.Create(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ old, with, reason, says string }{
		"login":  {"credentialsSecretName: s3", "credentialsSecretName: wrong", "AccessDenied", "refuses the credentials"},
		"bucket": {"bucket: backups", "bucket: nowhere", "NoSuchBucket", `bucket "nowhere" does not exist`},
		"silent": {"http://s3:7070", "http://s3:7071", redisv1.ReasonDeadlineExceeded, "s3:7071"},
	} {
		b := u.backup(name, "clusterName: source, activeDeadlineSeconds: 40, destination: {"+strings.Replace(toStore, tt.old, tt.with, 1)+"}")
		if c := u.ends(b); b.Status.Phase != redisv1.BackupFailed || c.Reason != tt.reason || !strings.Contains(c.Message, tt.says) {
			t.Errorf("%s: %s, %+v", name, b.Status.Phase, c)
		}
	}
	b := u.backup("early", "clusterName: source, destination: {persistentVolumeClaim: {claimName: later}}")
	u.await(toGo, "it says that the claim is missing", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete)
		if c == nil || c.Reason != redisv1.ReasonClaimNotFound {
			return fmt.Sprint(c), nil
		}
		return "", nil
	})
	u.newClaim("later")
	u.succeeds(b)
}

// TestBackupSchedule: one for each tick, of which the last is kept with its objects.
func TestBackupSchedule(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	s := u.newStore()
	c := u.create(`{metadata: {name: hourly}, spec: {replicas: 1, backup: {schedule: "* * * * *", keepLast: 1, destination: {` + toStore + `}}}}`)
	u.awaitRunning(c)
	seen := map[string]bool{}
	u.await(5*time.Minute, "two backups are made and one is kept", func(ctx context.Context) (string, error) {
		var list redisv1.RedisBackupList
		if err := cluster.List(ctx, &list, client.InNamespace(u.ns)); err != nil {
			return "", err
		}
		for _, b := range list.Items {
			seen[b.Name] = true
		}
		if len(seen) < 2 || len(list.Items) != 1 || list.Items[0].Status.Phase != redisv1.BackupSucceeded {
			return fmt.Sprintf("%d were made, %d are there", len(seen), len(list.Items)), nil
		}
		return "", nil
	})
	u.edit(c, `{spec: {backup: {suspend: true}}}`)
	ids := map[string]bool{}
	for _, name := range s.objects() {
		ids[strings.Split(name, "/")[2]] = true
	}
	if len(ids) != 1 {
		t.Errorf("the objects of %d backups are in the bucket", len(ids))
	}
	// Backups outlive their cluster.
	if err := cluster.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	u.await(toGo, "the cluster is gone", cluster.Gone(c))
	var list redisv1.RedisBackupList
	if err := cluster.List(t.Context(), &list, client.InNamespace(u.ns)); err != nil || len(list.Items) != 1 {
		t.Errorf("%d backups are left, %v", len(list.Items), err)
	}
	var jobs batchv1.JobList
	if err := cluster.List(t.Context(), &jobs, client.InNamespace(u.ns)); err != nil || len(jobs.Items) == 0 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
}

// TestNamespaceWithBackupsGoes although the store of its backups, whose objects are to
// go with them, is gone already, or goes at the same time.
func TestNamespaceWithBackupsGoes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	ns, err := cluster.Namespace(t.Context(), "e2e-backups")
	if err != nil {
		t.Fatal(err)
	}
	inner := &user{T: t, ns: ns}
	inner.newStore()
	source := inner.create(`{metadata: {name: source}, spec: {replicas: 1}}`)
	inner.awaitRunning(source)
	b := inner.backup("kept", "clusterName: source, deletionPolicy: Delete, destination: {"+toStore+"}")
	inner.succeeds(b)
	if err := cluster.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s3"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := cluster.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	u.await(toGo, "the namespace is gone", cluster.Gone(o))
}
