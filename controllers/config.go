package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// The directives of spec.config reach running servers by CONFIG SET. The
// ConfigMap, which servers read when they start, gets new ones only after a
// server has taken them: a Pod that starts with one that its server does not
// know would not come up. What a server takes only at its start, and what is
// removed again, of which only the server knows the default, restarts the Pods:
// the ConfigMap counts such changes, and the count is in the Pods' template.

// applyConfigMap brings the ConfigMap up to date in all but directives of
// spec.config that no server has taken yet.
func (p *pass) applyConfigMap(ctx context.Context) error {
	c := p.cluster
	user := manifests.UserDirectives(&c.Spec)
	if old := p.kube.configMap; old != nil && len(p.kube.pods) > 0 {
		user = manifests.UserDirectivesIn(old.Data)
	}
	return p.apply(ctx, &corev1.ConfigMap{}, manifests.ConfigMapName(c), manifests.ConfigMap(c, user, p.restarts()))
}

// restarts is the count of changes that restart the Pods.
func (p *pass) restarts() string {
	if p.kube.configMap == nil {
		return ""
	}
	return p.kube.configMap.Annotations[manifests.RestartsAnnotation]
}

// configure brings the directives of spec.config to the running servers.
func (p *pass) configure(ctx context.Context) error {
	if p.kube.configMap == nil {
		return nil
	}
	wanted, old := manifests.UserDirectives(&p.cluster.Spec), manifests.UserDirectivesIn(p.kube.configMap.Data)
	if !maps.Equal(wanted, old) {
		restarts, ok, err := p.tryDirectives(ctx, old, wanted)
		if err != nil || !ok {
			return err
		}
		intent := manifests.ConfigMap(p.cluster, wanted, restarts)
		if err := p.apply(ctx, &corev1.ConfigMap{}, manifests.ConfigMapName(p.cluster), intent); err != nil {
			return err
		}
	}
	return p.setDirectives(ctx, wanted)
}

// tryDirectives lets one server judge the directives that have changed. It
// reports the new count of restarts, and false if one was refused, which is then
// a problem of the pass and leaves the server as it was. Without a server that
// answers there is nobody to ask, and nothing to be harmed.
func (p *pass) tryDirectives(ctx context.Context, old, wanted map[string]string) (restarts string, ok bool, err error) {
	again := false
	for name := range old {
		if _, kept := wanted[name]; !kept {
			again = true
		}
	}
	if node := p.anyReplica(); node != nil {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if old[name] == wanted[name] {
				continue
			}
			err := node.ConfigSet(ctx, map[string]string{name: unquoted(wanted[name])})
			switch {
			case redis.IsImmutable(err):
				again = true
			case redis.IsServer(err):
				p.facts.Problems = append(p.facts.Problems, status.Problem{Reason: redisv1.ReasonConfigRefused, Message: fmt.Sprintf(
					"the server refuses %q of spec.config, and no Pod is restarted with it: %v", name, err)})
				return "", false, p.takeBack(ctx, node, old, wanted)
			case err != nil:
				return "", false, fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	if !again {
		return p.restarts(), true, nil
	}
	count, _ := strconv.Atoi(p.restarts()) // none yet is 0
	return strconv.Itoa(count + 1), true, nil
}

// takeBack sets what was changed in vain to what it was.
func (p *pass) takeBack(ctx context.Context, node *redis.Node, old, wanted map[string]string) error {
	for name, value := range old {
		if was, ok := wanted[name]; ok && was != value {
			if err := node.ConfigSet(ctx, map[string]string{name: unquoted(value)}); err != nil && !redis.IsServer(err) {
				return fmt.Errorf("set %s back: %w", name, err)
			}
		}
	}
	return nil
}

// anyReplica is a server to try directives on: a replica if one answers.
func (p *pass) anyReplica() *redis.Node {
	var node *redis.Node
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		if n.Knowledge != topology.Answered {
			continue
		}
		if node == nil || !n.Primary {
			node = p.nodes[n.Pod].node
		}
	}
	return node
}

// setDirectives sets all of them on every server that has not been given them
// since it started: a server that starts right after a change may have read the
// file of before. Which were set is remembered only to save the commands.
func (p *pass) setDirectives(ctx context.Context, wanted map[string]string) error {
	if len(wanted) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for pod, c := range p.nodes {
		key := c.state.RunID + fmt.Sprint(wanted) // maps are printed sorted
		if c.err != nil || c.state.Loading || p.mem.configured[pod] == key {
			continue
		}
		wg.Go(func() {
			for _, name := range slices.Sorted(maps.Keys(wanted)) {
				err := c.node.ConfigSet(ctx, map[string]string{name: unquoted(wanted[name])})
				if err != nil && !redis.IsImmutable(err) {
					log.FromContext(ctx).Info("a directive could not be set", "pod", pod, "directive", name, "reason", err.Error())
					return // the next pass tries again
				}
			}
			mu.Lock()
			defer mu.Unlock()
			p.mem.configured[pod] = key
		})
	}
	wg.Wait()
	return nil
}

// unquoted is a value as CONFIG SET takes it: the quotes of redis.conf are not
// part of it.
func unquoted(value string) string {
	if len(value) >= 2 && strings.HasPrefix(value, `"`) && strings.HasSuffix(value, `"`) {
		return value[1 : len(value)-1]
	}
	return value
}
