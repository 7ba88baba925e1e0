package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"holdfast/internal/client"
	"holdfast/internal/daemon/api"

	"golang.org/x/term"
)

// A meter shows on a terminal how far long work is: phase, part done, rate and time
// remaining. Where standard error is no terminal it shows nothing.
type meter struct {
	w     io.Writer // nil: show nothing
	now   func() time.Time
	phase string
	begun time.Time // of the phase
	first uint64    // done when the phase was first seen
	shown time.Time
	width int // of what stands on the line
}

const meterInterval = 100 * time.Millisecond

func (a *app) meter() *meter {
	m := &meter{now: time.Now}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		m.w = f
	}
	return m
}

func (m *meter) progress() client.Progress { return m.show }

// bytes shows the progress of one phase that counts bytes.
func (m *meter) bytes(phase string) func(done, total uint64) {
	return func(done, total uint64) { m.show(api.Progress{Phase: phase, Done: done, Total: total}) }
}

func (m *meter) show(p api.Progress) {
	if m.w == nil {
		return
	}
	now := m.now()
	if p.Phase != m.phase {
		m.phase, m.begun, m.first = p.Phase, now, p.Done
		m.shown = time.Time{}
	}
	if now.Sub(m.shown) < meterInterval && p.Done != p.Total {
		return
	}
	m.shown = now
	m.line(m.text(p, now.Sub(m.begun)))
}

func (m *meter) text(p api.Progress, d time.Duration) string {
	if p.Total == 0 && p.Done == 0 {
		return p.Phase
	}
	rate := 0.0
	if d > 0 {
		rate = float64(p.Done-min(m.first, p.Done)) / d.Seconds()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s ", p.Phase)
	if p.Total > 0 {
		const cells = 24
		done := min(p.Done, p.Total)
		full := int(float64(done) / float64(p.Total) * cells)
		fmt.Fprintf(&b, "[%s%s] %3d%% ", strings.Repeat("#", full), strings.Repeat(".", cells-full),
			int(float64(done)/float64(p.Total)*100))
		fmt.Fprintf(&b, "%s of %s", bytesText(p.Done), bytesText(p.Total))
	} else {
		b.WriteString(bytesText(p.Done))
	}
	if rate > 0 {
		fmt.Fprintf(&b, "  %s/s", bytesText(uint64(rate)))
		if p.Total > p.Done {
			left := time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second))
			fmt.Fprintf(&b, "  %s left", ageText(left.Round(time.Second)))
		}
	}
	return b.String()
}

func (m *meter) line(s string) {
	pad := max(0, m.width-len(s))
	fmt.Fprintf(m.w, "\r%s%s", s, strings.Repeat(" ", pad))
	m.width = len(s)
}

// clear takes the meter off the line.
func (m *meter) clear() {
	if m.w != nil && m.width > 0 {
		fmt.Fprintf(m.w, "\r%s\r", strings.Repeat(" ", m.width))
		m.width = 0
	}
}
