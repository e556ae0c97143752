package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// barCells is the length of a slot bar; each cell stands for as many slots.
const (
	slotCount = 16384
	barCells  = 32
	perCell   = slotCount / barCells
)

// text writes the view for people.
func (v *clusterView) text(w io.Writer, now time.Time) error {
	var b strings.Builder
	phase := string(v.Phase)
	if phase == "" {
		phase = "not seen by the operator yet"
	}
	fmt.Fprintf(&b, "%s/%s  %s  %d of %d nodes ready, %d shards, %s %s\n", v.Namespace, v.Name, phase, v.ReadyNodes, v.Nodes, len(v.Shards), v.Engine, v.Version)
	if v.WaitsFor != "" {
		fmt.Fprintf(&b, "waits for: %s\n", v.WaitsFor)
	}
	if len(v.Shards) > 0 {
		b.WriteString("\n")
		v.shards(&b)
	}
	v.backups(&b, now)
	if len(v.Conditions) > 0 {
		b.WriteString("\n")
		table(&b, "CONDITION\tSTATUS\tREASON\tSINCE\tMESSAGE", v.conditionLines(now))
	}
	for _, right := range v.NotPermitted {
		fmt.Fprintf(&b, "left out, because you may not: %s\n", right)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (v *clusterView) shards(b *strings.Builder) {
	var lines []string
	for _, s := range v.Shards {
		primary, slots := s.Primary, s.Slots
		if primary == "" {
			primary, slots = "none", "none"
		}
		members := fmt.Sprintf("%d/%d", s.InPlace, s.Members)
		if s.Members == 0 {
			members = "going"
		}
		var links []string
		for _, r := range s.Replicas {
			link := " up"
			if !r.LinkUp {
				link = " DOWN"
			}
			links = append(links, r.Pod+link)
		}
		lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s", s.Index, primary, bar(s.Slots), slots, members, strings.Join(links, ", ")))
	}
	table(b, "SHARD\tPRIMARY\t0        SLOTS            16383\t\tIN PLACE\tREPLICAS AND THEIR LINKS", lines)
	if missing := slotCount - v.SlotsServed; missing > 0 {
		fmt.Fprintf(b, "%d of %d slots have no primary\n", missing, slotCount)
	}
}

func (v *clusterView) backups(b *strings.Builder, now time.Time) {
	k := v.Backups
	if k == nil || *k == (backupsView{}) {
		return
	}
	b.WriteString("\nbackups: ")
	var parts []string
	switch {
	case k.Suspended:
		parts = append(parts, fmt.Sprintf("schedule %q, suspended", k.Schedule))
	case k.Schedule != "":
		parts = append(parts, fmt.Sprintf("schedule %q", k.Schedule))
	}
	parts = append(parts, fmt.Sprintf("%d succeeded, %d failed", k.Succeeded, k.Failed))
	if k.Running != "" {
		parts = append(parts, k.Running+" is under way")
	}
	if l := k.Last; l != nil {
		last := fmt.Sprintf("the last one, %s, %s %s ago", l.Name, strings.ToLower(string(l.Phase)), ago(l.At, now))
		if l.Size != "" {
			last += fmt.Sprintf(" (%d keys, %s)", l.Keys, l.Size)
		}
		parts = append(parts, last)
	}
	b.WriteString(strings.Join(parts, "; ") + "\n")
}

func (v *clusterView) conditionLines(now time.Time) []string {
	var lines []string
	for _, c := range v.Conditions {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, ago(c.LastTransitionTime, now), c.Message))
	}
	return lines
}

func ago(at metav1.Time, now time.Time) string { return duration.HumanDuration(now.Sub(at.Time)) }

// table writes lines of cells separated by tabs, below a head.
func table(b *strings.Builder, head string, lines []string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, line := range append([]string{head}, lines...) {
		_, _ = fmt.Fprintln(w, line) // a Builder takes everything
	}
	_ = w.Flush()
}

// bar draws slots: full, partly, not at all.
func bar(slots string) string {
	var cells [barCells]int
	for _, slot := range slotsOf(slots) {
		cells[slot/perCell]++
	}
	var b strings.Builder
	for _, n := range cells {
		switch n {
		case perCell:
			b.WriteRune('█')
		case 0:
			b.WriteRune('·')
		default:
			b.WriteRune('▒')
		}
	}
	return b.String()
}

// slotsOf reads slots as the status writes them, "0-5460 6000"; what is none of that is
// left out.
func slotsOf(text string) []int {
	var out []int
	for _, part := range strings.Fields(text) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom != nil || errTo != nil || from < 0 || to >= slotCount {
			continue
		}
		for slot := from; slot <= to; slot++ {
			out = append(out, slot)
		}
	}
	return out
}
