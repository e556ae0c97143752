package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/minio/minio-go/v7"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

const (
	// someKeys are moved between different numbers of shards.
	someKeys = 200_000
	// plainData is the data folder of the plain server.
	plainData = "/data"
)

// restore compares the restore of a backup of 2 GB with what a person would wait for
// without an operator: the download of every shard, and then a plain server's load of
// the largest. Then it restores a smaller backup of three shards into five, and one of
// these into two, and counts the keys.
func restore(ctx context.Context, b *bench) ([]figure, error) {
	c, d, store, err := b.fullCluster(ctx, largeKeys)
	if err != nil {
		return nil, err
	}
	if _, _, err := b.takeBackup(ctx, c, store, "large"); err != nil {
		return nil, err
	}
	image, err := b.serverImage(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := b.removeCluster(ctx, c); err != nil {
		return nil, err
	}
	var seconds, baselines, ratios []float64
	lost := 0
	for turn := range b.runs {
		download, load, err := b.plainRestore(ctx, store, "large", image)
		if err != nil {
			return nil, err
		}
		r, took, err := b.restored(ctx, "large", 3)
		if err != nil {
			return nil, err
		}
		missing, err := d.lost(ctx, b, r)
		if err != nil {
			return nil, err
		}
		if err := b.removeCluster(ctx, r); err != nil {
			return nil, err
		}
		baseline := download + load
		b.progress("restore, run %d of %d: download %.1f s, load of the largest shard %.1f s, restore %.1f s, %d keys lost",
			turn+1, b.runs, download.Seconds(), load.Seconds(), took.Seconds(), missing)
		seconds, baselines = append(seconds, took.Seconds()), append(baselines, baseline.Seconds())
		ratios = append(ratios, took.Seconds()/baseline.Seconds())
		lost += missing
	}
	reshaped, err := b.reshaped(ctx, store)
	if err != nil {
		return nil, err
	}
	return []figure{
		newFigure("restore", "seconds", median(seconds), "s"),
		newFigure("restore", "baseline_seconds", median(baselines), "s"),
		newFigure("restore", "ratio", median(ratios), "1"),
		newFigure("restore", "keys_lost", float64(lost+reshaped), "keys"),
	}, nil
}

// reshaped restores a backup of three shards into five, one of those into two, and
// counts what is lost on the way.
func (b *bench) reshaped(ctx context.Context, store *kube.Store) (int, error) {
	c, err := b.smallCluster(ctx, "three", 3, nil)
	if err != nil {
		return 0, err
	}
	d := dataset{keys: someKeys, until: time.Now().Add(24 * time.Hour).Truncate(time.Second)}
	if err := d.write(ctx, b, c); err != nil {
		return 0, err
	}
	lost := 0
	for _, shards := range []int32{5, 2} {
		name := "of-" + c.Name
		if _, _, err := b.takeBackup(ctx, c, store, name); err != nil {
			return 0, err
		}
		r, took, err := b.restored(ctx, name, shards)
		if err != nil {
			return 0, err
		}
		missing, err := d.lost(ctx, b, r)
		if err != nil {
			return 0, err
		}
		b.progress("restore: %d keys of %s into %d shards in %.1f s, %d lost", d.keys, c.Name, shards, took.Seconds(), missing)
		if err := b.removeCluster(ctx, c); err != nil {
			return 0, err
		}
		lost += missing
		c = r
	}
	return lost, b.removeCluster(ctx, c)
}

// restored makes a cluster of so many shards of one node each from a backup, and gives
// the time from its creation until it is Running.
func (b *bench) restored(ctx context.Context, backup string, shards int32) (*redisv1.RedisCluster, time.Duration, error) {
	start := time.Now()
	c, err := b.smallCluster(ctx, fmt.Sprintf("restored-%d-of-%s", shards, backup), shards, &redisv1.RestoreSource{BackupName: backup})
	return c, time.Since(start), err
}

// smallCluster makes a cluster without replicas, and waits until it is Running.
func (b *bench) smallCluster(ctx context.Context, name string, shards int32, from *redisv1.RestoreSource) (*redisv1.RedisCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, toBackup)
	defer cancel()
	c := &redisv1.RedisCluster{}
	if err := yaml.UnmarshalStrict(readyManifest, c); err != nil {
		return nil, fmt.Errorf("read ready.yaml: %w", err)
	}
	c.Namespace, c.Name, c.Spec.Replicas, c.Spec.Shards, c.Spec.RestoreFrom = b.namespace, name, &shards, &shards, from
	w, err := b.Watch(ctx, &redisv1.RedisClusterList{}, client.InNamespace(b.namespace))
	if err != nil {
		return nil, fmt.Errorf("watch RedisClusters: %w", err)
	}
	defer w.Stop()
	line, err := b.timeline(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := b.Create(ctx, c); err != nil {
		return nil, fmt.Errorf("create the RedisCluster: %w", err)
	}
	err = follow(ctx, w, func(o *redisv1.RedisCluster) bool {
		if o.Name == name {
			c = o
			line.status(c)
		}
		return c.Status.Phase == redisv1.PhaseRunning || c.Status.Phase == redisv1.PhaseFailed
	})
	if line != nil {
		line.print(b, start)
	}
	if err == nil && c.Status.Phase == redisv1.PhaseFailed {
		err = fmt.Errorf("it is Failed: %+v", c.Status.Conditions)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for the RedisCluster %s: %w", name, err)
	}
	return c, nil
}

func (b *bench) removeCluster(ctx context.Context, c *redisv1.RedisCluster) error {
	if err := b.Delete(ctx, c, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("delete %s: %w", c.Name, err)
	}
	return kube.Await(ctx, nil, c.Name+" is gone", b.Gone(c))
}

// serverImage is the image of a cluster's servers.
func (b *bench) serverImage(ctx context.Context, c *redisv1.RedisCluster) (string, error) {
	pods, err := b.Pods(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range pods {
		for _, container := range pods[i].Spec.Containers {
			if container.Name == "redis" {
				return container.Image, nil
			}
		}
	}
	return "", fmt.Errorf("no Pod of %s has a container \"redis\"", c.Name)
}

// plainRestore downloads the shards of a backup, one after the other, into the data
// folder of a bare Pod, and has a server load the largest.
func (b *bench) plainRestore(ctx context.Context, store *kube.Store, backup, image string) (download, load time.Duration, err error) {
	o := &redisv1.RedisBackup{}
	if err := b.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: backup}, o); err != nil {
		return 0, 0, fmt.Errorf("get the backup %s: %w", backup, err)
	}
	pod, root, err := b.plainServer(ctx, image)
	if err != nil {
		return 0, 0, err
	}
	data := filepath.Join(root, plainData)
	start := time.Now()
	largest, most := "", int64(0)
	prefix := path.Join(o.Spec.Destination.S3.Prefix, o.Status.ID) + "/shard-"
	for object := range store.Client.ListObjects(ctx, kube.StoreBucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return 0, 0, fmt.Errorf("list the objects of the backup: %w", object.Err)
		}
		file := filepath.Join(data, path.Base(object.Key))
		size, err := unpack(ctx, store, object.Key, file)
		if err != nil {
			return 0, 0, fmt.Errorf("download %s: %w", object.Key, err)
		}
		if size > most {
			largest, most = file, size
		}
	}
	download = time.Since(start)
	if largest == "" {
		return 0, 0, fmt.Errorf("there is no object %s*", prefix)
	}
	if err := os.Rename(largest, filepath.Join(data, "dump.rdb")); err != nil {
		return 0, 0, fmt.Errorf("name the largest shard: %w", err)
	}
	start = time.Now()
	if err := os.WriteFile(filepath.Join(data, "go"), nil, 0o600); err != nil {
		return 0, 0, fmt.Errorf("let the plain server start: %w", err)
	}
	err = kube.Await(ctx, nil, "the plain server has loaded the largest shard", func(ctx context.Context) (string, error) {
		rdb := kube.Dial(pod.Status.PodIP, "")
		defer func() { _ = rdb.Close() }() // nothing is pending on it
		if err := rdb.Ping(ctx).Err(); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	load = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	if err := b.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return 0, 0, fmt.Errorf("delete the plain server: %w", err)
	}
	return download, load, kube.Await(ctx, nil, "the plain server is gone", b.Gone(pod))
}

// plainServer makes a Pod whose server starts once its data folder has a file "go", and
// gives its file system as this machine sees it.
func (b *bench) plainServer(ctx context.Context, image string) (*corev1.Pod, string, error) {
	const start = `while [ ! -e /data/go ]; do sleep 0.02; done; exec redis-server --dir /data --save "" --protected-mode no`
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "plain"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "redis", Image: image, Command: []string{"sh", "-c", start},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: plainData}},
		}},
		Volumes: []corev1.Volume{{Name: "data"}},
	}}
	kube.Restrict(&pod.Spec)
	if err := b.Create(ctx, pod); err != nil {
		return nil, "", fmt.Errorf("make a plain server: %w", err)
	}
	err := kube.Await(ctx, nil, "the plain server's Pod runs", func(ctx context.Context) (string, error) {
		if err := b.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return "", fmt.Errorf("get the plain server's Pod: %w", err)
		}
		if !kube.Ready(pod) {
			return string(pod.Status.Phase), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, "", err
	}
	processes, err := kube.PodProcesses(string(pod.UID))
	if err != nil {
		return nil, "", err
	}
	for _, process := range processes {
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err == nil && strings.TrimSpace(string(name)) == "sh" {
			return pod, filepath.Join(process, "root"), nil
		}
	}
	return nil, "", fmt.Errorf("no shell of the Pod %s runs on this machine", pod.Name)
}

// unpack downloads an object into a file, and gives the file's size.
func unpack(ctx context.Context, store *kube.Store, key, file string) (int64, error) {
	object, err := store.Client.GetObject(ctx, kube.StoreBucket, key, minio.GetObjectOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = object.Close() }() // it was only read
	plain, err := zstd.NewReader(object)
	if err != nil {
		return 0, err
	}
	defer plain.Close()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644) //nolint:gosec // a file of the plain server
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(f, plain)
	return size, errors.Join(err, f.Close())
}
