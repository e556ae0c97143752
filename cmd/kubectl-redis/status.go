package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// clusterView is what `status` shows.
type clusterView struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Phase     redisv1.Phase `json:"phase"`
	Ready     bool          `json:"ready"`
	// WaitsFor is what the operator waits for or is about, in its own words; empty
	// when everything is as it should be.
	WaitsFor      string             `json:"waitsFor,omitempty"`
	Engine        redisv1.Engine     `json:"engine,omitempty"`
	Version       string             `json:"version,omitempty"`
	Nodes         int32              `json:"nodes"`
	ReadyNodes    int32              `json:"readyNodes"`
	SlotsServed   int                `json:"slotsServed"`
	Shards        []shardView        `json:"shards"`
	Backups       *backupsView       `json:"backups,omitempty"`
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
	NotPermitted  []string           `json:"notPermitted,omitempty"`
	FromOlderSpec bool               `json:"fromOlderSpec,omitempty"`
}

// shardView is one shard.
type shardView struct {
	Index   int32  `json:"index"`
	Primary string `json:"primary,omitempty"`
	Slots   string `json:"slots,omitempty"`
	Members int32  `json:"members"`
	// InPlace are ready and in their roles.
	InPlace int32 `json:"inPlace"`
	// Replicas are the other Pods; nil when they may not be listed.
	Replicas []replicaView `json:"replicas,omitempty"`
}

// replicaView is a Pod that is no primary.
type replicaView struct {
	Pod string `json:"pod"`
	// LinkUp: it follows its primary with the link up, which is what its readiness says.
	LinkUp bool `json:"linkUp"`
}

// backupsView is what there is of backups.
type backupsView struct {
	Schedule  string `json:"schedule,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	Succeeded int    `json:"succeeded"`
	Failed    int    `json:"failed"`
	// Running is one that is under way or waits for its turn.
	Running string `json:"running,omitempty"`
	// Last is the last that ended.
	Last *lastBackup `json:"last,omitempty"`
}

type lastBackup struct {
	Name     string              `json:"name"`
	Phase    redisv1.BackupPhase `json:"phase"`
	At       metav1.Time         `json:"at"`
	Size     string              `json:"size,omitempty"`
	Keys     int64               `json:"keys"`
	Location string              `json:"location,omitempty"`
}

func newStatus(p *plugin) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show shards, slots, links, backups and what the operator waits for",
		Long: `Show shards, slots, links, backups, conditions and what the operator waits for. Exits with 3 when the cluster is not ready.

Rights: get redisclusters; watch redisclusters with --watch; list pods for the links and list redisbackups for the backups,
which are left out where that is not permitted.`,
		Args:              oneName,
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, namespace, err := p.connect()
			if err != nil {
				return err
			}
			if follow {
				return p.watchStatus(cmd.Context(), c, namespace, args[0])
			}
			v, err := view(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			if err := p.print(v, func() error { return v.text(p.Out, time.Now()) }); err != nil {
				return err
			}
			if !v.Ready {
				return notSoError{fmt.Errorf("%s is not ready: %s", v.Name, v.WaitsFor)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "Show it again whenever something changes, until interrupted.")
	return cmd
}

// watchStatus shows the cluster at each change of it.
func (p *plugin) watchStatus(ctx context.Context, c client.WithWatch, namespace, name string) error {
	for {
		w, err := c.Watch(ctx, &redisv1.RedisClusterList{}, client.InNamespace(namespace), client.MatchingFieldsSelector{
			Selector: fields.OneTermEqualSelector("metadata.name", name)})
		if err != nil {
			return fmt.Errorf("watch RedisCluster: %w", err)
		}
		err = p.follow(ctx, c, w, namespace, name)
		w.Stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// follow shows the cluster until the watch ends, which servers do now and then.
func (p *plugin) follow(ctx context.Context, c client.Reader, w watch.Interface, namespace, name string) error {
	if _, err := cluster(ctx, c, namespace, name); err != nil {
		return err
	}
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Deleted:
			return notSoError{fmt.Errorf("%s was deleted", name)}
		case watch.Error:
			return fmt.Errorf("watch RedisCluster: %w", apierrors.FromObject(event.Object))
		}
		v, err := view(ctx, c, namespace, name)
		if err != nil {
			return err
		}
		if file, ok := p.Out.(*os.File); ok && p.output == "" && term.IsTerminal(int(file.Fd())) {
			_, _ = io.WriteString(p.Out, "\033[H\033[2J")
		}
		if err := p.print(v, func() error { return v.text(p.Out, time.Now()) }); err != nil {
			return err
		}
	}
	return nil
}

// view gathers what is shown.
func view(ctx context.Context, c client.Reader, namespace, name string) (*clusterView, error) {
	rc, err := cluster(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	s := &rc.Status
	v := &clusterView{
		Namespace: namespace, Name: name, Phase: s.Phase, Engine: rc.Spec.Engine, Version: s.Version, Nodes: int32(rc.Spec.Nodes()), ReadyNodes: s.ReadyReplicas,
		Conditions: s.Conditions, FromOlderSpec: s.ObservedGeneration != rc.Generation,
	}
	ready := meta.FindStatusCondition(s.Conditions, redisv1.ConditionReady)
	v.Ready = ready != nil && ready.Status == metav1.ConditionTrue && !v.FromOlderSpec
	switch {
	case v.FromOlderSpec:
		v.WaitsFor = "the operator has not looked at the present spec yet"
	case ready != nil && !v.Ready:
		v.WaitsFor = ready.Message
	}
	for _, shard := range s.ShardStatuses {
		v.Shards = append(v.Shards, shardView{Index: shard.Index, Primary: shard.Primary, Slots: shard.Slots, Members: shard.Replicas, InPlace: shard.ReadyReplicas})
		v.SlotsServed += len(slotsOf(shard.Slots))
	}
	if err := v.addReplicas(ctx, c, rc); err != nil {
		return nil, err
	}
	return v, v.addBackups(ctx, c, rc)
}

// addReplicas finds the Pods and their links.
func (v *clusterView) addReplicas(ctx context.Context, c client.Reader, rc *redisv1.RedisCluster) error {
	selector, err := labels.Parse(rc.Status.Selector)
	if err != nil || rc.Status.Selector == "" {
		return err
	}
	var pods corev1.PodList
	err = c.List(ctx, &pods, client.InNamespace(rc.Namespace), client.MatchingLabelsSelector{Selector: selector})
	switch {
	case apierrors.IsForbidden(err):
		v.NotPermitted = append(v.NotPermitted, "list pods")
		return nil
	case err != nil:
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		index, err := strconv.Atoi(pod.Labels[redisv1.LabelShard])
		at := slices.IndexFunc(v.Shards, func(s shardView) bool { return int(s.Index) == index })
		if err != nil || at < 0 || pod.Name == v.Shards[at].Primary {
			continue
		}
		linked := pod.Labels[redisv1.LabelRole] == redisv1.RoleReplica && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		v.Shards[at].Replicas = append(v.Shards[at].Replicas, replicaView{Pod: pod.Name, LinkUp: linked})
	}
	return nil
}

// addBackups finds the backups of the cluster.
func (v *clusterView) addBackups(ctx context.Context, c client.Reader, rc *redisv1.RedisCluster) error {
	var list redisv1.RedisBackupList
	err := c.List(ctx, &list, client.InNamespace(rc.Namespace))
	switch {
	case apierrors.IsForbidden(err):
		v.NotPermitted = append(v.NotPermitted, "list redisbackups")
		return nil
	case err != nil:
		return fmt.Errorf("list RedisBackups: %w", errors.Unwrap(err))
	}
	b := &backupsView{}
	if spec := rc.Spec.Backup; spec != nil {
		b.Schedule, b.Suspended = spec.Schedule, spec.Suspend
	}
	for i := range list.Items {
		one := &list.Items[i]
		if one.Spec.ClusterName != rc.Name {
			continue
		}
		switch one.Status.Phase {
		case redisv1.BackupSucceeded:
			b.Succeeded++
		case redisv1.BackupFailed:
			b.Failed++
		default:
			b.Running = one.Name
		}
		if end := one.Status.CompletionTime; one.Done() && end != nil && (b.Last == nil || b.Last.At.Before(end)) {
			b.Last = &lastBackup{Name: one.Name, Phase: one.Status.Phase, At: *end, Size: one.Status.Size, Keys: one.Status.Keys, Location: one.Status.Location}
		}
	}
	v.Backups = b
	return nil
}
