//go:build !linux

package redistest

import "syscall"

// dieWithParent does nothing here: only Linux can.
func dieWithParent() *syscall.SysProcAttr { return nil }
