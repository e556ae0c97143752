package v1_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unchecked is what the API server adds when a value has the wrong type or
// length, because it then skips the CEL rules.
const unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

const (
	nameRule     = "<nil>: Invalid value: metadata.name must start with a letter and hold only lower-case letters, digits and dashes: a Service is named after it"
	quantityRule = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
)

// refusal is one line for each cause, as kubectl prints them; nil if err is
// no refusal by validation.
func refusal(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return nil
	}
	var lines []string
	for _, cause := range status.Status().Details.Causes {
		if line := cause.Field + ": " + cause.Message; line != unchecked {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestCreateIsRefused(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"no nodes", `spec: {replicas: 0}`,
			[]string{"spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"}},
		{"negative nodes", `spec: {replicas: -1}`,
			[]string{"spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 1",
				".spec.replicas: Invalid value: -1: should be a non-negative integer"}},
		{"too many nodes", `spec: {replicas: 1001}`,
			[]string{"spec.replicas: Invalid value: 1001: spec.replicas in body should be less than or equal to 1000"}},
		{"no shards", `spec: {shards: 0}`,
			[]string{"spec.shards: Invalid value: 0: spec.shards in body should be greater than or equal to 1"}},
		{"more shards than nodes", `spec: {replicas: 3, shards: 4}`,
			[]string{"spec: Invalid value: shards (4) must not exceed replicas (3): every shard needs a node to hold its slots"}},
		{"more shards than default nodes", `spec: {shards: 7}`,
			[]string{"spec: Invalid value: shards (7) must not exceed replicas (6): every shard needs a node to hold its slots"}},
		{"version is a word", `spec: {version: latest}`,
			[]string{`spec.version: Invalid value: "latest": "latest" is no version: write major.minor or major.minor.patch, as "8.0" or "8.0.2"`}},
		{"version is a major", `spec: {version: "8"}`,
			[]string{`spec.version: Invalid value: "8": "8" is no version: write major.minor or major.minor.patch, as "8.0" or "8.0.2"`}},
		{"version has a suffix", `spec: {version: 8.0-alpine}`,
			[]string{`spec.version: Invalid value: "8.0-alpine": "8.0-alpine" is no version: write major.minor or major.minor.patch, as "8.0" or "8.0.2"`}},
		{"version is empty", `spec: {version: ""}`,
			[]string{`spec.version: Invalid value: "": "" is no version: write major.minor or major.minor.patch, as "8.0" or "8.0.2"`}},
		{"version without quotes", `spec: {version: 8.0}`,
			[]string{`spec.version: Invalid value: "integer": spec.version in body must be of type string: "integer"`}},
		{"version is too long", `spec: {version: "8.0.0.0.0.0.0.0.0"}`,
			[]string{"spec.version: Too long: may not be more than 16 bytes"}},
		{"version is too old", `spec: {version: "6.2"}`,
			[]string{`spec.version: Invalid value: "6.2": version 6.2 is too old: 7.0 is the oldest that this operator runs`}},
		{"unknown engine", `spec: {engine: KeyDB}`,
			[]string{`spec.engine: Unsupported value: "KeyDB": supported values: "Redis", "Valkey"`}},
		{"empty image", `spec: {image: ""}`,
			[]string{`spec.image: Invalid value: "": spec.image in body should be at least 1 chars long`}},
		{"unknown pull policy", `spec: {imagePullPolicy: Sometimes}`,
			[]string{`spec.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`}},
		{"one pull secret twice", `spec: {imagePullSecrets: [{name: a}, {name: a}]}`,
			[]string{`spec.imagePullSecrets[1]: Duplicate value: {"name":"a"}`}},
		{"storage without a size", `spec: {storage: {}}`,
			[]string{"spec.storage.size: Required value"}},
		{"storage of nothing", `spec: {storage: {size: 0}}`,
			[]string{"spec.storage.size: Invalid value: 0: size must be a quantity above zero, as 8Gi"}},
		{"storage below nothing", `spec: {storage: {size: -1Gi}}`,
			[]string{`spec.storage.size: Invalid value: "-1Gi": size must be a quantity above zero, as 8Gi`}},
		{"storage size is a word", `spec: {storage: {size: lots}}`,
			[]string{`spec.storage.size: Invalid value: "lots": spec.storage.size in body should match '` + quantityRule + `'`,
				`spec.storage.size: Invalid value: "lots": size must be a quantity above zero, as 8Gi`}},
		{"empty storage class", `spec: {storage: {size: 1Gi, storageClassName: ""}}`,
			[]string{`spec.storage.storageClassName: Invalid value: "": spec.storage.storageClassName in body should be at least 1 chars long`}},
		{"auth on and off", `spec: {auth: {secretName: mine, disabled: true}}`,
			[]string{"spec.auth: Invalid value: secretName and disabled exclude each other"}},
		{"empty secret name", `spec: {auth: {secretName: ""}}`,
			[]string{`spec.auth.secretName: Invalid value: "": spec.auth.secretName in body should be at least 1 chars long`}},
		{"memory is a word", `spec: {resources: {limits: {memory: lots}}}`,
			[]string{`spec.resources.limits.memory: Invalid value: "lots": spec.resources.limits.memory in body should match '` + quantityRule + `'`}},
		{"paused is a word", `spec: {paused: "yes"}`,
			[]string{`spec.paused: Invalid value: "string": spec.paused in body must be of type boolean: "string"`}},
		{"the operator's label", `spec: {podLabels: {redis.example.com/shard: "1"}}`,
			[]string{"spec.podLabels: Invalid value: labels under redis.example.com/ and app.kubernetes.io/ are owned by the operator"}},
		{"a standard label", `spec: {podLabels: {app.kubernetes.io/instance: other}}`,
			[]string{"spec.podLabels: Invalid value: labels under redis.example.com/ and app.kubernetes.io/ are owned by the operator"}},
		{"no label value", `spec: {podLabels: {team: "-a b"}}`,
			[]string{`spec.podLabels.team: Invalid value: "-a b": spec.podLabels.team in body should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'`}},
		{"the operator's annotation", `spec: {podAnnotations: {redis.example.com/config: "1"}}`,
			[]string{"spec.podAnnotations: Invalid value: annotations under redis.example.com/ are owned by the operator"}},
		{"name too long", "metadata: {name: " + strings.Repeat("a", 49) + "}",
			[]string{"<nil>: Invalid value: metadata.name has 49 characters, at most 48 are allowed: the names of Pods and Services are derived from it"}},
		{"name with a dot", `metadata: {name: orders.eu}`, []string{nameRule}},
		{"name starts with a digit", `metadata: {name: 1st}`, []string{nameRule}},
	}
	u := newUser(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			refusedCreate(t, u, c.manifest, c.want...)
		})
	}
}

// refusedCreate wants a manifest to be refused with these lines, and nothing made.
func refusedCreate(t *testing.T, u *user, manifest string, want ...string) {
	t.Helper()
	o := u.object(manifest)
	err := u.Create(context.Background(), o)
	if got := refusal(err); !slices.Equal(got, want) {
		t.Errorf("create gave %v\nwant\n  %s", err, strings.Join(want, "\n  "))
	}
	made := &unstructured.UnstructuredList{}
	made.SetGroupVersionKind(o.GroupVersionKind())
	if err := u.List(context.Background(), made, client.InNamespace(u.namespace)); err != nil {
		t.Fatalf("list: %v", err)
	}
	if len(made.Items) != 0 {
		t.Errorf("%s was made", made.Items[0].GetName())
	}
}

func TestConfigIsRefused(t *testing.T) {
	u := newUser(t)
	for _, directive := range []string{
		"cluster-enabled", "cluster-config-file", "cluster-node-timeout", "tls-port", "tls-cert-file",
		"enable-debug-command", "enable-module-command", "enable-protected-configs",
		"port", "dir", "bind", "bind-source-addr", "protected-mode", "unixsocket", "unixsocketperm",
		"aclfile", "user", "requirepass", "masterauth", "masteruser", "primaryauth", "primaryuser",
		"replicaof", "slaveof", "include", "loadmodule", "rename-command", "daemonize", "supervised",
		"pidfile", "logfile", "dbfilename", "appendfilename", "appenddirname",
		"shutdown-on-sigterm", "shutdown-on-sigint", "shutdown-timeout", "repl-diskless-load", "rdb-del-sync-files",
		"replica-announce-ip", "replica-announce-port", "slave-announce-ip", "slave-announce-port",
	} {
		t.Run(directive, func(t *testing.T) {
			refusedCreate(t, u, "spec: {config: {maxmemory: 1gb, "+directive+`: "1"}}`,
				`spec.config: Invalid value: owned by the operator, remove from config: ["`+directive+`"]`)
		})
	}

	const (
		nameLine  = "spec.config: Invalid value: names of directives are lower-case letters, digits and dashes: "
		valueLine = "spec.config: Invalid value: a value must be a single line: "
	)
	for _, c := range []struct{ name, manifest, want string }{
		{"upper case", `spec: {config: {Port: "1"}}`, nameLine + `["Port"]`},
		{"a directive in a name", `spec: {config: {"save 1 1\nport": "1"}}`, nameLine + `["save 1 1\nport"]`},
		{"a value in a name", `spec: {config: {"port 1": ""}}`, nameLine + `["port 1"]`},
		{"empty name", `spec: {config: {"": "1"}}`, nameLine + `[""]`},
		{"a directive in a value", `spec: {config: {maxmemory: "1gb\nport 1"}}`, valueLine + `["maxmemory"]`},
		{"a carriage return", `spec: {config: {maxmemory: "1gb\rport 1"}}`, valueLine + `["maxmemory"]`},
		{"a zero byte", `spec: {config: {maxmemory: "1gb\0"}}`, valueLine + `["maxmemory"]`},
		{"a long value", "spec: {config: {maxmemory: " + strings.Repeat("1", 1025) + "b}}",
			"spec.config.maxmemory: Too long: may not be more than 1024 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) { refusedCreate(t, u, c.manifest, c.want) })
	}
}

// TestSeveralOwnedDirectives: all are named at once, in no fixed order.
func TestSeveralOwnedDirectives(t *testing.T) {
	u := newUser(t)
	got := refusal(u.Create(context.Background(), u.object(`spec: {config: {tls-port: "1", cluster-enabled: "no", maxmemory: 1gb}}`)))
	const line = "spec.config: Invalid value: owned by the operator, remove from config: "
	if len(got) != 1 || got[0] != line+`["tls-port", "cluster-enabled"]` && got[0] != line+`["cluster-enabled", "tls-port"]` {
		t.Errorf("create gave %q", got)
	}
}
