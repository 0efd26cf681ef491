// The counterparts of benches/compare over client-go.
package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// cpuTime returns the user and system time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 1 && arguments[0] == "informer":
		runInformer()
	case len(arguments) == 3 && arguments[0] == "reflectors":
		runReflectors(arguments[1], arguments[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: client-go informer | client-go reflectors URL NODES")
		os.Exit(2)
	}
}
