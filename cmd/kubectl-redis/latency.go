package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/latency"
)

// latencyView is what `latency` shows.
type latencyView struct {
	*latency.Report
	Probe *probe `json:"probe,omitempty"`
}

// probe is what a user's request to the API server takes now, in seconds; medians.
type probe struct {
	// RoundTrip is a request that needs nothing: the first step.
	RoundTrip float64 `json:"roundTripSeconds"`
	// Check is what a dry-run of a RedisCluster takes more: the second step but for
	// the storing.
	Check float64 `json:"checkSeconds"`
	// Times each was asked.
	Times int `json:"times"`
}

// probes is how often each request of a probe is sent.
const probes = 9

// latencyOptions are the flags of `latency`.
type latencyOptions struct {
	manager managerOptions
	file    string
	probe   bool
}

func newLatency(p *plugin) *cobra.Command {
	var o latencyOptions
	cmd := &cobra.Command{
		Use:   "latency [NAME]",
		Short: "Tell which of the eleven steps from a change to a converged cluster is slow",
		Long: `Tell how long each of the eleven steps from a change to a converged cluster takes, and which of them is slow: of the last
change of the cluster NAME, or of all changes since the operator started.

It reads the metrics of the operator's Pod through a port-forward, with a token of ten minutes of the ServiceAccount that
may do nothing but read them; your own credentials go to the API server alone.

Rights, in the operator's namespace: list pods, create pods/portforward, create serviceaccounts/token of
redis-operator-metrics-reader (the Role redis-operator-latency-reader holds them); none there with --metrics. With --probe:
create redisclusters, as a dry-run.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneName(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.latency(cmd.Context(), &o, strings.Join(args, ""))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.manager.namespace, "operator-namespace", "redis-operator-system", "Namespace that the operator runs in.")
	f.StringVar(&o.manager.account, "metrics-account", "redis-operator-metrics-reader", "ServiceAccount there that may read the metrics.")
	f.StringVar(&o.manager.bearer, "metrics-token", "", "Token to read the metrics with, instead of a new one of the ServiceAccount.")
	f.StringVar(&o.file, "metrics", "", "File, or http URL, to read the metrics from, instead of the operator; - is the standard input.")
	f.BoolVar(&o.probe, "probe", false, "Time the first two steps now, by dry-runs.")
	return cmd
}

func (p *plugin) latency(ctx context.Context, o *latencyOptions, name string) error {
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	samples, err := p.samples(ctx, o)
	if err != nil {
		return err
	}
	if name == "" {
		namespace = ""
	}
	report, err := latency.Analyse(samples, namespace, name)
	if err != nil {
		return err
	}
	v := latencyView{Report: report}
	if o.probe {
		if v.Probe, err = p.probe(ctx); err != nil {
			return err
		}
	}
	return p.print(v, func() error { return v.text(p.Out) })
}

// samples gets the metrics from where the flags say.
func (p *plugin) samples(ctx context.Context, o *latencyOptions) (latency.Samples, error) {
	var in io.ReadCloser
	var err error
	switch {
	case o.file == "-":
		in = io.NopCloser(p.In)
	case strings.HasPrefix(o.file, "http://"):
		in, err = get(ctx, http.DefaultClient, o.file, "")
	case o.file != "":
		in, err = os.Open(o.file)
	default:
		return p.managerSamples(ctx, o.manager)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return latency.Read(in)
}

// probe times what a user's request takes.
func (p *plugin) probe(ctx context.Context) (*probe, error) {
	c, config, namespace, err := p.connect()
	if err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	var there, checked []float64
	for i := range probes + 1 { // the first connects, and does not count
		start := time.Now()
		if err := set.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
			return nil, fmt.Errorf("ask the API server for its version: %w", err)
		}
		between := time.Now()
		imagined := &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: namespace}}
		if err := c.Create(ctx, imagined, client.DryRunAll); err != nil {
			return nil, fmt.Errorf("create a RedisCluster, as a dry-run: %w", err)
		}
		if i > 0 {
			there, checked = append(there, between.Sub(start).Seconds()), append(checked, time.Since(between).Seconds())
		}
	}
	trip := median(there)
	return &probe{RoundTrip: trip, Check: max(0, median(checked)-trip), Times: probes}, nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// text writes the table and the verdict.
func (v *latencyView) text(w io.Writer) error {
	var b strings.Builder
	switch {
	case v.AtRest:
		b.WriteString("no cluster has changed since the operator started; the time is that of the passes that looked at them\n\n")
	case v.Name != "":
		fmt.Fprintf(&b, "%s/%s: the last change took %s and %.0f passes\n\n", v.Namespace, v.Name, latency.Seconds(v.Seconds), v.Passes)
	default:
		fmt.Fprintf(&b, "%.0f changes of all clusters since the operator started: %s and %.0f passes\n\n", v.Changes, latency.Seconds(v.Seconds), v.Passes)
	}
	var lines []string
	for _, row := range v.Rows {
		lines = append(lines, fmt.Sprintf("%d\t%s\t%.0f\t%s\t%s\t%s\t%s\t%.1f%%", row.Number, row.Title, row.Count,
			optional(row.P50), optional(row.P95), optional(row.P99), latency.Seconds(row.Seconds), row.Share*100))
	}
	table(&b, "STEP\tWHAT HAPPENS\tCOUNT\tP50\tP95\tP99\tTIME\tSHARE", lines)
	if v.Probe != nil {
		fmt.Fprintf(&b, "\nprobe: step 1 takes %s there and back, step 2 takes %s to check an object without storing it (medians of %d)\n",
			latency.Seconds(v.Probe.RoundTrip), latency.Seconds(v.Probe.Check), v.Probe.Times)
	}
	fmt.Fprintf(&b, "\n%s\n", v.Verdict.Text)
	_, err := io.WriteString(w, b.String())
	return err
}

func optional(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return latency.Seconds(*seconds)
}
