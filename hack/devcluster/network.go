package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// The addresses of a cluster follow from its index (0 to 31) and those of a
// node from its number (1 to 50):
//
//	10.192.INDEX.0/24        nodes; the machine itself is .1, node N is .(10+N)
//	10.(128+INDEX).N.0/24    Pods of node N
//	10.(160+INDEX).0.0/16    Services; the cluster DNS is .0.10
//	127.77.INDEX.1           what only the machine itself may reach
const (
	maxClusters = 32
	maxNodes    = 50
)

func (c *cluster) hostIP() string          { return fmt.Sprintf("10.192.%d.1", c.Index) }
func (c *cluster) loopbackIP() string      { return fmt.Sprintf("127.77.%d.1", c.Index) }
func (c *cluster) podRange() string        { return fmt.Sprintf("10.%d.0.0/16", 128+c.Index) }
func (c *cluster) serviceRange() string    { return fmt.Sprintf("10.%d.0.0/16", 160+c.Index) }
func (c *cluster) kubernetesIP() string    { return fmt.Sprintf("10.%d.0.1", 160+c.Index) }
func (c *cluster) dnsIP() string           { return fmt.Sprintf("10.%d.0.10", 160+c.Index) }
func (c *cluster) bridge() string          { return fmt.Sprintf("dc%d", c.Index) }
func (c *cluster) netns(n int) string      { return fmt.Sprintf("dc%d-%d", c.Index, n) }
func (c *cluster) veth(n int) string       { return fmt.Sprintf("dc%dn%d", c.Index, n) }
func (c *cluster) nodeIP(n int) string     { return fmt.Sprintf("10.192.%d.%d", c.Index, 10+n) }
func (c *cluster) podSubnet(n int) string  { return fmt.Sprintf("10.%d.%d.0/24", 128+c.Index, n) }
func (c *cluster) nodeName(n int) string   { return fmt.Sprintf("%s-%d", c.Name, n) }
func (c *cluster) cgroupName(n int) string { return "dc-" + c.netns(n) }

func netnsPath(name string) string { return "/var/run/netns/" + name }

// freeIndex finds the lowest index whose bridge does not exist.
func freeIndex() (int, error) {
	for i := range maxClusters {
		c := cluster{Index: i}
		if _, err := os.Stat("/sys/class/net/" + c.bridge()); os.IsNotExist(err) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there are %d clusters on this machine already", maxClusters)
}

// makeBridge makes the network that the nodes and this machine share.
func (c *cluster) makeBridge() error {
	return ip(
		"link add "+c.bridge()+" type bridge",
		"addr add "+c.hostIP()+"/24 dev "+c.bridge(),
		"link set "+c.bridge()+" up",
	)
}

// makeNodeNetwork makes a node's network namespace with its link to the bridge,
// and the machine's route to its Pods.
func (c *cluster) makeNodeNetwork(n int) error {
	ns, veth := c.netns(n), c.veth(n)
	err := ip(
		"netns add "+ns,
		"link add "+veth+" type veth peer name eth0 netns "+ns,
		"link set "+veth+" master "+c.bridge()+" up",
		"-n "+ns+" link set lo up",
		"-n "+ns+" addr add "+c.nodeIP(n)+"/24 dev eth0",
		"-n "+ns+" link set eth0 up",
		"-n "+ns+" route add default via "+c.hostIP(),
		"route add "+c.podSubnet(n)+" via "+c.nodeIP(n),
	)
	if err != nil {
		return err
	}
	_, err = command("nsenter", "--net="+netnsPath(ns), "--", "sh", "-c",
		"echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter")
	return err
}

// removeNetwork removes all of it; what is not there is no error.
func (c *cluster) removeNetwork() error {
	var errs []error
	for n := 1; n <= maxNodes; n++ {
		if _, err := os.Stat("/sys/class/net/" + c.veth(n)); err == nil {
			errs = append(errs, ip("link del "+c.veth(n)))
		}
		if _, err := os.Stat(netnsPath(c.netns(n))); err == nil {
			errs = append(errs, ip("netns del "+c.netns(n)))
		}
	}
	if _, err := os.Stat("/sys/class/net/" + c.bridge()); err == nil {
		errs = append(errs, ip("link del "+c.bridge()))
	}
	return errors.Join(errs...)
}

// ip runs iproute2 commands in order, up to the first that fails.
func ip(lines ...string) error {
	for _, line := range lines {
		if _, err := command("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// forwardFile is the setting without which the machine routes no Pod's packet.
const forwardFile = "/proc/sys/net/ipv4/ip_forward"

// forwardMark exists while routing is on because a cluster needed it. It
// outlives the cluster that turned it on.
const forwardMark = runFolder + ".forwarding"

// allowForwarding turns routing on, and marks it if it was off.
func allowForwarding() error {
	old, err := os.ReadFile(forwardFile)
	if err != nil {
		return fmt.Errorf("read %s: %w", forwardFile, err)
	}
	if strings.TrimSpace(string(old)) == "1" {
		return nil
	}
	if err := os.WriteFile(forwardMark, nil, 0o600); err != nil {
		return fmt.Errorf("note that routing was off: %w", err)
	}
	return os.WriteFile(forwardFile, []byte("1"), 0o644)
}

// restoreForwarding turns routing off if a cluster had turned it on.
func restoreForwarding() error {
	if _, err := os.Stat(forwardMark); errors.Is(err, os.ErrNotExist) {
		return nil // it was on before, or another did it already
	}
	return errors.Join(os.WriteFile(forwardFile, []byte("0"), 0o644), os.Remove(forwardMark))
}
