package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/client"
)

// A recording that a trusted key has signed runs as without a key; any other is refused by every verb, and no software
// GPU is started for it.
func TestSigned(t *testing.T) {
	s := newSite(t)
	file := s.path("m.hfr")
	s.recordInfer(file)
	s.ok("sign", "--new-key", "a.key")
	s.ok("sign", "--new-key", "b.key")
	s.ok("sign", file, "--key", "a.key")
	key := s.path("a.key.pub")
	s.ok("verify", file, "--trust-key", key)
	if got := s.replayed(file, "--trust-key", s.path("b.key.pub"), "--trust-key", key); got != s.read("recorded") {
		t.Errorf("replayed %x\nrecorded %x", got, s.read("recorded"))
	}
	good, sig := []byte(s.read("m.hfr")), s.read("m.hfr.sig")
	put := func(name string, b []byte) string {
		if err := os.WriteFile(s.path(name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		return s.path(name)
	}
	changed := put("changed.hfr", resealed(good, func(m string) string {
		return strings.Replace(m, `"warnings":[`, `"warnings":["changed"`+comma(m), 1)
	}))
	put("changed.hfr.sig", []byte(sig))
	damaged := bytes.Clone(good)
	damaged[100] ^= 1 // of the first chunk
	put("damaged.hfr.sig", []byte(sig))
	s.ok("inspect", changed)
	s.ok("softgpu", "--stop")
	refused := func(want string, args ...string) {
		t.Helper()
		if text := s.fails(1, args...); !strings.Contains(text, want) {
			t.Errorf("%q: want %q:\n%s", args, want, text)
		}
	}
	for _, verb := range [][]string{{"replay", "--backend", "soft"}, {"serve", "--backend", "soft"}, {"verify"},
		{"link", "--gpu", "h200", "-o", s.path("m.hfx")}} {
		refused("signed with another key", append(verb, file, "--trust-key", s.path("b.key.pub"))...)
		refused("not of this recording", append(verb, changed, "--trust-key", key)...)
		refused("no signature", append(verb, put("bare.hfr", good), "--trust-key", key)...)
	}
	refused("not of this recording", "replay", changed, "--trust-key", key, "--signature", s.path("m.hfr.sig"),
		"--backend", "soft")
	refused("malformed recording: chunk 0", "verify", put("damaged.hfr", damaged), "--trust-key", key)
	running := func() bool {
		_, err := os.Stat(filepath.Join(s.dir, client.SoftSocket))
		return err == nil
	}
	if running() {
		t.Error("a software GPU was started")
	}
	s.replayed(changed)
	if !running() {
		t.Error("no software GPU was started: the test looks at the wrong place")
	}
}

// comma is what stands behind a first warning.
func comma(manifest string) string {
	if strings.Contains(manifest, `"warnings":[]`) {
		return ""
	}
	return ","
}

// A server that shares its GPU takes models that are signed, those too that come later.
func TestServeSigned(t *testing.T) {
	s := newSite(t)
	file := s.path("infer.hfr")
	s.recordInfer(file)
	s.ok("sign", "--new-key", "a.key")
	s.ok("sign", file, "--key", "a.key")
	if err := os.Mkdir(s.path("shelf"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{"bare.hfr": s.read("infer.hfr"), "good.hfr": s.read("infer.hfr"),
		"good.hfr.sig": s.read("infer.hfr.sig")} {
		if err := os.WriteFile(s.path("shelf/"+name), []byte(b), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if text := s.fails(1, "serve", "--pack", "--backend", "soft", s.path("shelf/bare.hfr"), "--trust-key",
		s.path("a.key.pub")); !strings.Contains(text, "no signature") {
		t.Error(text)
	}
	url, end := s.serve("--pack", file, "--repository", s.path("shelf"), "--trust-key", s.path("a.key.pub"))
	defer end()
	x := s.input("x.bin", 1)
	if got, want := serveAsked(t, url+"/v2/models/infer/infer", x), s.replayed(file, "--in", "x="+x); got != want {
		t.Errorf("served %x, replayed %x", got, want)
	}
	if status, text := post(t, url+"/v2/repository/models/good/load", "{}"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if status, text := post(t, url+"/v2/repository/models/bare/load", "{}"); status == http.StatusOK ||
		!strings.Contains(text, "no signature") {
		t.Errorf("%d %s", status, text)
	}
}
