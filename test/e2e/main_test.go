// Package e2e proves the operator against a real cluster: the one of KUBECONFIG,
// in which it is deployed from config/default. Each case has a namespace of its
// own and removes it. `make test-e2e` makes the cluster, deploys and runs this.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/example/redis-operator/test/kube"
)

// cases is how many cases run at once, unless -parallel says otherwise. They
// mostly wait, so there may be more of them than cores.
const cases = "4"

// cluster is what all cases run against.
var cluster *kube.Kube

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", cases); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			os.Exit(1)
		}
	}
	var err error
	if cluster, err = kube.Connect(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
