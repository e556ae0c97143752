#!/usr/bin/env bash
# From nothing to a running Redis Cluster: a local Kubernetes, the operator built
# from this source and deployed in it, a RedisCluster, a key written, backed up and restored.
# Run again after a change: it builds and deploys what is new and keeps the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/local.sh

sample=config/samples/redis_v1_rediscluster.yaml
cluster=orders

step "local Kubernetes"
local_up

step "operator, built from this source"
deploy_operator

step "RedisCluster $cluster, from $sample"
kubectl apply -f "$sample"
wait_running "$cluster" 300

step "a key, written and read through the cluster"
password=$(kubectl get secret "$cluster-auth" -o jsonpath='{.data.password}' | base64 -d)
# The password goes by standard input: an argument would show in the process list.
# shellcheck disable=SC2016 # the container's shell expands it
answer=$(printf '%s\n' "$password" | kubectl exec -i "$cluster-0-0" -c redis -- sh -c '
	read -r REDISCLI_AUTH; export REDISCLI_AUTH
	redis-cli -c -h "$0" set quickstart "it works" && redis-cli -c -h "$0" get quickstart' "$cluster")
echo "$answer"
[ "$(tail -n 1 <<<"$answer")" = "it works" ] || fail "the key did not come back"

step "a backup to a volume, and a smaller cluster that starts from it"
kubectl apply -f - <<YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: backups}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
YAML
# Run again, it takes a new backup and restores that.
kubectl delete rediscluster "$cluster-restored" --ignore-not-found
kubectl delete redisbackup "$cluster-quickstart" --ignore-not-found
kubectl apply -f - <<YAML
apiVersion: redis.example.com/v1
kind: RedisBackup
metadata: {name: $cluster-quickstart}
spec:
  clusterName: $cluster
  destination: {persistentVolumeClaim: {claimName: backups}}
YAML
kubectl wait redisbackup "$cluster-quickstart" --for=condition=Complete --timeout=120s
kubectl get redisbackup "$cluster-quickstart"
kubectl apply -f - <<YAML
apiVersion: redis.example.com/v1
kind: RedisCluster
metadata: {name: $cluster-restored}
spec:
  replicas: 2
  shards: 2
  restoreFrom: {backupName: $cluster-quickstart}
YAML
wait_running "$cluster-restored" 300
password=$(kubectl get secret "$cluster-restored-auth" -o jsonpath='{.data.password}' | base64 -d)
# shellcheck disable=SC2016 # the container's shell expands it
answer=$(printf '%s\n' "$password" | kubectl exec -i "$cluster-restored-0-0" -c redis -- sh -c '
	read -r REDISCLI_AUTH; export REDISCLI_AUTH; redis-cli -c -h "$0" get quickstart' "$cluster-restored")
echo "$answer"
[ "$answer" = "it works" ] || fail "the key is not in the restored cluster"

step "done in $SECONDS s"
kubectl get rediscluster "$cluster"
echo
kubectl get pods -l "app.kubernetes.io/instance=$cluster" -L redis.example.com/role
cat <<TXT

What runs      a Kubernetes of this machine, the operator in the namespace redis-operator-system,
               and in the namespace default the Redis Clusters "$cluster" and "$cluster-restored"

Connect        export KUBECONFIG=$KUBECONFIG
               kubectl get secret $cluster-auth -o jsonpath='{.data.password}' | base64 -d; echo
               kubectl exec -it $cluster-0-0 -c redis -- redis-cli -c -h $cluster --askpass
               inside the cluster: $cluster.default.svc:6379, with a client that speaks Redis Cluster

Try next       kubectl get rdc -w                                              and, beside it:
               kubectl delete pod $cluster-0-0                                 it comes back as a replica or primary
               kubectl delete pod -l app.kubernetes.io/instance=$cluster       all at once
               kubectl apply -f config/samples/redis_v1_rediscluster_valkey.yaml
               kubectl explain rdc.spec

Stop           kubectl delete rdc $cluster $cluster-restored                    the clusters alone
               $devcluster down                                        everything
TXT
