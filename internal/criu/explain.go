package criu

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// refusal is one thing that CRIU says in its log and what it means for the user. Texts after CRIU 4.1.1 and 4.2.1.
type refusal struct {
	pattern string // of an error line
	reason  string // $1 … from the pattern; {fd}: the descriptor dumped last; {tcp}, {unix}: looked up; see special
	remedy  string
}

var refusals = []refusal{
	{`No space left on device`, "no space left on the disk that takes the image",
		"free some, or give another directory"},
	{`Connected TCP socket`, "{tcp}", "close it before, or leave TCP connections out (--tcp-close: they are closed " +
		"after a restore)"},
	{`In-flight connection|in-flight connection`, "{fd}: a connection that is not accepted yet", "try again"},
	{`External socket is used|Runaway socket|Ext stream not supported|Can't dump half of stream unix connection`,
		"{unix}",
		"close the connection before, or start the program without it"},
	{`Can't get 1:(?:16|34) opt`, "{fd}: this CRIU cannot dump sockets on this kernel", "use CRIU 4.2 or newer"},
	{`SysVIPC shmem map @([0-9a-f]+)`, "System V shared memory at 0x$1",
		"the program must use POSIX shared memory or mmap"},
	{`Can't create link remap for (.*?)\. `, "{fd}: $1 was deleted or renamed while open, and has another name still",
		"close it before"},
	{`Can't dump ghost file (.*) of (\d+) size`, "{fd}: the deleted file $1 is too large ($2 bytes)",
		"close it before"},
	{`Can't lookup mount=\S+ for fd=(\d+) path=(\S+)`, "descriptor $1: $2 was opened in another mount namespace",
		"open it again inside, or start the program without it"},
	{`tun: `, "{fd}: a network tunnel", "close it before"},
	{`Can't handle non-regular mapping on (\d+)'s map ([0-9a-f]+)`, "{map $1 $2}", ""},
	{`Can't open (\d+)'s mapfile link ([0-9a-f]+)`, "{map $1 $2}", ""},
	{`Can't dump file (\d+) of that type`, "{refused $1}", ""},
	{`pidfd: pidfd pid \d+ is not a part of process tree`, "{refused}", ""},
	{`send_fds failed`, "{refused anon_inode:[io_uring]}", ""}, // which the kernel does not pass over a socket
	{`Unknown socket collected \(family (\d+)\)`, "{fd}: a socket of family $1, which cannot be dumped",
		"close it before"},
	{`Unknown eventpoll|anon_inode|Unsupported file type|unsupported file`, "{refused}", ""},
	{`Unable to detach|ptrace.*Operation not permitted|Can't seize|Unable to attach`, "$0",
		"is the process traced, or is ptrace forbidden here?"},
	{`File /?(.*) has bad size (\d+) \(expect (\d+)\)`, "/$1 has changed since the dump ($2 bytes, was $3)",
		"put the file back as it was"},
	{`File /?(.*) has bad mode`, "/$1 has other access rights than when it was dumped", "put them back"},
	{`Can't open file /?(.+) on restore`, "/$1 cannot be opened", "put the file back"},
	{`Can't open (/\S+):`, "$0", "put the file back"},
	{`Can't fork for (\d+): File exists`, "process id $1 is in use", "end that process first"},
	{`Current (?:sid|gid) (\d+) intersects with`,
		"the session or process group $1 of the caller is one that the program needs",
		"restore from another session (setsid)"},
}

// noise are error lines that do not say what went wrong.
var noise = regexp.MustCompile(`RLIMIT_NOFILE|Dumping FAILED|Restoring FAILED|` +
	`Dump (?:files|mappings|core|mm).*failed with|exited unexpectedly|killed by signal 9|Can't wait for`)

var (
	errorLine  = regexp.MustCompile(`Error \([^)]*\): (.*)`)
	fdinfoLine = regexp.MustCompile(`\) (\d+) fdinfo (\d+): pos:`)
)

// explain turns the log of a CRIU that failed into one sentence that names the object, and what to do about it. pids is
// the tree that was dumped, and still runs; nil after a restore.
func explain(log string, pids []int, runErr error) (reason, remedy string) {
	if errors.Is(runErr, context.Canceled) || errors.Is(runErr, context.DeadlineExceeded) {
		return "given up: " + runErr.Error(), ""
	}
	errs, last := logErrors(log)
	for _, r := range refusals {
		re := regexp.MustCompile(r.pattern)
		for _, e := range errs {
			m := re.FindStringSubmatchIndex(e.text)
			if m == nil {
				continue
			}
			s := string(re.ExpandString(nil, strings.ReplaceAll(r.reason, "$0", "${0}"), e.text, m))
			if reason, remedy, ok := special(s, e.at, pids); ok {
				return reason, remedy
			}
			return lookUp(s, e.at, pids), r.remedy
		}
	}
	if len(errs) == 0 {
		reason = runErr.Error()
	} else {
		last, reason = errs[0].at, errs[0].text
		if len(errs) > 1 {
			reason += "; " + errs[1].text
		}
	}
	if last != nil {
		reason += " (at " + last.named() + ")"
	}
	return reason, ""
}

// A logError is an error line, and the descriptor at which CRIU was; nil: at none.
type logError struct {
	text string
	at   *descriptor
}

// logErrors lists the errors of a log that say something, and where it ends.
func logErrors(log string) (errs []logError, at *descriptor) {
	for line := range strings.Lines(log) {
		if m := fdinfoLine.FindStringSubmatch(line); m != nil {
			pid, _ := strconv.Atoi(m[1])
			fd, _ := strconv.Atoi(m[2])
			d := find(pid, fd)
			at = &d
		}
		if m := errorLine.FindStringSubmatch(line); m != nil && !noise.MatchString(m[1]) {
			errs = append(errs, logError{strings.TrimSpace(m[1]), at})
		}
	}
	return errs, at
}

// special expands the reasons that come with a remedy of their own: {map PID ADDRESS}, {refused} for the descriptor
// at which CRIU was, {refused FD} for that one of the same process, {refused LINK…} for those of the tree.
func special(s string, at *descriptor, pids []int) (reason, remedy string, ok bool) {
	verb, arg, _ := strings.Cut(strings.TrimSuffix(s, "}"), " ")
	switch verb {
	case "{map":
		pid, addr, _ := strings.Cut(arg, " ")
		n, _ := strconv.Atoi(pid)
		reason, remedy = mapping(n, addr)
		return reason, remedy, true
	case "{refused":
		fd, err := strconv.Atoi(arg)
		switch {
		case err != nil && arg != "":
			at = nil
		case err == nil && at != nil && at.fd != fd:
			d := find(at.pid, fd)
			at = &d
		case err == nil && at == nil && len(pids) == 1:
			d := find(pids[0], fd)
			at = &d
		}
		if err == nil {
			arg = ""
		}
		reason, remedy = refused(at, pids, arg)
		if reason == "" {
			reason, remedy = "a descriptor of a kind that cannot be dumped", "see CRIU's log"
		}
		return reason, remedy, true
	}
	return "", "", false
}

// lookUp fills in what the log does not say.
func lookUp(s string, at *descriptor, pids []int) string {
	last := "a descriptor"
	if at != nil {
		last = at.named()
	}
	s = strings.ReplaceAll(s, "{fd}", last)
	if strings.Contains(s, "{tcp}") {
		s = strings.ReplaceAll(s, "{tcp}", orElse(tcpConnections(pids), "TCP connection: "+last))
	}
	if strings.Contains(s, "{unix}") {
		s = strings.ReplaceAll(s, "{unix}", orElse(outsideUnix(pids),
			"a unix socket that is connected to another process"))
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// tcpConnections names the established TCP connections of the tree.
func tcpConnections(pids []int) string {
	var out []string
	for _, p := range pids {
		conns := map[uint32]string{}
		for _, table := range []string{"net/tcp", "net/tcp6"} {
			b, _ := os.ReadFile(procPath(p, table))
			for line := range strings.Lines(string(b)) {
				f := strings.Fields(line)
				if len(f) < 10 || f[3] == "0A" { // TCP_LISTEN; the header has no hexadecimal state
					continue
				}
				if ino, err := strconv.ParseUint(f[9], 10, 32); err == nil && ino != 0 {
					conns[uint32(ino)] = hexAddr(f[1]) + " to " + hexAddr(f[2])
				}
			}
		}
		ds, _ := descriptors(p)
		for _, d := range ds {
			if ino, ok := d.inode("socket"); ok && conns[ino] != "" {
				out = append(out, fmt.Sprintf("%s: TCP connection %s", d, conns[ino]))
			}
		}
	}
	return abbreviate(out)
}

// hexAddr writes an address of /proc/net/tcp as one is used to.
func hexAddr(s string) string {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 || len(b) == 0 {
		return s
	}
	if len(b) == 4 {
		return fmt.Sprintf("%d.%d.%d.%d:%d", b[3], b[2], b[1], b[0], p)
	}
	var g []string
	for i := 0; i < len(b); i += 4 { // 32-bit words in host order
		g = append(g, fmt.Sprintf("%02x%02x:%02x%02x", b[i+3], b[i+2], b[i+1], b[i]))
	}
	return fmt.Sprintf("[%s]:%d", strings.Join(g, ":"), p)
}

// outsideUnix names the unix sockets of the tree whose other end is outside of it.
func outsideUnix(pids []int) string {
	peers, err := unixPeers()
	if err != nil {
		return ""
	}
	inside := map[uint32]bool{}
	var all []descriptor
	for _, p := range pids {
		ds, _ := descriptors(p)
		for _, d := range ds {
			if ino, ok := d.inode("socket"); ok {
				inside[ino] = true
				all = append(all, d)
			}
		}
	}
	paths := map[uint32]string{}
	if len(pids) > 0 {
		b, _ := os.ReadFile(procPath(pids[0], "net/unix"))
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 8 {
				if ino, err := strconv.ParseUint(f[6], 10, 32); err == nil {
					paths[uint32(ino)] = f[7]
				}
			}
		}
	}
	var out []string
	for _, d := range all {
		ino, _ := d.inode("socket")
		peer := peers[ino]
		if peer == 0 || inside[peer] || d.fd <= 2 {
			continue
		}
		s := d.String() + ": unix socket connected to a process outside"
		if paths[peer] != "" {
			s += " (" + paths[peer] + ")"
		}
		out = append(out, s)
	}
	return abbreviate(out)
}

func abbreviate(s []string) string {
	if len(s) > 4 {
		return strings.Join(s[:4], ", ") + fmt.Sprintf(" and %d more", len(s)-4)
	}
	return strings.Join(s, ", ")
}

// reasonText is the text of the error of a dump or a restore.
func reasonText(what string, pid int, reason, remedy string) string {
	s := fmt.Sprintf("%s process %d: %s", what, pid, reason)
	if remedy != "" {
		s += ": " + remedy
	}
	return s
}

// formatError prints such an error; with %+v also how CRIU ended, and its log.
func formatError(f fmt.State, verb rune, e error, log string) {
	io.WriteString(f, e.Error())
	if verb == 'v' && f.Flag('+') {
		fmt.Fprintf(f, " (%v)\n%s", errors.Unwrap(e), log)
	}
}
