package main

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// atSecure is AT_SECURE of elf.h: the kernel's word that the program got rights by its file that its caller has not.
const atSecure = 23

// refuseSecure ends a holdfast that got rights by its file: capabilities, or the set-user-ID bit. Its caller decides on
// the environment, on where sockets and libraries lie and on what is checkpointed and restored, so he would have these
// rights too.
func refuseSecure() error {
	// Not from /proc/self/auxv: with such rights the process may not read its own.
	auxv, err := unix.Auxv()
	if err == nil && !secure(auxv) && os.Geteuid() == os.Getuid() && os.Getegid() == os.Getgid() {
		return nil
	}
	return errors.New("it has file capabilities or a set-user-ID bit: " +
		"whoever may run it could use these rights for anything. " +
		"Take them off (setcap -r, chmod ug-s) and start it as root, or with ambient capabilities (docs/security.md)")
}

// secure looks into an auxiliary vector. One that does not say has nothing to say.
func secure(auxv [][2]uintptr) bool {
	return slices.ContainsFunc(auxv, func(e [2]uintptr) bool { return e[0] == atSecure && e[1] != 0 })
}
