package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/internal/daemon/api"
)

// A table prints columns: text to the left, and those named in right to the right.
type table struct {
	head  []string
	right map[int]bool
	rows  [][]string
}

func newTable(head ...string) *table {
	t := &table{head: head, right: make(map[int]bool)}
	for i, h := range t.head {
		if r, ok := strings.CutPrefix(h, ">"); ok { // ">SIZE": to the right
			t.head[i], t.right[i] = r, true
		}
	}
	return t
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	t.rows = append(t.rows, cells)
}

// plain keeps what a program says of itself (its name, its command line, the text of an error) from steering the
// terminal. Ends of lines stay.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, s)
}

func (t *table) print(w io.Writer) error {
	width := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range all {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.right[i] {
				c = pad + c
			} else {
				c += pad
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// printSteps prints where the time of an operation went, in order. A step in which the
// program stood still has its share of the stall beside it; steps may overlap. A step whose
// name is indented is a part of the next one that is not, and is shown below it.
func printSteps(w io.Writer, steps []api.Step, stallMS float64) error {
	head := []string{"STEP", ">TIME"}
	if stallMS > 0 {
		head = append(head, ">OF THE STALL")
	}
	t := newTable(head...)
	row := func(s api.Step) {
		cells := []string{s.Name, msText(s.MS)}
		if stallMS > 0 {
			share := ""
			if s.Stall {
				share = fmt.Sprintf("%.1f %%", s.MS/stallMS*100)
			}
			cells = append(cells, share)
		}
		t.add(cells...)
	}
	var parts []api.Step
	for _, s := range steps {
		if strings.HasPrefix(s.Name, " ") {
			parts = append(parts, s)
			continue
		}
		row(s)
		for _, p := range parts {
			row(p)
		}
		parts = nil
	}
	for _, p := range parts {
		row(p)
	}
	return t.print(w)
}
