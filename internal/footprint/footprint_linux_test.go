package footprint

import (
	"os"
	"strings"
	"testing"
)

// TestForgetProgram: the program takes less memory afterwards, and still works.
func TestForgetProgram(t *testing.T) {
	program := func() string {
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
				return strings.TrimSpace(rest)
			}
		}
		t.Fatalf("no RssFile in\n%s", data)
		return ""
	}
	before := program()
	ForgetProgram()
	after := program()
	t.Logf("%s before, %s afterwards", before, after)
	if len(after) > len(before) || len(after) == len(before) && after >= before {
		t.Errorf("the program took %s, and takes %s", before, after)
	}
}
