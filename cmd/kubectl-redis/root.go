package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// plugin is what all verbs share.
type plugin struct {
	genericiooptions.IOStreams
	flags  *genericclioptions.ConfigFlags
	output string
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	p := &plugin{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:     "kubectl-redis",
		Short:   "Look at RedisClusters and their operator",
		Version: version,
		Long: `Look at RedisClusters and their operator.

Exit codes: 0 all is well, 1 something did not work, 2 the command line makes no sense, 3 the answer is no: the cluster is
not ready, the backup has failed, nobody could take the primary's place.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl redis"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	p.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&p.output, "output", "o", "", "Print json or yaml instead of text.")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if p.output != "" && p.output != "json" && p.output != "yaml" {
			return usageError{fmt.Errorf("-o %s: only json and yaml are known", p.output)}
		}
		return nil
	}
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)                                                              // and so is this one
	root.AddCommand(newStatus(p), newLatency(p), newBackup(p), newFailover(p))
	return root
}

// noArgs and oneName say what is wrong with the arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q is none of status, latency, backup and failover", args[0])}
	}
	return nil
}

func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s wants the name of one RedisCluster, got %d", cmd.Name(), len(args))}
	}
	return nil
}

// connect gives a client of the cluster that the kubeconfig names, and the namespace.
func (p *plugin) connect() (client.WithWatch, *rest.Config, string, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	rest.AddUserAgent(config, "kubectl-redis/"+version)
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(redisv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, nil, "", err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, "", fmt.Errorf("connect: %w", err)
	}
	return c, config, namespace, nil
}

// cluster reads one RedisCluster.
func cluster(ctx context.Context, c client.Reader, namespace, name string) (*redisv1.RedisCluster, error) {
	cluster := &redisv1.RedisCluster{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no RedisCluster %q in namespace %q", name, namespace)
		}
		return nil, fmt.Errorf("get RedisCluster: %w", err)
	}
	return cluster, nil
}

// print writes a value as -o asks, or has it written as text.
func (p *plugin) print(value any, text func() error) error {
	var data []byte
	var err error
	switch p.output {
	case "json":
		data, err = json.MarshalIndent(value, "", "  ")
		data = append(data, '\n')
	case "yaml":
		data, err = yaml.Marshal(value)
	default:
		return text()
	}
	if err == nil {
		_, err = p.Out.Write(data)
	}
	return err
}

// completeClusters completes the names of RedisClusters.
func (p *plugin) completeClusters(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, _, namespace, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var list redisv1.RedisClusterList
	if err := c.List(cmd.Context(), &list, client.InNamespace(namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name+"\t"+string(list.Items[i].Status.Phase))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (p *plugin) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, _, _, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var list corev1.NamespaceList
	if err := c.List(cmd.Context(), &list); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
