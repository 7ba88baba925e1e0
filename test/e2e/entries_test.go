package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// recordDecode records the two ranges of decode.c; what the program has computed is in the file "program".
func (s *site) recordDecode(file, mode string, args ...string) string {
	s.t.Helper()
	return s.ok(append(append([]string{"record", "-o", file, "--gpu=soft", "--range", "prefill", "--range", "decode",
		"--in", "prefill/tokens:uint32:6", "--out", "prefill/y", "--in", "decode/tokens:uint32:1", "--out", "decode/y"},
		args...), "--", built.decode, mode, "7", s.path("program"))...)
}

// result is what range number n of decode.c has brought to the host.
func (s *site) result(file string, n int) string { return s.read(file)[20*n:][:20] }

// tokens writes what decode.c has as input with a seed: six numbers, and then one for each file more.
func (s *site) tokens(seed uint32) (files []string) {
	s.t.Helper()
	for i, n := range []int{6, 1, 1, 1} {
		var b bytes.Buffer
		for range n {
			seed = seed*1664525 + 1013904223
			x := seed >> 8
			b.Write([]byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)})
		}
		name := s.path(fmt.Sprintf("tokens%d", i))
		if err := os.WriteFile(name, b.Bytes(), 0o666); err != nil {
			s.t.Fatal(err)
		}
		files = append(files, name)
	}
	return files
}

// Ranges become entries that go on from each other's memory, as they do in the program.
func TestEntries(t *testing.T) {
	s := newSite(t)
	for mode, nth := range map[string]string{"plain": "1", "warm": "2", "look": "1"} {
		file := s.path(mode + ".hfr")
		s.recordDecode(file, mode, "--nth", nth)
		s.ok("replay", file, "--backend", "soft", "--entry", "prefill", "--entry", "decode", "-n", "3", "--reset",
			"--same", "--out", "prefill/y="+s.path("first"), "--out", "decode/y="+s.path("second"))
		if s.read("first") != s.result("program", 0) || s.read("second") != s.result("program", 1) {
			t.Errorf("%s: replayed %x and %x\nthe program %x", mode, s.read("first"), s.read("second"),
				s.read("program"))
		}
		s.ok("verify", file)
	}
	file := s.path("plain.hfr")
	if text := s.ok("inspect", file); !strings.Contains(text, "entry prefill: 2 launches") ||
		!strings.Contains(text, "entry decode: 2 launches") {
		t.Error(text)
	}
	// Other input: what the program gives for that.
	const seed = 99
	s.ok("run", "--gpu=soft", "--", built.decode, "plain", fmt.Sprint(seed), s.path("other"))
	in := s.tokens(seed)
	s.ok("replay", file, "--backend", "soft", "--entry", "prefill", "--entry", "decode", "--in",
		"prefill/tokens="+in[0], "--in", "decode/tokens="+in[1], "--out", "decode/y="+s.path("second"))
	if s.read("second") != s.result("other", 1) {
		t.Errorf("other input: replayed %x\nthe program %x", s.read("second"), s.result("other", 1))
	}
	// An entry alone, and one more than once: it counts the numbers of what ran before.
	for want, script := range map[byte][]string{1: {"decode"}, 3: {"decode", "decode", "decode"}, 6: {"prefill"},
		13: {"decode", "prefill", "prefill"}} {
		args := []string{"replay", file, "--backend", "soft", "--out", script[len(script)-1] + "/y=" + s.path("y")}
		for _, e := range script {
			args = append(args, "--entry", e)
		}
		if s.ok(args...); s.read("y")[16] != want {
			t.Errorf("%v: %d numbers, want %d", script, s.read("y")[16], want)
		}
	}
	for _, c := range []struct {
		want   string
		status int
		args   []string
	}{
		{"which entry? There are prefill, decode", 1, nil},
		{`no entry "other"; there are prefill, decode`, 1, []string{"--entry", "other"}},
		{"several entries have one", 2, []string{"--entry", "prefill", "--entry", "decode", "--out", "y=f"}},
		{"there are [y]", 2, []string{"--entry", "decode", "--out", "prefill/y=f"}},
	} {
		text := s.fails(c.status, append([]string{"replay", file, "--backend", "soft"}, c.args...)...)
		if !strings.Contains(strings.ReplaceAll(text, "there are [y]", "there are [y]"), c.want) {
			t.Errorf("%v: %s", c.args, text)
		}
	}
	s.fails(2, "record", "-o", s.path("none"), "--gpu=soft", "--range", "a", "--range", "b", "--in", "x", "--", "true")
	s.fails(2, "record", "-o", s.path("none"), "--gpu=soft", "--range", "a", "--range", "a", "--", "true")
}

// What a replay could not do as the program did is refused.
func TestEntriesRefused(t *testing.T) {
	s := newSite(t)
	for mode, want := range map[string]string{
		"launch":  "kernel nothing comes after range \"prefill\" and before range \"decode\"",
		"copy":    "cuMemcpyHtoD comes after range",
		"set":     "cuMemsetD32 comes after range",
		"freed":   "(4096 bytes) was freed after range \"prefill\" had begun",
		"kept":    "(256 bytes) came after range \"prefill\" had begun",
		"nested":  "it begins before range \"prefill\" has ended",
		"swapped": "range \"decode\": no such range came after range \"prefill\"",
	} {
		text := s.fails(125, "record", "-o", s.path("m.hfr"), "--gpu=soft", "--range", "prefill", "--range", "decode",
			"--", built.decode, mode, "7", s.path("program"))
		if !strings.Contains(text, want) {
			t.Errorf("%s: want something about %q:\n%s", mode, want, text)
		}
	}
	s.onlyFiles("program")
}

// Entries are models that share memory.
func TestServeEntries(t *testing.T) {
	s := newSite(t)
	file := s.path("gpt.hfr")
	s.recordDecode(file, "plain")
	url, end := s.serve(file)
	const seed = 5
	s.ok("run", "--gpu=soft", "--", built.decode, "plain", fmt.Sprint(seed), s.path("program"))
	for i, in := range s.tokens(seed) {
		model, n := "gpt.decode", 1
		if i == 0 {
			model, n = "gpt.prefill", 6
		}
		x := s.read(in[strings.LastIndex(in, "/")+1:])
		var list []string
		for k := range n {
			v := uint32(x[4*k]) | uint32(x[4*k+1])<<8 | uint32(x[4*k+2])<<16 | uint32(x[4*k+3])<<24
			list = append(list, fmt.Sprint(v))
		}
		body := fmt.Sprintf(`{"inputs":[{"name":"tokens","shape":[%d],"datatype":"UINT32","data":[%s]}]}`, n,
			strings.Join(list, ","))
		res, err := http.Post(url+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		want := strings.ReplaceAll(fmt.Sprint([]byte(s.result("program", i))), " ", ",")
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(b), `"data":`+want) {
			t.Errorf("request %d: %d %s %v, want %s", i, res.StatusCode, b, err, want)
		}
	}
	end()
	url, end = s.serve("one="+file, "--entry", "decode")
	for model, want := range map[string]int{"one.decode": 200, "one.prefill": 404, "one": 404} {
		res, err := http.Get(url + "/v2/models/" + model)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", model, res.StatusCode, want)
		}
	}
	end()
	s.fails(1, "serve", file, "--entry", "other", "--backend", "soft")
}

// decoded has a model decode a number, and says how many there are then.
func (s *site) decoded(url string) byte {
	s.t.Helper()
	body := `{"inputs":[{"name":"tokens","shape":[1],"datatype":"UINT32","data":[3]}]}`
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Outputs []struct{ Data []int }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || len(answer.Outputs) != 1 ||
		len(answer.Outputs[0].Data) != 20 {
		s.t.Fatalf("%d %+v %v", res.StatusCode, answer, err)
	}
	return byte(answer.Outputs[0].Data[16])
}

// A program that does the same with its memory elsewhere has a recording that can be put anywhere.
func TestRelocatable(t *testing.T) {
	s := newSite(t)
	file := s.path("m.hfr")
	s.recordDecode(file, "random", "--relocatable")
	if text := s.ok("inspect", file); !strings.Contains(text, "addresses: relocatable; words that are some: 14 in "+
		"parameters of launches, 2 in memory, 1 in variables, 0 in recorded inputs") ||
		!strings.Contains(text, "8 bytes of memory held something else in the second run") {
		t.Error(text)
	}
	s.ok("verify", file)
	replay := func(args ...string) []string {
		return append([]string{"replay", file, "--backend", "soft", "--entry", "prefill", "--entry", "decode", "--out",
			"prefill/y=" + s.path("first"), "--out", "decode/y=" + s.path("second")}, args...)
	}
	for _, base := range []string{"0x802000000000", "0x800000200000", "0x8010dfe00000"} {
		s.ok("verify", file, "--base", base)
		s.ok(replay("--base", base, "-n", "2", "--reset", "--same")...)
		if s.read("first") != s.result("program", 0) || s.read("second") != s.result("program", 1) {
			t.Errorf("at %s: replayed %x and %x\nthe program %x", base, s.read("first"), s.read("second"),
				s.read("program"))
		}
	}
	for base, status := range map[string]int{"0x802000001000": 1, "0": 1, "here": 2} {
		s.fails(status, replay("--base", base)...)
		s.fails(status, "verify", file, "--base", base)
	}
	// Servers put it there twice; each has a state of its own.
	url, end := s.serve("a="+file, "b="+file)
	for i, want := range map[string]byte{"a": 1, "b": 1} {
		if got := s.decoded(url + "/v2/models/" + i + ".decode/infer"); got != want {
			t.Errorf("model %s has %d numbers, want %d", i, got, want)
		}
	}
	if got := s.decoded(url + "/v2/models/a.decode/infer"); got != 2 {
		t.Errorf("model a has %d numbers, want 2", got)
	}
	end()
	// What cannot be moved is pinned, and says why.
	for mode, want := range map[string]string{
		"shifted":   "it may have an address",
		"unaligned": "it may have an address",
		"behind":    "it may have an address",
		"parameter": "entry prefill, work 3, kernel nothing: byte 0 of its parameters is 0x",
		"longer":    "entry prefill, work 3: ",
	} {
		s.recordDecode(file, mode, "--relocatable")
		if text := s.ok("inspect", file); !strings.Contains(text, "pinned to its addresses: ") ||
			!strings.Contains(text, want) {
			t.Errorf("%s: want something about %q:\n%s", mode, want, text)
		}
		if text := s.fails(1, replay("--base", "0x802000000000")...); !strings.Contains(text, "--relocatable") {
			t.Error(text)
		}
		if s.ok(replay()...); s.read("first") != s.result("program", 0) {
			t.Errorf("%s: replayed %x", mode, s.read("first"))
		}
	}
	s.onlyFiles("m.hfr", "program", "first", "second")
}
