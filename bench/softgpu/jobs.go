package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

var errDiffer = errors.New("some pairs differ")

// A comparison is the run of the command: it hands units to jobs and collects what they say.
type comparison struct {
	o        options
	args     []string
	progress io.Writer
	start    time.Time

	mu       sync.Mutex
	units    []unit
	next     int
	done     int // units
	pairs    int
	bad      int
	results  []Result
	device   ready
	check    selfCheck
	shown    time.Time
	restarts int
}

// A selfCheck is whether a bit that was flipped in one result was found.
type selfCheck struct {
	Caught bool   `json:"caught"`
	Detail string `json:"detail"`
}

func (c *comparison) run(ctx context.Context) error {
	var err error
	if c.units, err = c.o.plan(); err != nil {
		return err
	}
	if len(c.units) == 0 {
		return errors.New("nothing to compare: no family or name matches")
	}
	if err := c.selfCheck(ctx); err != nil {
		return err
	}
	if c.o.limit > 0 {
		// What runs when the limit passes may go on for a moment, and is then given up: it counts as not run.
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, c.start.Add(c.o.limit+grace))
		defer stop()
	}
	var wg sync.WaitGroup
	errs := make(chan error, c.o.jobs)
	for range max(1, min(c.o.jobs, len(c.units))) {
		wg.Go(func() { errs <- c.job(ctx) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	c.show(true)
	return nil
}

// grace is how long after the limit a unit that was begun may run.
const grace = 10 * time.Second

// take gives the next unit, -1 if there is none.
func (c *comparison) take(ctx context.Context) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || c.next == len(c.units) || c.o.limit > 0 && time.Since(c.start) > c.o.limit {
		return -1
	}
	c.next++
	return c.next - 1
}

// job runs processes, one after the other, until there are no units left. A unit in which a process ends is
// continued by the next one, behind the pair that ended it.
func (c *comparison) job(ctx context.Context) error {
	var p *process
	defer func() {
		if p != nil {
			p.end()
		}
	}()
	for {
		n := c.take(ctx)
		if n < 0 {
			return nil
		}
		t := task{Unit: n}
		for deaths := 0; ; {
			var err error
			if p == nil {
				if p, err = c.begin(ctx); err != nil {
					return err
				}
			}
			last, done, err := c.serve(ctx, p, &t)
			if done {
				break
			}
			p.end()
			p = nil
			if ctx.Err() != nil {
				return nil
			}
			c.mu.Lock()
			c.restarts++
			c.mu.Unlock()
			if last == "" || deaths == 200 {
				c.add(Result{Unit: n, ID: c.units[n].describe(), Family: c.units[n].family(), Status: failed,
					Detail: fmt.Sprintf("the job ended: %v", err)}, "")
				break
			}
			deaths++
			t.Skip = append(t.Skip, last)
		}
		c.mu.Lock()
		c.done++
		c.mu.Unlock()
		c.show(false)
	}
}

// serve gives a process a unit and takes its messages. It returns the pair that the process was working on when it
// ended.
func (c *comparison) serve(ctx context.Context, p *process, t *task) (last string, done bool, err error) {
	if err := p.in.Encode(t); err != nil {
		return "", false, err
	}
	reported := true
	for {
		m, err := p.message(ctx, c.o.patience)
		switch {
		case ctx.Err() != nil:
			return "", false, ctx.Err()
		case err != nil:
			if !reported {
				c.add(Result{Unit: t.Unit, ID: last, Family: c.units[t.Unit].family(), Status: failed,
					Detail: err.Error()}, last)
			}
			return last, false, err
		case m.Start != "":
			last, reported = m.Start, false
		case m.Result != nil:
			c.add(*m.Result, last)
			reported = true
			t.Skip = append(t.Skip, last)
		case m.Broken != "":
			if !reported {
				c.add(Result{Unit: t.Unit, ID: last, Family: c.units[t.Unit].family(), Status: failed,
					Detail: m.Broken}, last)
			}
			return last, false, errors.New(m.Broken)
		case m.Done:
			return "", true, nil
		}
	}
}

// mostShown bounds the lines of progress about pairs that differ; the results have all.
const mostShown = 100

func (c *comparison) add(r Result, _ string) {
	c.mu.Lock()
	c.results = append(c.results, r)
	c.pairs++
	bad := r.Status == differs || r.Status == failed
	if bad {
		c.bad++
	}
	show := bad && c.bad <= mostShown
	c.mu.Unlock()
	if show {
		fmt.Fprintf(c.progress, "%s: %s, input %d: %s %s\n", r.Status, r.ID, r.Round, r.Detail, r.difference())
	}
	c.show(false)
}

// show writes a line of progress, once a second.
func (c *comparison) show(last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !last && time.Since(c.shown) < time.Second {
		return
	}
	c.shown = time.Now()
	fmt.Fprintf(c.progress, "%4.0f s  unit %d of %d  %d pairs  %d bad\n", time.Since(c.start).Seconds(), c.done,
		len(c.units), c.pairs, c.bad)
}

// selfCheck runs a unit with a bit flipped, which must be found.
func (c *comparison) selfCheck(ctx context.Context) error {
	p, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer p.end()
	c.device = p.ready
	for n, u := range c.units {
		if u.app != nil {
			continue
		}
		if err := p.in.Encode(task{Unit: n, Flip: true}); err != nil {
			return err
		}
		found, missed := 0, 0
		for {
			m, err := p.message(ctx, c.o.patience)
			if err != nil {
				return err
			}
			if m.Broken != "" {
				return errors.New(m.Broken)
			}
			if m.Done {
				break
			}
			if m.Result != nil {
				switch m.Result.Status {
				case differs:
					found++
				case equal, within:
					missed++
				}
			}
		}
		if found+missed == 0 {
			continue // nothing ran
		}
		c.check = selfCheck{Caught: missed == 0,
			Detail: fmt.Sprintf("one bit of what the GPU computed was flipped in %d pairs of %s: found in %d",
				found+missed, u.describe(), found)}
		return nil
	}
	c.check = selfCheck{Caught: true, Detail: "not made: there are no probes in this run"}
	return nil
}

// A process is a running job.
type process struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	in       *json.Encoder
	messages chan message
	ready    ready
	errors   bytes.Buffer
}

func (c *comparison) begin(ctx context.Context) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, exe, append([]string{"-worker"}, c.args...)...),
		messages: make(chan message, 64)}
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.in = json.NewEncoder(p.stdin)
	isolate(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.messages)
		dec := json.NewDecoder(bufio.NewReaderSize(out, 1<<20))
		for {
			var m message
			if err := dec.Decode(&m); err != nil {
				return
			}
			p.messages <- m
		}
	}()
	m, err := p.message(ctx, c.o.patience)
	if err != nil || m.Ready == nil {
		p.end()
		return nil, fmt.Errorf("start a job: %w", err)
	}
	p.ready = *m.Ready
	return p, nil
}

// message waits for the next one.
func (p *process) message(ctx context.Context, patience time.Duration) (message, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-p.messages:
		if !ok {
			_ = p.cmd.Process.Kill() // it may have ended
			err := p.cmd.Wait()
			return m, fmt.Errorf("the job ended: %v: %s", err, bytes.TrimSpace(p.errors.Bytes()))
		}
		return m, nil
	case <-timer.C:
		return message{}, fmt.Errorf("no answer within %v", patience)
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

// end ends the process, whatever it does.
func (p *process) end() {
	p.stdin.Close()
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended
		for range p.messages {
		}
		_ = p.cmd.Wait()
	}
}
