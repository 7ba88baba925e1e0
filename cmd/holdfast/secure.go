package main

import (
	"encoding/binary"
	"errors"
	"os"
)

// atSecure is AT_SECURE of elf.h: the kernel's word that the program got rights by its file that its caller has not.
const atSecure = 23

// refuseSecure ends a holdfast that got rights by its file: capabilities, or the set-user-ID bit. Its caller decides on the environment,
// on where sockets and libraries lie and on what is checkpointed and restored, so he would have these rights too.
func refuseSecure() error {
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		// Without /proc nothing of holdfast works, and the verb that is called says so. Only for this question there is another answer.
		if os.Geteuid() == os.Getuid() && os.Getegid() == os.Getgid() {
			return nil
		}
	} else if !secure(auxv) {
		return nil
	}
	return errors.New("it has file capabilities or a set-user-ID bit: whoever may run it could use these rights for anything. " +
		"Take them off (setcap -r, chmod ug-s) and start it as root, or with ambient capabilities (docs/security.md)")
}

// secure reads an auxiliary vector.
func secure(auxv []byte) bool {
	const word = 8 // the machines that holdfast runs on have 64 bits
	for ; len(auxv) >= 2*word; auxv = auxv[2*word:] {
		if binary.NativeEndian.Uint64(auxv) == atSecure {
			return binary.NativeEndian.Uint64(auxv[word:]) != 0
		}
	}
	return false
}
