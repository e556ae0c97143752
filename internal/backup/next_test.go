package backup

import (
	"strings"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	const hour = time.Hour
	denied := &Result{Reason: ReasonAccessDenied, Message: "the store refuses", Permanent: true}
	cases := map[string]struct {
		facts  Facts
		step   Step
		reason string
		says   string
	}{
		"it is new":                                          {Facts{Deadline: hour}, Start, "", ""},
		"something is in the way":                            {Facts{Deadline: hour, Obstacle: &Obstacle{"Queued", "b is first"}}, Wait, "Queued", "b is first"},
		"it has waited too long":                             {Facts{Age: hour, Deadline: hour, Obstacle: &Obstacle{"Queued", "b is first"}}, Fail, "DeadlineExceeded", "activeDeadlineSeconds: b is first"},
		"its Job is gone and its time is up":                 {Facts{Age: hour, Deadline: hour}, Fail, "DeadlineExceeded", "activeDeadlineSeconds"},
		"its Job is gone":                                    {Facts{Age: time.Minute, Deadline: hour}, Start, "", ""},
		"it works":                                           {Facts{Deadline: hour, Work: WorkGoesOn}, Follow, "", ""},
		"its Pod does not start":                             {Facts{Deadline: hour, Work: WorkGoesOn, Trouble: "no such image"}, Follow, "", "no such image"},
		"it works beyond its time, as the Job":               {Facts{Age: 2 * hour, Deadline: hour, Work: WorkGoesOn}, Follow, "", ""},
		"it is done":                                         {Facts{Deadline: hour, Work: WorkDone, Result: &Result{Keys: 1}}, Succeed, "", ""},
		"it is done after its time":                          {Facts{Age: 2 * hour, Deadline: hour, Work: WorkDone, Result: &Result{Keys: 1}}, Succeed, "", ""},
		"it is done, nobody knows with what":                 {Facts{Deadline: hour, Work: WorkDone}, Again, "", "looks at what is there"},
		"it is done, the last word is of an earlier attempt": {Facts{Deadline: hour, Work: WorkDone, Result: denied}, Again, "", "looks at what is there"},
		"it failed":                                          {Facts{Deadline: hour, Work: WorkFailed, Result: denied}, Fail, "AccessDenied", "the store refuses"},
		"it failed without a word":                           {Facts{Deadline: hour, Work: WorkFailed}, Fail, "JobFailed", "look at its Pods"},
		"it never got to work":                               {Facts{Deadline: hour, Work: WorkFailed, Trouble: "no such image"}, Fail, "JobFailed", "no such image"},
		"its time was up":                                    {Facts{Deadline: hour, Work: WorkTimedOut}, Fail, "DeadlineExceeded", "activeDeadlineSeconds"},
		"its time was up while the store was away": {Facts{Deadline: hour, Work: WorkTimedOut, Result: &Result{Reason: ReasonStoreUnavailable, Message: "nobody listens"}},
			Fail, "DeadlineExceeded", "nobody listens"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			d := Next(tt.facts)
			if d.Step != tt.step || d.Reason != tt.reason || !strings.Contains(d.Message, tt.says) || tt.says == "" && d.Message != "" {
				t.Errorf("%+v, want %s %q with %q", d, tt.step, tt.reason, tt.says)
			}
		})
	}
}
