package main

import (
	"fmt"
	"time"

	"holdfast/internal/engine"
)

// measure prints what each word adds to the time of those before it.
func measure(sides [2]*side, runs int) error {
	var before [2]time.Duration
	fmt.Println("word  raw us  libcuda us  what")
	for w := range sides[0].words {
		var took [2]time.Duration
		for i, s := range sides {
			var err error
			if took[i], err = s.least(s.words[:w+1], runs); err != nil {
				return fmt.Errorf("word %d: %w", w, err)
			}
		}
		fmt.Printf("%4d %7.2f %11.2f  %s\n", w, micros(took[0]-before[0]), micros(took[1]-before[1]),
			brief(sides[0].words[w]))
		before = took
	}
	fmt.Printf(" all %7.2f %11.2f\n", micros(before[0]), micros(before[1]))
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// least is the shortest of some runs of words, each waited for.
func (s *side) least(words []engine.Word, runs int) (least time.Duration, err error) {
	p, err := s.b.Prepare(words)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	for range runs {
		begun := time.Now()
		if err := p.Run(20 * time.Second); err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		if took := time.Since(begun); least == 0 || took < least {
			least = took
		}
	}
	return least, p.Close()
}

// brief names what a word does.
func brief(word engine.Word) (text string) {
	for _, op := range word.Ops {
		switch {
		case op.Launch != nil:
			l := op.Launch
			text += fmt.Sprintf("%.60s %v %v %d; ", l.Kernel.Name(), l.Grid, l.Block, l.Shared)
		case op.Copy != nil:
			text += fmt.Sprintf("copy %d x %d; ", op.Copy.Height, op.Copy.Width)
		default:
			text += fmt.Sprintf("set %d x %d; ", op.Set.Height, op.Set.Width)
		}
	}
	return text
}
