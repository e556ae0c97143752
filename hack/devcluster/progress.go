package main

import (
	"fmt"
	"os"
	"time"
)

var began = time.Now()

// say prints a line of progress with the time since the start.
func say(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "[%4ds] %s\n", int(time.Since(began).Seconds()), fmt.Sprintf(format, a...))
}

// keepSaying repeats a line every 20 seconds until it is stopped.
func keepSaying(line string) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Second):
				say("%s", line)
			}
		}
	}()
	return func() { close(done) }
}
