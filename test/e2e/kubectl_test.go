package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// kubectl runs kubectl (KUBECTL, else the one on PATH) in the case's namespace.
func (u *user) kubectl(arguments ...string) (output string, ok bool) {
	u.Helper()
	program := os.Getenv("KUBECTL")
	if program == "" {
		program = "kubectl"
	}
	command := exec.CommandContext(u.Context(), program, append([]string{"--namespace", u.ns}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	data, err := command.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		u.Fatalf("run kubectl, which must be on PATH or named by KUBECTL: %v", err)
	}
	return string(bytes.TrimSpace(data)), err == nil
}

// TestKubectl: what a person types, and what it shows.
func TestKubectl(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.made(`{metadata: {name: orders}, spec: {replicas: 3}}`)

	table, _ := u.kubectl("get", "rdc")
	lines := strings.Split(table, "\n")
	if got := strings.Fields(lines[0]); strings.Join(got, " ") != "NAME PHASE READY REPLICAS SHARDS VERSION AGE" {
		u.Errorf("the columns are %q", got)
	}
	if got := strings.Fields(lines[len(lines)-1]); len(lines) != 2 || strings.Join(got[:6], " ") != "orders Running 3 3 1 8.0" {
		u.Errorf("kubectl get rdc shows\n%s", table)
	}
	for _, c := range []struct {
		arguments string
		ok        bool
		// words that the output must hold.
		words []string
	}{
		{"get rediscluster orders -o wide", true, []string{"Converged", "3 nodes in 1 shards are ready"}},
		{"get all", true, []string{"rediscluster.redis.example.com/orders", "statefulset.apps/orders-0"}},
		{"explain rdc.spec", true, []string{"replicas", "shards", "version", "storage", "auth", "paused", "engine"}},
		{"explain rdc.spec.replicas", true, []string{"Redis nodes (Pods) in all"}},
		{"explain rdc.status.readyReplicas", true, []string{"hold their role"}},
		{"wait rdc/orders --for=condition=Ready --timeout=10s", true, []string{"condition met"}},
		{"wait rdc/orders --for=jsonpath={.status.phase}=Running --timeout=10s", true, []string{"condition met"}},
		{"scale rdc orders --replicas=0", false, []string{"spec.replicas in body should be greater than or equal to 1"}},
		{"scale rdc orders --replicas=1001", false, []string{"spec.replicas in body should be less than or equal to 1000"}},
		{"patch rdc orders --type=merge -p {\"spec\":{\"shards\":4}}", false, []string{"shards (4) must not exceed replicas (3)"}},
		{"patch rdc orders --type=merge -p {\"spec\":{\"version\":\"7.0\"}}", false, []string{"a downgrade to 7.0 is refused: 8.0"}},
		{"describe rdc orders", true, []string{redisv1.EventCreated, redisv1.ReasonNoStorage}},
	} {
		output, ok := u.kubectl(strings.Fields(c.arguments)...)
		if ok != c.ok {
			u.Errorf("kubectl %s succeeds: %t\n%s", c.arguments, ok, output)
		}
		for _, word := range c.words {
			if !strings.Contains(output, word) {
				u.Errorf("kubectl %s does not say %q:\n%s", c.arguments, word, output)
			}
		}
	}
	u.reread(rc)
	if rc.Spec.Nodes() != 3 {
		u.Errorf("spec.replicas is %d, although every change was refused", rc.Spec.Nodes())
	}
}
