// Command bench measures the operator on a real cluster, the one of KUBECONFIG,
// and prints one line a figure: scenario, figure, value, unit. README.md says
// what each of them means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/example/redis-operator/test/kube"
)

// options are the command line.
type options struct {
	scenarios []string
	json      bool
	check     bool
	verbose   bool
	runs      int
	// settle and rest are how long the scenario "rest" waits and measures.
	settle, rest time.Duration
	auditLog     string
	// clusters are the numbers of clusters of "many"; manySettle and manyRest are how
	// long they are left alone, and watched.
	clusters             []int
	manySettle, manyRest time.Duration
}

// scenario measures in a namespace of its own.
type scenario func(context.Context, *bench) ([]figure, error)

var scenarios = map[string]scenario{"ready": ready, "rest": rest}

// alone are the scenarios that bring a control plane of their own.
var alone = map[string]func(context.Context, options) ([]figure, error){}

// bench is what a scenario measures with.
type bench struct {
	*kube.Kube
	options
	audit     *auditLog
	namespace string
	start     time.Time
}

// progress says on stderr what is going on.
func (b *bench) progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1f s] %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, arguments...))
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	figures, err := measure(ctx, o)
	stop()
	err = errors.Join(err, write(os.Stdout, figures, o.json))
	if err == nil && o.check {
		err = check(figures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads flags and scenarios in any order.
func parse(arguments []string) (options, error) {
	var o options
	var settle, rest, manySettle, manyRest float64
	clusters := "25,50,100"
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(fs.Output(), "usage: bench %s [flags]\n", strings.Join(names(), " | "))
		fs.PrintDefaults()
	}
	fs.BoolVar(&o.json, "json", false, "Print the figures as JSON.")
	fs.BoolVar(&o.check, "check", false, "Exit with 1 if a figure misses its bar.")
	fs.BoolVar(&o.verbose, "v", false, "Print a timeline of each run of ready and restore to stderr.")
	fs.IntVar(&o.runs, "n", 3, "Runs of ready; their medians are printed.")
	fs.Float64Var(&settle, "settle-minutes", 5, "How long the cluster of rest is left alone before it is measured.")
	fs.Float64Var(&rest, "rest-minutes", 10, "How long the cluster of rest is measured.")
	fs.StringVar(&o.auditLog, "audit-log", "", "The API server's audit log; empty: that of the devcluster of KUBECONFIG.")
	fs.StringVar(&clusters, "clusters", clusters, "Numbers of clusters of many, one after the other.")
	fs.Float64Var(&manySettle, "many-settle-seconds", 60, "How long the clusters of many are left alone before they are measured.")
	fs.Float64Var(&manyRest, "many-rest-seconds", 60, "How long the clusters of many are measured at rest.")
	for len(arguments) > 0 {
		if err := fs.Parse(arguments); err != nil {
			return o, err
		}
		if arguments = fs.Args(); len(arguments) == 0 {
			break
		}
		if scenarios[arguments[0]] == nil && alone[arguments[0]] == nil {
			return o, fmt.Errorf("there is no scenario %q, only %s", arguments[0], strings.Join(names(), " and "))
		}
		o.scenarios = append(o.scenarios, arguments[0])
		arguments = arguments[1:]
	}
	if len(o.scenarios) == 0 {
		return o, fmt.Errorf("which scenario? There are %s", strings.Join(names(), " and "))
	}
	if o.runs < 1 || rest <= 0 || settle < 0 || manyRest <= 0 || manySettle < 0 {
		return o, errors.New("-n must be at least 1, what is rest above 0, what is settle not below 0")
	}
	for _, word := range strings.Split(clusters, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return o, fmt.Errorf("-clusters %s: %q is no number of clusters", clusters, word)
		}
		o.clusters = append(o.clusters, n)
	}
	o.settle = time.Duration(settle * float64(time.Minute))
	o.rest = time.Duration(rest * float64(time.Minute))
	o.manySettle, o.manyRest = time.Duration(manySettle*float64(time.Second)), time.Duration(manyRest*float64(time.Second))
	return o, nil
}

func names() []string {
	var all []string
	for name := range scenarios {
		all = append(all, name)
	}
	for name := range alone {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// measure runs the scenarios one after the other and gives the figures of those
// that ended well.
func measure(ctx context.Context, o options) (all []figure, err error) {
	var b *bench
	for _, name := range o.scenarios {
		var figures []figure
		if run := alone[name]; run != nil {
			figures, err = run(ctx, o)
		} else {
			if b == nil {
				if b, err = connect(ctx, o); err != nil {
					return all, err
				}
				defer func() { _ = b.audit.Close() }() // it was only read
			}
			figures, err = b.run(ctx, name)
		}
		all = append(all, figures...)
		if err != nil {
			return all, fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	return all, nil
}

// connect reaches the cluster of KUBECONFIG and its audit log.
func connect(ctx context.Context, o options) (*bench, error) {
	k, err := kube.Connect(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{Kube: k, options: o, start: time.Now()}
	path := o.auditLog
	if path == "" {
		if path, err = devclusterAuditLog(ctx, k.Kubeconfig); err != nil {
			return nil, err
		}
	}
	b.audit, err = openAuditLog(path)
	return b, err
}

// run runs one scenario in a new namespace, which it removes.
func (b *bench) run(ctx context.Context, name string) (figures []figure, err error) {
	if b.namespace, err = b.Namespace(ctx, "bench-"+name); err != nil {
		return nil, err
	}
	defer func() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
		// Also after a signal, which ended the context.
		if e := b.Delete(context.WithoutCancel(ctx), ns); e != nil {
			err = errors.Join(err, fmt.Errorf("delete the namespace: %w", e))
		}
	}()
	figures, err = scenarios[name](ctx, b)
	if err != nil && ctx.Err() == nil {
		_, _ = io.WriteString(os.Stderr, b.Explain(ctx, b.namespace))
	}
	return figures, err
}
