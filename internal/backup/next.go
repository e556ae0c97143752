package backup

import "time"

// Work is how far the Job of a backup is.
type Work int

const (
	// NoWork: there is no Job.
	NoWork Work = iota
	// WorkGoesOn: the Job has not ended.
	WorkGoesOn
	// WorkDone: the Job succeeded.
	WorkDone
	// WorkFailed: the Job failed, and tries no more.
	WorkFailed
	// WorkTimedOut: the Job was ended because its time was up.
	WorkTimedOut
)

// Obstacle is why a backup cannot begin yet.
type Obstacle struct{ Reason, Message string }

// Facts is what one look at a backup that has not ended told.
type Facts struct {
	// Age of the backup, and the time that it has in all.
	Age, Deadline time.Duration
	Work          Work
	// Result is what the task said last; nil when it has said nothing.
	Result *Result
	// Trouble is why the Job's Pod does not get to work, or what its last attempt
	// said; empty for none.
	Trouble string
	// Obstacle is what is in the way of a Job; nil for nothing. It is looked for only
	// while there is none.
	Obstacle *Obstacle
}

// Step is what to do with a backup.
type Step string

const (
	// Wait: nothing can be done now.
	Wait Step = "Wait"
	// Start: make the Job.
	Start Step = "Start"
	// Again: delete the Job, whose end told nothing. The next one finds what is there.
	Again Step = "Again"
	// Follow: the Job works.
	Follow Step = "Follow"
	// Succeed: the backup is whole; the Result has its figures.
	Succeed Step = "Succeed"
	// Fail: there is no backup, for the Reason.
	Fail Step = "Fail"
)

// Decision is a Step, and why.
type Decision struct {
	Step            Step
	Reason, Message string
}

// The reasons that are not those of a task or of an obstacle.
const (
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	ReasonJobFailed        Reason = "JobFailed"
)

// Next decides about a backup. It is pure.
func Next(f Facts) Decision {
	switch f.Work {
	case WorkGoesOn:
		return Decision{Step: Follow, Message: f.Trouble}
	case WorkDone:
		if f.Result == nil || f.Result.Reason != "" {
			return Decision{Step: Again, Message: "the Job succeeded and its Pod is gone, with what it said: another one looks at what is there"}
		}
		return Decision{Step: Succeed}
	case WorkFailed, WorkTimedOut:
		return failed(f)
	}
	switch {
	case f.Age >= f.Deadline:
		message := "it was not taken within spec.activeDeadlineSeconds"
		if f.Obstacle != nil {
			message += ": " + f.Obstacle.Message
		}
		return Decision{Step: Fail, Reason: string(ReasonDeadlineExceeded), Message: message}
	case f.Obstacle != nil:
		return Decision{Step: Wait, Reason: f.Obstacle.Reason, Message: f.Obstacle.Message}
	}
	return Decision{Step: Start}
}

// failed says why, as well as is known: the task's own word, then the Job's.
func failed(f Facts) Decision {
	d := Decision{Step: Fail, Reason: string(ReasonJobFailed), Message: "the Job failed without a word: look at its Pods"}
	if f.Work == WorkTimedOut {
		d.Reason, d.Message = string(ReasonDeadlineExceeded), "it was not done within spec.activeDeadlineSeconds"
	}
	switch {
	case f.Result != nil && f.Result.Reason != "" && f.Work == WorkTimedOut:
		d.Message += ": " + f.Result.Message
	case f.Result != nil && f.Result.Reason != "":
		d.Reason, d.Message = string(f.Result.Reason), f.Result.Message
	case f.Trouble != "":
		d.Message += ": " + f.Trouble
	}
	return d
}
