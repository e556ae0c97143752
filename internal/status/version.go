package status

import (
	"strconv"
	"strings"
)

// HigherVersion is the higher of two dotted versions, number by number. An
// empty one is lower than any; of equal ones it is a.
func HigherVersion(a, b string) string {
	if b == "" {
		return a
	}
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		switch x, y := number(as, i), number(bs, i); {
		case x > y:
			return a
		case y > x:
			return b
		}
	}
	return a
}

// number is the i-th part of a version; -1 where it has none or is no number.
func number(parts []string, i int) int {
	if i >= len(parts) {
		return -1
	}
	n, err := strconv.Atoi(parts[i])
	if err != nil {
		return -1
	}
	return n
}
