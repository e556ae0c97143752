package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

const (
	// largeKeys make 2 GB of RDB files.
	largeKeys = 1_950_000
	// undisturbed is how long clients write before the backup that they are to be
	// compared with.
	undisturbed = 20 * time.Second
	// toBackup is what a backup or restore of all that may take.
	toBackup = 10 * time.Minute
)

func init() { scenarios["backup"], scenarios["restore"] = backup, restore }

// backup compares backups of 2 GB to S3 with `redis-cli --rdb` of one shard at a time
// to a local file, and looks at what clients notice of one.
func backup(ctx context.Context, b *bench) ([]figure, error) {
	c, _, store, err := b.fullCluster(ctx, largeKeys)
	if err != nil {
		return nil, err
	}
	var speeds, baselines, ratios []float64
	highest := int64(0)
	for turn := range b.runs {
		bytes, plain, err := b.plainDump(ctx, c)
		if err != nil {
			return nil, err
		}
		took, rss, err := b.takeBackup(ctx, c, store, fmt.Sprintf("run-%d", turn))
		if err != nil {
			return nil, err
		}
		highest = max(highest, rss)
		mb := float64(bytes) / 1e6
		speeds, baselines = append(speeds, mb/took.Seconds()), append(baselines, mb/plain.Seconds())
		ratios = append(ratios, plain.Seconds()/took.Seconds())
		b.progress("backup, run %d of %d: %.0f MB, redis-cli %.1f s, backup %.1f s, the Job's memory %.1f MB", turn+1, b.runs, mb, plain.Seconds(), took.Seconds(), float64(rss)/1e6)
	}
	without, with, err := b.disturbedByBackup(ctx, c, store)
	if err != nil {
		return nil, err
	}
	return []figure{
		newFigure("backup", "mb_per_s", median(speeds), "MB/s"),
		newFigure("backup", "baseline_mb_per_s", median(baselines), "MB/s"),
		newFigure("backup", "ratio", median(ratios), "1"),
		newFigure("backup", "rss_mb", float64(highest)/1e6, "MB"),
		newFigure("backup", "p99_without_ms", milliseconds(without), "ms"),
		newFigure("backup", "p99_ms", milliseconds(with), "ms"),
		newFigure("backup", "p99_ratio", with.Seconds()/without.Seconds(), "1"),
	}, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// fullCluster makes a cluster of three shards with a replica each, keys in it, and an
// S3 server beside it.
func (b *bench) fullCluster(ctx context.Context, keys int) (*redisv1.RedisCluster, dataset, *kube.Store, error) {
	d := dataset{keys: keys, until: time.Now().Add(24 * time.Hour).Truncate(time.Second)}
	if err := b.loadStore(ctx); err != nil {
		return nil, d, nil, err
	}
	c := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict(readyManifest, c); err != nil {
		return nil, d, nil, fmt.Errorf("read ready.yaml: %w", err)
	}
	c.Namespace = b.namespace
	if err := b.Create(ctx, c); err != nil {
		return nil, d, nil, fmt.Errorf("create the RedisCluster: %w", err)
	}
	store, err := b.StartStore(ctx, b.namespace)
	if err != nil {
		return nil, d, nil, err
	}
	if err := b.awaitRunning(ctx, c); err != nil {
		return nil, d, nil, err
	}
	b.progress("%d keys of %d bytes are written", keys, valueSize)
	return c, d, store, d.write(ctx, b, c)
}

// loadStore makes the image of the S3 server known to the devcluster.
func (b *bench) loadStore(ctx context.Context) error {
	program, err := exec.CommandContext(ctx, "hack/versitygw.sh").Output()
	if err != nil {
		return fmt.Errorf("build the S3 server (from the root of the repository): %w", err)
	}
	path, err := filepath.Abs(b.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find %s: %w", b.Kubeconfig, err)
	}
	load := exec.CommandContext(ctx, "go", "-C", "hack/devcluster", "run", ".", "load", kube.StoreImage, //nolint:gosec // the program of the line above
		"--binary", strings.TrimSpace(string(program)), "--name", filepath.Base(filepath.Dir(path)))
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load the S3 server into the devcluster: %w: %s", err, out)
	}
	return nil
}

// plainDump has redis-cli read a replica of each shard, one after the other, into a
// local file, and gives the size of all files.
func (b *bench) plainDump(ctx context.Context, c *redisv1.RedisCluster) (bytes int64, took time.Duration, err error) {
	rdb, err := b.ClusterClient(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rdb.Close() }() // nothing is pending on it
	password, err := b.Password(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex
	var hosts []string
	err = rdb.ForEachSlave(ctx, func(_ context.Context, replica *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		host, _, _ := strings.Cut(replica.Options().Addr, ":")
		hosts = append(hosts, host)
		return nil
	})
	if err != nil || len(hosts) != 3 {
		return 0, 0, fmt.Errorf("there are %d replicas, want 3: %w", len(hosts), err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // only this measure needed it
	start := time.Now()
	for _, host := range hosts {
		cli := exec.CommandContext(ctx, "redis-cli", "-h", host, "--rdb", filepath.Join(dir, host)) //nolint:gosec // an address that the cluster gave
		cli.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
		if out, err := cli.CombinedOutput(); err != nil {
			return 0, 0, fmt.Errorf("redis-cli --rdb (of the package redis-tools): %w: %s", err, out)
		}
	}
	took = time.Since(start)
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look at what redis-cli wrote: %w", err)
	}
	return bytes, took, nil
}

// takeBackup takes a backup, and gives the time from its creation until it is said to
// have succeeded, and the highest resident memory of its Job, in bytes.
func (b *bench) takeBackup(ctx context.Context, c *redisv1.RedisCluster, store *kube.Store, name string) (took time.Duration, rss int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, toBackup)
	defer cancel()
	w, err := b.Watch(ctx, &redisv1.RedisBackupList{}, client.InNamespace(b.namespace))
	if err != nil {
		return 0, 0, fmt.Errorf("watch RedisBackups: %w", err)
	}
	defer w.Stop()
	o := &redisv1.RedisBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec:       redisv1.RedisBackupSpec{ClusterName: c.Name, Destination: store.Destination(), DeletionPolicy: redisv1.DeletionRetain},
	}
	watching, stop := context.WithCancel(ctx)
	highest := make(chan int64, 1)
	go func() { highest <- b.memoryOfJob(watching, name) }()
	start := time.Now()
	err = b.Create(ctx, o)
	if err == nil {
		err = follow(ctx, w, func(seen *redisv1.RedisBackup) bool {
			if seen.Name == name {
				o = seen
			}
			return o.Done()
		})
	}
	took = time.Since(start)
	stop()
	rss = <-highest
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("backup %s: %w", name, err)
	case o.Status.Phase != redisv1.BackupSucceeded:
		return 0, 0, fmt.Errorf("backup %s is %s: %+v", name, o.Status.Phase, o.Status.Conditions)
	case rss == 0:
		return 0, 0, fmt.Errorf("no process of the Job of backup %s was seen on this machine", name)
	}
	return took, rss, nil
}

// memoryOfJob is the highest resident memory of the process of a backup's Job, in
// bytes, until the context ends.
func (b *bench) memoryOfJob(ctx context.Context, backup string) (highest int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	process := ""
	for {
		select {
		case <-ctx.Done():
			return highest
		case <-tick.C:
		}
		if process == "" {
			process = b.processOfJob(ctx, backup)
			continue
		}
		// The kernel keeps the highest value, so that looking now and then is enough. When
		// the process has ended, what was seen last stays.
		if rss, err := statusLine(filepath.Join(process, "status"), "VmHWM:"); err == nil {
			highest = max(highest, rss)
		}
	}
}

// processOfJob is the folder in /proc of a backup's program, empty while it does not run.
func (b *bench) processOfJob(ctx context.Context, backup string) string {
	var pods corev1.PodList
	if b.List(ctx, &pods, client.InNamespace(b.namespace), client.MatchingLabels{redisv1.LabelBackup: backup}) != nil || len(pods.Items) == 0 {
		return ""
	}
	processes, err := kube.PodProcesses(string(pods.Items[0].UID))
	if err != nil {
		return ""
	}
	for _, process := range processes {
		if name, err := os.ReadFile(filepath.Join(process, "comm")); err == nil && strings.TrimSpace(string(name)) == "manager" {
			return process
		}
	}
	return ""
}

// disturbedByBackup gives the 99th percentile of writes without a backup and during
// one.
func (b *bench) disturbedByBackup(ctx context.Context, c *redisv1.RedisCluster, store *kube.Store) (without, with time.Duration, err error) {
	calmCtx, cancel := context.WithTimeout(ctx, undisturbed)
	defer cancel()
	before, err := b.latencies(calmCtx, c)
	if err != nil {
		return 0, 0, fmt.Errorf("write: %w", err)
	}
	writing, stop := context.WithCancel(ctx)
	type outcome struct {
		all []time.Duration
		err error
	}
	written := make(chan outcome, 1)
	go func() {
		all, err := b.latencies(writing, c)
		written <- outcome{all, err}
	}()
	_, _, err = b.takeBackup(ctx, c, store, "disturbing")
	stop()
	during := <-written
	if err != nil || during.err != nil {
		return 0, 0, fmt.Errorf("backup while clients write: %w", errors.Join(err, during.err))
	}
	b.progress("backup: %d writes without one, %d during one", len(before), len(during.all))
	return p99(before), p99(during.all), nil
}
