// Package stand plays the parts of Kubernetes that a bare API server lacks, for
// RedisClusters: the StatefulSet controller, and a kubelet that backs each Pod with a
// real redis-server process on a loopback address of its own, started by the Pod's own
// start.sh. The operator under test talks to real servers, and hundreds of Pods fit on
// one machine. It runs on Linux, with redis-server and redis-cli on PATH.
package stand
