package topology

import "fmt"

// yield has a primary hand over to one of its replicas because somebody asks for it.
// It comes last: a cluster that has something to do is not disturbed. Once another
// node is the head of its shard nothing is left to do.
func yield(d Desired, o *Observed) Plan {
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if d.Yield == "" || n.Pod != d.Yield || !d.wants(n) || n != o.Head(n.Shard) {
			continue
		}
		why := n.Pod + " is asked to give up its place"
		if d.Members[n.Shard] == 1 {
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s, and its shard has no other node", why)}
		}
		return handOver(o, n, func(r *Node) bool { return d.wants(r) && !r.Outdated }, why)
	}
	return Plan{}
}
