package daemon

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/daemon/api"
)

// A client that names another process gets its own streams, not that one's.
func TestStreamsOfThePeer(t *testing.T) {
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	victim := exec.Command("cat")
	victim.Stdout = secret
	stdin, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer victim.Wait()
	defer stdin.Close()

	d := &Daemon{}
	srv := d.server(t.Context())
	result := make(chan string, 1)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files, _, err := d.streams(callerOf(r.Context()), api.RestoreRequest{Dir: "/x", ClientPID: victim.Process.Pid})
		if err != nil {
			result <- err.Error()
			return
		}
		name, _ := os.Readlink("/proc/self/fd/" + fdText(files[1]))
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
		result <- name
	})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	defer srv.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink("/proc/self/fd/1")
	if err != nil {
		t.Fatal(err)
	}
	if got := <-result; got != own || strings.Contains(got, "secret") {
		t.Errorf("descriptor 1 is %s, want our own, %s", got, own)
	}
}

func fdText(f *os.File) string {
	if f == nil {
		return "none"
	}
	return strconv.Itoa(int(f.Fd()))
}
