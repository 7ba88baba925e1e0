package ptx

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tokens cuts a source into tokens that can be joined with blanks and line ends.
func tokens(src string) []string {
	s := scanner{src: src, line: 1}
	var list []string
	for {
		s.next()
		if s.kind == tEOF {
			return list
		}
		text := s.text()
		if s.kind == tDwarf {
			text += "\n"
		}
		list = append(list, text)
	}
}

// TestMutated drops, doubles, swaps and exchanges tokens of the corpus: what is
// still accepted must survive the round trip. PTX_MUTATIONS sets how many sources
// are made.
func TestMutated(t *testing.T) {
	rounds := 1000
	if n, err := strconv.Atoi(os.Getenv("PTX_MUTATIONS")); err == nil {
		rounds = n
	}
	var sources [][]string
	var pool []string
	all := corpus(t)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list := tokens(all[name])
		pool = append(pool, list...)
		// Long sources are cut between functions, so that one error spoils less.
		for len(list) > 0 {
			n, depth := len(list), 0
			for i, tok := range list {
				if tok == "{" {
					depth++
				} else if tok == "}" {
					depth--
				}
				if i > 200 && depth == 0 && tok == "}" && (i+1 == len(list) || list[i+1][0] == '.') {
					n = i + 1
					break
				}
			}
			if list[0] != ".version" {
				list = append([]string{".version", "8.0", ".target", "sm_90"}, list...)
				n += 4
			}
			sources = append(sources, list[:n])
			list = list[n:]
		}
	}
	accepted := 0
	r := rand.New(rand.NewPCG(uint64(rounds), 7))
	for range rounds {
		list := slices.Clone(sources[r.IntN(len(sources))])
		for range 1 + r.IntN(3) {
			i, j := 4+r.IntN(max(1, len(list)-4)), r.IntN(len(pool))
			i = min(i, len(list)-1)
			switch r.IntN(8) {
			case 0:
				list = slices.Delete(list, i, i+1)
			case 1:
				list = slices.Insert(list, i, list[i])
			case 2:
				k := min(i+1, len(list)-1)
				list[i], list[k] = list[k], list[i]
			case 3:
				list[i] = pool[j]
			case 4:
				list = slices.Insert(list, i, pool[j])
			default: // another of its kind
				for range 50 {
					if class[pool[j][0]] == class[list[i][0]] && len(pool[j]) > 1 {
						list[i] = pool[j]
						break
					}
					j = r.IntN(len(pool))
				}
			}
		}
		sep := []string{" ", "\n", "\t/* x */ ", " // y\n"}[r.IntN(4)]
		src := strings.Join(list, sep)
		m, err := Parse("mutated", []byte(src))
		if err != nil {
			continue
		}
		accepted++
		Check(m)
		if err := roundTrip(m); err != nil {
			t.Fatalf("%v\nsource:\n%s", err, src)
		}
	}
	if accepted < rounds/20 {
		t.Errorf("only %d of %d mutated sources were accepted", accepted, rounds)
	}
	t.Logf("%d of %d accepted", accepted, rounds)
}
