//go:build !linux

package footprint

// ForgetProgram does nothing here.
func ForgetProgram() {}
