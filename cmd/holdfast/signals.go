package main

import (
	"os"
	"syscall"
)

// forwarded are the signals that run and restore pass on to the program. The program
// is in a session of its own, so a terminal's signals reach only holdfast.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// forward passes a signal on to the program's process group. For a stop the program
// gets SIGSTOP: the kernel drops SIGTSTP in a group without a parent in its
// own session. holdfast then stops itself, so that the shell takes over.
func forward(pid int, s syscall.Signal) {
	if s != syscall.SIGTSTP {
		kill(pid, s)
		return
	}
	kill(pid, syscall.SIGSTOP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// kill signals the group that pid leads, or pid alone if it leads none (any more).
func kill(pid int, s syscall.Signal) {
	if syscall.Kill(-pid, s) != nil {
		syscall.Kill(pid, s)
	}
}
