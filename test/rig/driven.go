package rig

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Driven is a program that is driven by lines: it answers most of them with a line of numbers, of which the first is
// 0 if all went well.
type Driven struct {
	Cmd    *exec.Cmd
	Stderr *bytes.Buffer // what it has printed there, complete when it has ended
	t      testing.TB
	in     io.WriteCloser
	out    *bufio.Reader
}

// Drive starts a command with more environment. It is killed when the test ends, or after limit: that is reached only
// when something is broken.
func Drive(t testing.TB, cmd *exec.Cmd, limit time.Duration, env ...string) *Driven {
	t.Helper()
	p := &Driven{Cmd: cmd, Stderr: new(bytes.Buffer), t: t}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = p.Stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return p
}

// Send gives a command whose answer Line or Numbers takes; Do does both.
func (p *Driven) Send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.Stderr)
	}
}

// Line is the next line of the program.
func (p *Driven) Line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the program ended: %v\n%s", err, p.Stderr)
	}
	return strings.TrimSpace(s)
}

// Numbers is the next line of the program, which has nothing else.
func (p *Driven) Numbers() []uint64 {
	p.t.Helper()
	line := p.Line()
	var out []uint64
	for _, w := range strings.Fields(line) {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			p.t.Fatalf("no numbers: %s", line)
		}
		out = append(out, n)
	}
	return out
}

// Do does a command and returns the numbers of its answer.
func (p *Driven) Do(format string, args ...any) []uint64 {
	p.t.Helper()
	p.Send(format, args...)
	return p.Numbers()
}

// OK does a command that must succeed and returns the numbers after the result.
func (p *Driven) OK(format string, args ...any) []uint64 {
	p.t.Helper()
	out := p.Do(format, args...)
	if len(out) == 0 || out[0] != 0 {
		p.t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), out, p.Stderr)
	}
	return out[1:]
}

// Quit ends the program, which must succeed.
func (p *Driven) Quit() {
	p.t.Helper()
	p.Send("quit")
	if err := p.Cmd.Wait(); err != nil {
		p.t.Fatalf("%v\n%s", err, p.Stderr)
	}
}
