// Package latency tests what the operator says of its own latency, as its user sees
// it: the manager and the kubectl plugin are the real programs, the API server, etcd and
// the Redis servers too, and faults are put between them.
package latency
