package metrics

// Step is one of the eleven steps from a change to a converged cluster. Each moment
// of that time belongs to exactly one of them, so that their shares are 100% in all:
// while a pass waits for the API server's answer to a write, wherever it does so, that
// is Store, and only what is left of acting is Act.
type Step string

// The steps, in their order. The numbers are those of docs/latency.md.
const (
	// Submit (1): a request waits because the API server takes no more for now.
	Submit Step = "submit"
	// Store (2): the API server checks and stores what the operator writes.
	Store Step = "store"
	// Watch (3): what was written is on its way into the operator's cache.
	Watch Step = "watch"
	// Requeue (4): the object waits out the delay after a pass that failed.
	Requeue Step = "queue"
	// Worker (5): the object is due and no worker is free.
	Worker Step = "worker"
	// Read (6): the desired state is read from the cache.
	Read Step = "read"
	// ObserveKubernetes (7): the children are read, from the cache or live.
	ObserveKubernetes Step = "observe_kubernetes"
	// ObserveRedis (7): the Redis nodes are asked, all at once.
	ObserveRedis Step = "observe_redis"
	// Plan (8): what to do next is computed.
	Plan Step = "plan"
	// Act (9): objects are applied and Redis commands sent.
	Act Step = "act"
	// Status (10): what was seen is written.
	Status Step = "status"
	// Wait (11): the operator waits for what Pods and Redis do by themselves.
	Wait Step = "wait"
)

// Steps are all of them, in their order.
var Steps = []Step{Submit, Store, Watch, Requeue, Worker, Read, ObserveKubernetes, ObserveRedis, Plan, Act, Status, Wait}

// ofPass are the steps of a pass.
var ofPass = [...]Step{Read, ObserveKubernetes, ObserveRedis, Plan, Act, Status}

// spent is the time that was spent in each step, in the order of Steps.
type spent [12]float64

func (s *spent) add(step Step, seconds float64) { s[step.index()] += seconds }

func (s Step) index() int {
	for i, other := range Steps {
		if s == other {
			return i
		}
	}
	panic("metrics: no such step: " + string(s)) // the constants above are all there are
}

// ofPass is the place of a step among those of a pass.
func (s Step) ofPass() int { return s.index() - Read.index() }

func values[T ~string](constants []T, more ...string) []string {
	out := make([]string, 0, len(constants)+len(more))
	for _, c := range constants {
		out = append(out, string(c))
	}
	return append(out, more...)
}
