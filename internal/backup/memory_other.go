//go:build !linux

package backup

func forgetProgram() {}
