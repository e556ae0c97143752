// Command scorecard holds the project's own tests for `operator-sdk scorecard`. They
// run in a Pod beside an operator that somebody has installed, and judge it as a user
// would: by what it does for objects. The argument names the test. What goes to
// standard output is one JSON TestStatus and nothing else, because scorecard reads
// the whole log of the Pod as one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/redis/go-redis/v9"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// namespaceVariable is where scorecard says which namespace to use.
	namespaceVariable = "SCORECARD_NAMESPACE"
	// bundleFolder is where scorecard unpacks the bundle.
	bundleFolder = "/bundle"
)

// tests are the tests by name. What one returns is why it fails.
var tests = map[string]func(context.Context, *stage) error{
	"cluster-lifecycle": clusterLifecycle,
	"backup-restore":    backupRestore,
}

func main() {
	quiet()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	name := strings.Join(os.Args[1:], " ")
	result := run(ctx, name, func() (*stage, error) { return newStage(os.Getenv(namespaceVariable), bundleFolder) })
	if err := write(os.Stdout, result); err != nil {
		os.Exit(1) // nobody could read why
	}
}

// quiet silences what libraries write, which would be part of the log.
func quiet() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	redis.SetLogger(silence{})
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// run carries out a test on a stage. It is an error when there is nothing to judge:
// no such test, no bundle, no cluster; the test fails when the operator does.
func run(ctx context.Context, name string, open func() (*stage, error)) (result v1alpha3.TestResult) {
	result = v1alpha3.TestResult{Name: name, State: v1alpha3.ErrorState}
	test, ok := tests[name]
	if !ok {
		result.Errors = []string{fmt.Sprintf("there is no test %q, only %s", name, strings.Join(slices.Sorted(maps.Keys(tests)), " and "))}
		return result
	}
	s, err := open()
	if err != nil {
		result.Errors = []string{err.Error()}
		return result
	}
	defer func() {
		if p := recover(); p != nil {
			result.State, result.Errors = v1alpha3.ErrorState, append(result.Errors, fmt.Sprintf("the test itself broke: %v", p))
		}
		result.Log = strings.Join(s.log, "\n")
		result.Suggestions = s.suggestions
	}()
	result.State = v1alpha3.PassState
	for _, err := range []error{test(ctx, s), s.tidyUp(ctx)} {
		if err != nil {
			result.State = v1alpha3.FailState
			if apierrors.IsForbidden(err) {
				s.suggest("give the ServiceAccount of scorecard the Role in config/scorecard/rbac")
			}
			result.Errors = append(result.Errors, err.Error())
		}
	}
	return result
}

// write puts out the result as scorecard wants it.
func write(w io.Writer, result v1alpha3.TestResult) error {
	return json.NewEncoder(w).Encode(v1alpha3.TestStatus{Results: []v1alpha3.TestResult{result}})
}
