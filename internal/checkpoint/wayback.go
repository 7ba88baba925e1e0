package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/process"
)

// checkWayBack refuses programs that could not come back once they have let go of their memory: they must hear the
// signal that wakes them, find the daemon's socket, and be let in there. It is asked before anything is stopped.
func (e *Env) checkWayBack(programs []*process.Program) error {
	for _, p := range programs {
		if err := e.wayBack(p); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) wayBack(p *process.Program) error {
	const inside = "run holdfast, daemon and all, inside of the container or sandbox"
	id := p.Identity()
	peer, ok := p.Peer()
	if !ok {
		return nil // it has no conversation: freezing it names that
	}
	if peer.Self != id.PID {
		return refusef(inside,
			"process %d has a PID namespace of its own, in which it is process %d: it could not be woken", id.PID,
			peer.Self)
	}
	for _, kind := range []string{"pid", "user"} {
		same, err := sameLink(id.PID, "ns/"+kind)
		if err != nil {
			return refusef("run the daemon as root",
				"process %d: its %s namespace cannot be seen, so nobody knows whether it could come back: %v", id.PID,
				kind, err)
		}
		if !same {
			return refusef(inside, "process %d has a %s namespace of its own: it could not come back to this daemon",
				id.PID, kind)
		}
	}
	if err := sameUser(id, peer.UID); err != nil {
		return err
	}
	return e.findsSocket(id.PID, inside)
}

// sameLink says whether a link of a process below /proc leads where ours does.
func sameLink(pid int, name string) (bool, error) {
	ours, err := os.Readlink("/proc/self/" + name)
	if err != nil {
		return false, err
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	return ours == its, err
}

// sameUser refuses a program whose control thread, which is the one that comes back, is not the user's any more that
// it was when it said hello: neither socket nor daemon may let it in.
func sameUser(id process.Identity, was int) error {
	effective, fs, err := usersOf(id)
	if err != nil {
		return refusef("", "process %d: the user of its thread %d cannot be seen: %v", id.PID, id.ControlTID, err)
	}
	for _, now := range []int{effective, fs} {
		if now != was {
			return refusef("start it as that user, or let it become that user before its first CUDA call",
				"process %d was user %d when it was first held and is user %d now: it could not come back to this "+
					"daemon",
				id.PID, was, now)
		}
	}
	return nil
}

// usersOf returns the effective user of a program's control thread, and that for the file system.
func usersOf(id process.Identity) (effective, fs int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", id.PID, id.ControlTID))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Uid:"); ok {
			var real, saved int
			_, err := fmt.Sscan(v, &real, &effective, &saved, &fs)
			return effective, fs, err
		}
	}
	return 0, 0, errors.New("no Uid in its status")
}

// findsSocket refuses a program with another view of the file system, unless our socket is where it is for us.
func (e *Env) findsSocket(pid int, remedy string) error {
	mount, err1 := sameLink(pid, "ns/mnt")
	root, err2 := sameLink(pid, "root")
	if mount && root || e.Socket == "" {
		return nil
	}
	var ours, its unix.Stat_t
	err := errors.Join(err1, err2, unix.Stat(e.Socket, &ours), unix.Stat(fmt.Sprintf("/proc/%d/root%s", pid,
		e.Socket), &its))
	if err == nil && (ours.Dev != its.Dev || ours.Ino != its.Ino) {
		err = errors.New("another file has its name there")
	}
	if err != nil {
		return refusef(remedy,
			"process %d has a mount namespace or root directory of its own, "+
				"and the daemon's socket %s cannot be seen from there: %v",
			pid, e.Socket, err)
	}
	return nil
}

// precheckRefused is the error of criu's Precheck: nothing has been touched.
func precheckRefused(err error) error {
	var d *criu.DumpError
	if errors.As(err, &d) {
		return &Refused{Reason: fmt.Sprintf("process %d cannot be dumped: %s", d.PID, d.Reason), Remedy: d.Remedy}
	}
	return refusef("holdfast doctor says more", "CRIU does not work here: %v", err)
}
