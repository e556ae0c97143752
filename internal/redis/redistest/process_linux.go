package redistest

import "syscall"

// dieWithParent lets the kernel end a server when the thread that started it
// ends, so that none outlives a test process that is killed or times out.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
