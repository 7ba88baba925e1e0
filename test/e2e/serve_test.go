package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A server gives for each request what a replay gives, and ends by a signal when all are answered.
func TestServe(t *testing.T) {
	s := newSite(t)
	file := s.path("infer.hfr")
	s.recordInfer(file)
	url, end := s.serve(file, "--reset")
	for seed := range 3 {
		x := s.input(fmt.Sprintf("x%d.bin", seed), seed)
		want := s.replayed(file, "--in", "x="+x)
		if got := serveAsked(t, url+"/v2/models/infer/infer", x); got != want {
			t.Errorf("input %d: served %x, replayed %x", seed, got, want)
		}
	}
	for path, want := range map[string]string{"/v2/models/infer": `"name":"x","datatype":"FP32","shape":[64]`,
		"/v2/health/ready": "", "/metrics": `holdfast_requests_total{model="infer"} 3`} {
		serveGot(t, url+path, want)
	}
	end()
	if out := s.fails(2, "serve", file, file); !strings.Contains(out, "two models are named infer") {
		t.Error(out)
	}
}

// serve starts a server; end ends it by a signal.
func (s *site) serve(args ...string) (url string, end func()) {
	s.t.Helper()
	cmd := s.command(append([]string{"serve", "--backend", "soft", "--listen", "127.0.0.1:0"}, args...)...)
	text, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(text)
	var said strings.Builder
	for url == "" && lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		url = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	}
	if url == "" {
		s.t.Fatal("it does not say where it listens: ", said.String())
	}
	go io.Copy(io.Discard, text)
	return url, func() {
		s.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("it ended with %v", err)
		}
	}
}

// serveGot looks at a page, which must have some text.
func serveGot(t *testing.T, url, want string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.Contains(string(b), want) {
		t.Errorf("%s: %d %.300s %v", url, res.StatusCode, b, err)
	}
}

// serveAsked sends a file as input x and returns both outputs, one behind the other.
func serveAsked(t *testing.T, url, file string) string {
	t.Helper()
	x, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[64],"datatype":"FP32",`+
		`"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, len(x))
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(append([]byte(head), x...)))
	if err != nil {
		t.Fatal(err)
	}
	const length = "Inference-Header-Content-Length"
	r.Header.Set(length, strconv.Itoa(len(head)))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	n, bad := strconv.Atoi(res.Header.Get(length))
	if err != nil || bad != nil || res.StatusCode != 200 || n > len(b) {
		t.Fatalf("%d %v %s", res.StatusCode, err, b)
	}
	return string(b[n:])
}
