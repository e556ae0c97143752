package main

import (
	"fmt"
	"os"

	"github.com/example/redis-operator/internal/backup"
)

// subcommand carries out what the program does beside running the manager, in Jobs
// and init containers that the manager makes. It reports false when the arguments
// name none.
func subcommand(args []string) (exitCode int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "backup", "restore":
		return backup.Command(args[0]), true
	case "install":
		if len(args) != 2 {
			fmt.Fprintln(os.Stderr, "usage: manager install FOLDER")
			return 2, true
		}
		if err := backup.Install(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true
		}
		return 0, true
	}
	return 0, false
}
