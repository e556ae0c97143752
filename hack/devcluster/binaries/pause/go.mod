module github.com/example/redis-operator/hack/devcluster/binaries/pause

go 1.26.0
