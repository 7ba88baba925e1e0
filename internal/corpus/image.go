package corpus

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// An image is what ranges of memory hold at some time.
type image struct {
	ranges []Range // sorted, disjoint
	data   [][]byte
}

func (m *Machine) save(ranges []Range) (*image, error) {
	im := &image{ranges: ranges}
	for _, r := range ranges {
		b, err := m.space.Bytes(r.Lo, r.Len())
		if err != nil {
			return nil, err
		}
		im.data = append(im.data, bytes.Clone(b))
	}
	return im, nil
}

// fillInitial writes what r holds before the launch to out, which has its length.
func (p *prepared) fillInitial(r Range, out []byte) {
	clear(out)
	for _, x := range p.memory {
		from := Range{x.Lo, x.Lo + uint64(len(x.begin))}
		if lo, hi := max(from.Lo, r.Lo), min(from.Hi, r.Hi); lo < hi {
			copy(out[lo-r.Lo:hi-r.Lo], x.begin[lo-x.Lo:])
		}
	}
}

// reset makes memory hold what it did before the launch.
func (j *judge) reset() error {
	if j.lost {
		p, err := j.prepare(j.p.app, j.p.l)
		if err != nil {
			return err
		}
		j.p, j.lost = p, false
		return nil
	}
	for _, r := range j.dirty {
		b, err := j.space.Bytes(r.Lo, r.Len())
		if err != nil {
			return err
		}
		j.p.fillInitial(r, b)
	}
	return j.space.SetHeap(j.p.heap.Lo, j.p.heap.Len())
}

// same reports whether ranges hold what they did after a clean run: what was not saved then has not changed in it.
func (j *judge) same(ranges []Range) (bool, error) {
	saved := j.after
	for _, r := range ranges {
		now, err := j.space.Bytes(r.Lo, r.Len())
		if err != nil {
			return false, err
		}
		at := r.Lo
		i, _ := slices.BinarySearchFunc(saved.ranges, r.Lo, func(s Range, lo uint64) int {
			if s.Hi <= lo {
				return -1
			}
			return 1
		})
		for ; at < r.Hi; i++ {
			next := Range{r.Hi, r.Hi}
			if i < len(saved.ranges) && saved.ranges[i].Lo < r.Hi {
				next = saved.ranges[i]
			}
			if at < next.Lo {
				if same, err := j.unchanged(Range{at, next.Lo}); !same {
					return false, err
				}
				at = next.Lo
			}
			if hi := min(next.Hi, r.Hi); at < hi {
				if !bytes.Equal(now[at-r.Lo:hi-r.Lo], saved.data[i][at-next.Lo:hi-next.Lo]) {
					return false, nil
				}
				at = hi
			}
		}
	}
	return true, nil
}

// unchanged reports whether r holds what it did before the launch.
func (j *judge) unchanged(r Range) (bool, error) {
	at := r.Lo
	for _, x := range j.p.memory {
		lo, hi := max(x.Lo, at), min(x.Lo+uint64(len(x.begin)), r.Hi)
		if lo >= hi {
			continue
		}
		if same, err := j.zero(Range{at, lo}); !same {
			return false, err
		}
		now, err := j.space.Bytes(lo, hi-lo)
		if err != nil || !bytes.Equal(now, x.begin[lo-x.Lo:hi-x.Lo]) {
			return false, err
		}
		at = hi
	}
	return j.zero(Range{at, r.Hi})
}

// zero reports whether r holds zeros. What was never touched is not looked at: the system would make pages of it.
func (m *Machine) zero(r Range) (bool, error) {
	for r.Lo < r.Hi {
		from, err := unix.Seek(m.fd, int64(r.Lo-base), unix.SEEK_DATA)
		if err == unix.ENXIO || err == nil && uint64(from) >= r.Hi-base {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("device memory: %w", err)
		}
		to, err := unix.Seek(m.fd, from, unix.SEEK_HOLE)
		if err != nil {
			return false, fmt.Errorf("device memory: %w", err)
		}
		lo, hi := base+uint64(from), min(base+uint64(to), r.Hi)
		b, err := m.space.Bytes(lo, hi-lo)
		if err != nil || b[0] != 0 || !bytes.Equal(b[1:], b[:len(b)-1]) {
			return false, err
		}
		r.Lo = hi
	}
	return true, nil
}

// union sorts ranges and joins those that overlap or touch.
func union(lists ...[]Range) []Range {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else if r.Lo < r.Hi {
			out = append(out, r)
		}
	}
	return out
}

// intersect is what two sorted lists of disjoint ranges have in common.
func intersect(a, b []Range) []Range {
	var out []Range
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].Lo, b[0].Lo), min(a[0].Hi, b[0].Hi); lo < hi {
			out = append(out, Range{lo, hi})
		}
		if a[0].Hi < b[0].Hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// split cuts r where one of the sorted, disjoint ranges of list begins or ends.
func split(r Range, list []Range) []Range {
	var out []Range
	for _, x := range list {
		for _, at := range [...]uint64{x.Lo, x.Hi} {
			if r.Lo < at && at < r.Hi {
				out = append(out, Range{r.Lo, at})
				r.Lo = at
			}
		}
	}
	return append(out, r)
}
