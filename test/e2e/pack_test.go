package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// post sends a body and returns the status and the answer.
func post(t *testing.T, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Models that share a GPU answer as each does alone, come and go, and refuse what they cannot answer in time.
func TestServePack(t *testing.T) {
	s := newSite(t)
	file := s.path("infer.hfr")
	s.recordInfer(file)
	if err := os.Mkdir(s.path("shelf"), 0o777); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(s.path("shelf/later.hfr"), b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	inputs, want := []string{}, []string{}
	for seed := range 4 {
		x := s.input("x"+string(rune('0'+seed)), seed)
		inputs = append(inputs, x)
		want = append(want, s.replayed(file, "--in", "x="+x))
	}
	url, end := s.serve("--pack", file+"=instances:2,reset,slo:10m", "small="+file+"=slo:10m,weight:2,reset",
		"--repository", s.path("shelf"))
	defer end()
	ask := func(model string) {
		var all sync.WaitGroup
		for n := range 24 {
			all.Go(func() {
				if got := serveAsked(t, url+"/v2/models/"+model+"/infer", inputs[n%4]); got != want[n%4] {
					t.Errorf("%s, input %d: %x, alone %x", model, n%4, got, want[n%4])
				}
			})
		}
		all.Wait()
	}
	var all sync.WaitGroup
	for _, model := range []string{"infer", "small"} {
		all.Go(func() { ask(model) })
	}
	all.Wait()
	body, err := os.ReadFile(inputs[0])
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	text.WriteString(`{"inputs":[{"name":"x","datatype":"FP32","shape":[64],"parameters":{"binary_data_size":256}}]}`)
	n := text.Len()
	text.Write(body)
	length := []string{"Inference-Header-Content-Length", strconv.Itoa(n)}
	if status, answer := post(t, url+"/v2/models/infer/infer", text.String(),
		append(length, "Inference-Deadline", "1ns")...); status != 429 || !strings.Contains(answer, "deadline") {
		t.Errorf("a deadline that nobody makes: %d %s", status, answer)
	}
	for path, want := range map[string]string{"/pack/": "<html", "/pack/state": `"name":"small"`,
		"/pack/trace?last=1m": `"traceEvents"`, "/metrics": `holdfast_pack_`} {
		serveGot(t, url+path, want)
	}
	load := url + "/v2/repository/models/later/"
	if status, answer := post(t, load+"load", `{"parameters":{"slo":"1m","reset":""}}`); status != 200 {
		t.Fatalf("load: %d %s", status, answer)
	}
	ask("later")
	if status, answer := post(t, load+"unload", ""); status != 200 {
		t.Fatalf("unload: %d %s", status, answer)
	}
	if status, answer := post(t, url+"/v2/models/later/infer", text.String(), length...); status != 404 {
		t.Errorf("a model that was unloaded: %d %s", status, answer)
	}
	for _, args := range [][]string{{"--pack"}, {"--pack", file + "=slo:soon"}, {"--pack", file + "=weight:x"},
		{"--pack", file, file}, {"--config", "x", file}} {
		status := 2
		if len(args) == 3 && args[0] == "--pack" {
			status = 1
		}
		s.fails(status, append([]string{"serve", "--backend", "soft", "--listen", "127.0.0.1:0"}, args...)...)
	}
}
