package daemon

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// patient is a listener whose Accept fails only when it is closed. Any other error (mostly no free descriptor or
// memory) may pass, and a daemon that stopped accepting would still hold everything with nobody able to reach it.
type patient struct {
	net.Listener
	log *slog.Logger
}

func (l patient) Accept() (net.Conn, error) {
	const first, longest = time.Millisecond, 500 * time.Millisecond
	said := ""
	for wait := first; ; wait = min(2*wait, longest) {
		c, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		if err.Error() != said {
			said = err.Error()
			l.log.Error("nobody can be let in just now", "socket", l.Addr().String(), "err", err)
		}
		time.Sleep(wait)
	}
}
