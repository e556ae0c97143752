package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// failoverView is what `failover` shows.
type failoverView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Shard     int32  `json:"shard"`
	From      string `json:"from"`
	To        string `json:"to,omitempty"`
}

func newFailover(p *plugin) *cobra.Command {
	shard := int32(-1)
	cmd := &cobra.Command{
		Use:   "failover NAME --shard N",
		Short: "Have a replica take its primary's place, without a lost write",
		Long: `Have a replica take the place of the primary of shard N. The operator does it, as it does before it replaces a Pod: only
when nothing else is to be done and a replica is in sync, and gracefully, so that no acknowledged write is lost. It is
asked by the annotation redis.example.com/hand-over, which means nothing any more after a minute.

Rights: get and patch redisclusters. Exits with 3 when nobody could take the primary's place within a minute.`,
		Args:              oneName,
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if shard < 0 {
				return usageError{fmt.Errorf("failover wants --shard, the number of a shard from 0 on")}
			}
			return p.failover(cmd.Context(), args[0], shard)
		},
	}
	cmd.Flags().Int32Var(&shard, "shard", -1, "Number of the shard, as `kubectl redis status` shows it.")
	return cmd
}

func (p *plugin) failover(ctx context.Context, name string, shard int32) error {
	c, _, namespace, err := p.connect()
	if err != nil {
		return err
	}
	rc, err := cluster(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	primary, err := primaryOf(rc, shard)
	if err != nil {
		return err
	}
	// Before anything is asked: a request that cannot be met would only be waited for.
	switch {
	case rc.Spec.Paused:
		return notSoError{fmt.Errorf("%s is paused, so that the operator changes nothing", name)}
	case primary == "":
		return notSoError{fmt.Errorf("shard %d of %s has no primary now: %s", shard, name, readyMessage(rc))}
	case rc.Status.ShardStatuses[shardAt(rc, shard)].Replicas < 2:
		return notSoError{fmt.Errorf("shard %d of %s has no other node that could take the place of %s", shard, name, primary)}
	}
	if err := ask(ctx, c, rc, redisv1.HandOverRequest(primary, time.Now())); err != nil {
		return err
	}
	to, waits, err := awaitHandOver(ctx, c, rc, shard, primary)
	// What was asked for is taken back: it has been done, or nobody waits for it any more.
	if e := ask(context.WithoutCancel(ctx), c, rc, ""); e != nil && err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if to == "" {
		return notSoError{fmt.Errorf("nobody took the place of %s within %s: %s", primary, redisv1.HandOverPatience, waits)}
	}
	v := failoverView{Namespace: namespace, Name: name, Shard: shard, From: primary, To: to}
	return p.print(v, func() error {
		_, err := fmt.Fprintf(p.Out, "%s is the primary of shard %d in place of %s\n", v.To, v.Shard, v.From)
		return err
	})
}

// ask sets or removes the request.
func ask(ctx context.Context, c client.Client, rc *redisv1.RedisCluster, request string) error {
	var value *string // null removes
	if request != "" {
		value = &request
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{redisv1.AnnotationHandOver: value}}})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, rc.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate RedisCluster: %w", err)
	}
	return nil
}

// awaitHandOver waits until another Pod is the shard's primary; waits says what the
// operator was at when the time was up.
func awaitHandOver(ctx context.Context, c client.Reader, rc *redisv1.RedisCluster, shard int32, from string) (to, waits string, err error) {
	deadline := time.Now().Add(redisv1.HandOverPatience)
	for {
		latest, err := cluster(ctx, c, rc.Namespace, rc.Name)
		if err != nil {
			return "", "", err
		}
		now, err := primaryOf(latest, shard)
		if err != nil {
			return "", "", err
		}
		if now != "" && now != from {
			return now, "", nil
		}
		if time.Now().After(deadline) {
			return "", readyMessage(latest), nil
		}
		select {
		case <-ctx.Done():
			return "", "", ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// shardAt is the place of a shard in the status; -1 for none.
func shardAt(rc *redisv1.RedisCluster, shard int32) int {
	for i := range rc.Status.ShardStatuses {
		if rc.Status.ShardStatuses[i].Index == shard {
			return i
		}
	}
	return -1
}

// primaryOf is the Pod that is a shard's primary; empty when it has none.
func primaryOf(rc *redisv1.RedisCluster, shard int32) (string, error) {
	at := shardAt(rc, shard)
	if at < 0 {
		return "", usageError{fmt.Errorf("%s has no shard %d: it has %d, from 0 on", rc.Name, shard, len(rc.Status.ShardStatuses))}
	}
	return rc.Status.ShardStatuses[at].Primary, nil
}

func readyMessage(rc *redisv1.RedisCluster) string {
	for _, c := range rc.Status.Conditions {
		if c.Type == redisv1.ConditionReady {
			return c.Message
		}
	}
	return "the operator has said nothing yet"
}
