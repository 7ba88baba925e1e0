package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// What the pages show of commands that need neither a daemon nor a program is what these commands say.
func TestDocsConsole(t *testing.T) {
	t.Chdir("../..")
	for _, page := range []string{"README.md", "docs/foresee.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for line, rest := range consoles(string(text)) {
			command, want, _ := strings.Cut(rest, "\n")
			args, lines, ok := examplesCommand(command)
			if !ok {
				continue
			}
			shown++
			var out, errs bytes.Buffer
			if code := run(args, strings.NewReader(""), &out, &errs); code != 0 {
				t.Errorf("%s:%d: status %d: %s", page, line, code, errs.String())
			}
			if got := firstLines(out.String(), lines); got != want {
				t.Errorf("%s:%d: %s\nsays\n%s\nnot\n%s", page, line, command, got, want)
			}
		}
		if shown == 0 {
			t.Errorf("%s shows no command on a file of examples", page)
		}
	}
}

// consoles yields each command of the console blocks of a page with the output below it, and its line.
func consoles(page string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		at, inside := 0, false
		var block string
		flush := func() bool { b := block; block = ""; return b == "" || yield(at, b) }
		number := 0
		for line := range strings.Lines(page) {
			number++
			if command, ok := strings.CutPrefix(line, "$ "); inside && ok {
				if !flush() {
					return
				}
				at, block = number, command
				continue
			}
			if strings.HasPrefix(line, "```") {
				inside = strings.HasPrefix(line, "```console")
				if !flush() {
					return
				}
			}
			if block != "" {
				block += line
			}
		}
	}
}

// examplesCommand takes "holdfast VERB examples/… [| head -n N]" apart; lines 0 is all of them.
func examplesCommand(command string) (args []string, lines int, ok bool) {
	command, head, _ := strings.Cut(command, " | head -n ")
	args = strings.Fields(command)
	if len(args) < 3 || args[0] != "holdfast" || !strings.HasPrefix(args[2], "examples/") {
		return nil, 0, false
	}
	lines, _ = strconv.Atoi(head)
	return args[1:], lines, true
}

func firstLines(s string, n int) string {
	if n == 0 {
		return s
	}
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[:min(n, len(lines))], "")
}
