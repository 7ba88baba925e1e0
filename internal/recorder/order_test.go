package recorder

import (
	"fmt"
	"reflect"
	"testing"
)

// What comes after what, for streams a and b, the legacy stream L and the per-thread default streams p (thread 1) and
// q (thread 2).
func TestOrder(t *testing.T) {
	streams := map[byte]stream{'a': {handle: 16}, 'b': {handle: 32}, 'c': {handle: 48}, 'L': {handle: legacyStream},
		'p': streamOf(perThreadStream, 1), 'q': streamOf(perThreadStream, 2)}
	for _, c := range []struct {
		name, does string // a: work on a; ra1: a records event 1; wb1: b waits for it; s: the host has waited
		want       [][]int
	}{
		{"one stream is a chain", "a a a", [][]int{nil, {0}, {1}}},
		{"two streams are not", "a b a b", [][]int{nil, nil, {0}, {1}}},
		{"an event", "a ra1 b wb1 b b", [][]int{nil, nil, {0, 1}, {2}}},
		{"an event stands for what was there", "a ra1 a wb1 b", [][]int{nil, {0}, {0}}},
		{"an event that is recorded again", "a ra1 wb1 a ra1 b wb1 b", [][]int{nil, {0}, {0}, {1, 2}}},
		{"an event of before the range", "a wb9 b", [][]int{nil, {0}}},
		{"fork and join", "a ra1 wb1 b rb2 a wa2 a", [][]int{nil, {0}, {0}, {1, 2}}},
		{"through a stream without work", "a ra1 wb1 rb2 wc2 c", [][]int{nil, {0}}},
		{"the legacy stream comes after all, all after it", "a b L a b c", [][]int{nil, nil, {0, 1}, {2}, {2}, {2}}},
		{"so does a wait of the legacy stream", "a ra1 b wL1 c", [][]int{nil, nil, {0, 1}}},
		{"and an event there", "a rL1 b wc1 c", [][]int{nil, {0}, {0}}},
		{"so does what the host has waited for", "a b s c a b", [][]int{nil, nil, {0, 1}, {0, 1}, {0, 1}}},
		{"only the first one after it", "a s b b c", [][]int{nil, {0}, {1}, {0}}},
		{"per-thread streams are two", "p q p", [][]int{nil, nil, {0}}},
		{"a wait and a barrier", "a ra1 b s wb1 b", [][]int{nil, nil, {0, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrder()
			var got [][]int
			for _, word := range splitWords(c.does) {
				switch word[0] {
				case 'r':
					o.recorded(uint64(word[2]), streams[word[1]])
				case 'w':
					o.waits(streams[word[1]], uint64(word[2]))
				case 's':
					o.everything()
				default:
					at := o.begin(streams[word[0]])
					w := o.add(at)
					o.end(streams[word[0]], at, w)
					after := o.after[w]
					if len(after) == 0 {
						after = nil
					}
					got = append(got, after)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %v, want %v", c.does, got, c.want)
			}
		})
	}
}

func splitWords(s string) (out []string) {
	for len(s) > 0 {
		var w string
		fmt.Sscan(s, &w)
		out = append(out, w)
		s = s[min(len(s), len(w)+1):]
	}
	return out
}
