// Package footprint keeps the resident memory of the program small.
package footprint

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetProgram lets go of the memory that holds the program itself, of which what runs
// needs a small part: the rest was touched while all packages were initialised. What is
// needed comes back from the page cache. Only mappings that nobody can write are touched;
// where it does not work, the process takes some 25 MB more. It does not block.
func ForgetProgram() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		// 00400000-0234a000 r-xp 00000000 fe:00 1234   /manager
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[5] != self || (fields[1] != "r-xp" && fields[1] != "r--p") {
			continue
		}
		first, last, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(last, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
	}
}
