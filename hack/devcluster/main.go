// Command devcluster runs a real Kubernetes on this machine for development and
// trial: etcd, API server, controller manager, scheduler, and nodes with
// containerd, kubelet and kube-proxy, each node in a network namespace of its
// own. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

const usage = `devcluster: a real Kubernetes on this machine, for development and trial

  devcluster up [--nodes N]              start a cluster, or say that it runs
  devcluster down                        end it and leave nothing behind
  devcluster status [-o json]            what runs
  devcluster kubeconfig                  print the path of its kubeconfig
  devcluster load IMAGE --binary FILE    make an image of a static binary and load it into all nodes
                                         (--entrypoint PATH: where the binary is in it, /manager)
  devcluster load FILE.tar               load an image archive into all nodes
  devcluster node cut|join|kill NAME     take a node off the network, bring it back, or end all that runs on it
  devcluster binaries NAME...            build programs once and print their paths

Every command takes --name NAME (default "dev"): clusters of other names are independent.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	name, output, binary, entrypoint string
	nodes                            int
	args                             []string
}

// parse reads flags before, between and after the words of a command.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("devcluster", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flags.StringVar(&o.name, "name", "dev", "name of the cluster")
	flags.StringVar(&o.output, "o", "", "json")
	flags.StringVar(&o.binary, "binary", "", "static binary to make the image of")
	flags.StringVar(&o.entrypoint, "entrypoint", "/manager", "where the static binary is in the image")
	flags.IntVar(&o.nodes, "nodes", 1, "number of nodes")
	for {
		if err := flags.Parse(args); err != nil {
			return o, err
		}
		if flags.NArg() == 0 {
			return o, nil
		}
		o.args = append(o.args, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	verb := strings.Join(o.args[:min(1, len(o.args))], "")
	switch {
	case verb == "" || verb == "help":
		fmt.Print(usage)
		return nil
	case verb == "binaries":
		return printBinaries(ctx, o.args[1:])
	case runtime.GOOS != "linux" || os.Getuid() != 0:
		return errors.New("it needs Linux and root; with a cluster of your own use KUBECONFIG=… make deploy")
	}
	c, err := loadCluster(o.name)
	exists := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	switch {
	case verb == "up":
		return up(ctx, c, exists, o.nodes)
	case verb == "down":
		unlock, err := lockFile(runFolder + ".lock")
		if err != nil {
			return err
		}
		defer unlock()
		return c.down()
	case !exists:
		return fmt.Errorf("there is no cluster %q: start it with `devcluster up --name %s`", o.name, o.name)
	}
	switch verb {
	case "kubeconfig":
		fmt.Println(c.kubeconfig())
		return nil
	case "status":
		return status(c, o.output)
	case "load":
		return load(ctx, c, o)
	case "node":
		return node(ctx, c, o.args[1:])
	}
	return fmt.Errorf("no command %q\n\n%s", verb, usage)
}

func printBinaries(ctx context.Context, names []string) error {
	paths, err := ensureBinaries(ctx, names...)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		for _, b := range programs {
			names = append(names, b.name)
		}
	}
	for _, name := range names {
		fmt.Println(paths[name])
	}
	return nil
}

// status prints what runs; the error lists what does not.
func status(c *cluster, output string) error {
	bad := c.unhealthy()
	if output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{
			"name": c.Name, "nodes": c.Nodes, "kubeconfig": c.kubeconfig(), "auditLog": c.auditLog(),
			"server": c.server(), "logs": c.dir(), "unhealthy": bad,
		})
	}
	fmt.Printf("cluster     %s, %d nodes\nserver      %s\nkubeconfig  %s\nlogs        %s\naudit log   %s\n",
		c.Name, c.Nodes, c.server(), c.kubeconfig(), c.dir(), c.auditLog())
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, ", "))
	}
	bin, err := ensureBinaries(context.Background(), "kubectl")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), bin["kubectl"], "--kubeconfig="+c.kubeconfig(), "get", "nodes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// load puts an image into every node, and notes it for nodes that join later.
func load(ctx context.Context, c *cluster, o options) error {
	if len(o.args) != 2 {
		return errors.New("load takes one image: `load NAME:TAG --binary FILE` or `load FILE.tar`")
	}
	if c.bin == nil {
		bin, err := ensureBinaries(ctx, "ctr")
		if err != nil {
			return err
		}
		c.bin = bin
	}
	archive := o.args[1]
	if o.binary != "" {
		archive = c.dir("images", strings.NewReplacer("/", "_", ":", "_").Replace(o.args[1])+".tar")
		if err := os.MkdirAll(c.dir("images"), 0o755); err != nil {
			return fmt.Errorf("make folder of images: %w", err)
		}
		if err := binaryImage(o.binary, o.args[1], o.entrypoint, "65532:65532", archive); err != nil {
			return err
		}
	} else if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("%s is no image archive; to make an image of a static binary add --binary FILE", archive)
	}
	for n := 1; n <= c.Nodes; n++ {
		if !c.Processes[fmt.Sprintf("containerd-%d", n)].alive() {
			continue
		}
		if err := c.importImage(n, archive); err != nil {
			return err
		}
	}
	for _, known := range c.Images {
		if known == archive {
			return nil
		}
	}
	c.Images = append(c.Images, archive)
	return c.save()
}

// node cuts, joins or kills a node.
func node(ctx context.Context, c *cluster, args []string) error {
	if len(args) != 2 {
		return errors.New("node takes a verb and a name: `node cut|join|kill NAME`")
	}
	for n := 1; n <= c.Nodes; n++ {
		if c.nodeName(n) != args[1] {
			continue
		}
		switch args[0] {
		case "cut":
			return ip("link set " + c.veth(n) + " down")
		case "join":
			bin, err := ensureBinaries(ctx)
			if err != nil {
				return err
			}
			c.bin = bin
			return errors.Join(ip("link set "+c.veth(n)+" up"), c.startNode(n))
		case "kill":
			c.killNode(n)
			return nil
		}
		return fmt.Errorf("no verb %q: a node can be cut, joined and killed", args[0])
	}
	return fmt.Errorf("no node %q: there are %s to %s", args[1], c.nodeName(1), c.nodeName(c.Nodes))
}
