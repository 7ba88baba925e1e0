package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"holdfast/internal/softgpu/probe"
)

// The outcomes of a pair.
const (
	equal       = "equal"        // bit for bit
	within      = "within bound" // of an approximate or matrix instruction
	differs     = "differs"
	refusedGPU  = "refused by the driver"
	refusedSoft = "not supported by the software GPU"
	failed      = "failed"  // a launch ended with an error, or the job ended
	skipped     = "skipped" // not run, with the reason
)

// A Result is what became of one pair of a kernel and an input.
type Result struct {
	Unit   int     `json:"unit"`
	ID     string  `json:"id"` // the spelling, or application, launch and kernel
	Family string  `json:"family"`
	Round  int     `json:"round"`
	Status string  `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Worst  float64 `json:"worst,omitempty"` // largest difference as a part of the bound
	Bytes  int     `json:"bytes,omitempty"` // that differ beyond the bound
	// NaNOnly says that all differences are between NaNs: their payloads or signs.
	NaNOnly bool   `json:"nan_only,omitempty"`
	At      int    `json:"at,omitempty"`     // offset in the output of the first difference
	Thread  int    `json:"thread,omitempty"` // that wrote it
	Soft    string `json:"soft,omitempty"`   // its surroundings, in hexadecimal
	GPU     string `json:"gpu,omitempty"`
	Input   string `json:"input,omitempty"` // what the thread read
	Seed    uint64 `json:"seed,omitempty"`
	PTX     string `json:"ptx,omitempty"` // the module; the report has the name of a file instead
}

// number is the value of an element, infinities as the next power of two behind the largest number.
func number(elem string, bits uint64) (v float64, nan bool) {
	switch elem {
	case "f64":
		v = math.Float64frombits(bits)
		if math.IsInf(v, 0) {
			return math.Copysign(math.MaxFloat64, v), false
		}
	case "f32":
		v = float64(math.Float32frombits(uint32(bits)))
		if math.IsInf(v, 0) {
			v = math.Copysign(0x1p128, v)
		}
	case "bf16":
		return number("f32", bits<<16)
	case "f16":
		exp, frac := bits>>10&31, bits&0x3ff
		switch {
		case exp == 31 && frac != 0:
			return 0, true
		case exp == 0:
			v = math.Ldexp(float64(frac), -24)
		default:
			v = math.Ldexp(float64(frac|0x400), int(exp)-25)
		}
		if bits&0x8000 != 0 {
			v = -v
		}
	}
	return v, v != v
}

var elemBytes = map[string]int{"f16": 2, "bf16": 2, "f32": 4, "f64": 8}

func element(b []byte) uint64 {
	switch len(b) {
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// compareProbe compares the outputs of a probe. magnitudes is the output of the software GPU for the
// magnitudes of the inputs, for rules that need it.
func compareProbe(p *probe.Probe, round int, soft, gpu, magnitudes []byte) Result {
	r := Result{ID: p.ID(), Family: p.Family, Round: round, Status: equal, NaNOnly: true}
	rule := p.Rule
	if round < rule.ExactRounds {
		rule.Elem = ""
	}
	note := func(at, n int) {
		if r.Status != differs {
			r.Status, r.At = differs, at
			lo, hi := max(0, at&^7), min(len(soft), at&^7+16)
			r.Soft, r.GPU = hex.EncodeToString(soft[lo:hi]), hex.EncodeToString(gpu[lo:hi])
			if p.OutStride > 0 {
				r.Thread = at / p.OutStride
			}
		}
		r.Bytes += n
	}
	chunk := p.OutStride // of which the first part is compared with a bound
	bounded := rule.Elems * elemBytes[rule.Elem]
	if rule.Warp {
		chunk, bounded = 32*chunk, 32*bounded
	}
	for lo := 0; lo < len(soft); lo += chunk {
		hi := min(lo+chunk, len(soft))
		if bytes.Equal(soft[lo:hi], gpu[lo:hi]) {
			continue
		}
		exact := lo
		if rule.Elem != "" && hi-lo == chunk {
			exact = lo + bounded
			n := elemBytes[rule.Elem]
			for at := lo; at < exact; at += n {
				if bytes.Equal(soft[at:at+n], gpu[at:at+n]) {
					continue
				}
				part, ok := r.bound(rule, soft[at:at+n], gpu[at:at+n], magnitudes, at)
				if ok {
					r.Worst = max(r.Worst, part)
					if r.Status == equal {
						r.Status = within
					}
					continue
				}
				note(at, n)
				r.NaNOnly = false
			}
		}
		r.exactly(p.Result, rule.AnyNaN, soft, gpu, exact, hi, note)
	}
	if r.Status != differs {
		r.NaNOnly = false
	}
	return r
}

// exactly notes the bytes that differ, and whether they belong to NaNs of a format. With anyNaN those agree.
func (r *Result) exactly(format string, anyNaN bool, soft, gpu []byte, lo, hi int, note func(at, n int)) {
	n := max(1, elemBytes[format])
	for at := lo; at < hi; at += n {
		end := min(at+n, hi)
		if bytes.Equal(soft[at:end], gpu[at:end]) {
			continue
		}
		if anyNaN && end-at == n {
			_, a := number(format, element(soft[at:end]))
			_, b := number(format, element(gpu[at:end]))
			if a && b {
				if r.Status == equal {
					r.Status = within
				}
				continue
			}
		}
		note(at, end-at)
		if n == 1 || end-at < n {
			r.NaNOnly = false
			continue
		}
		_, a := number(format, element(soft[at:end]))
		_, b := number(format, element(gpu[at:end]))
		r.NaNOnly = r.NaNOnly && a && b
	}
}

// bound reports whether two unlike elements are as near to each other as the rule wants, and how near.
func (r *Result) bound(rule probe.Rule, soft, gpu, magnitudes []byte, at int) (part float64, ok bool) {
	n := len(soft)
	s, sNaN := number(rule.Elem, element(soft))
	g, gNaN := number(rule.Elem, element(gpu))
	if sNaN || gNaN {
		return 0, sNaN && gNaN
	}
	limit := max(rule.Rel*max(math.Abs(s), math.Abs(g)), rule.Abs)
	if rule.Scale > 0 {
		m, mNaN := number(rule.Elem, element(magnitudes[at:at+n]))
		if mNaN {
			return 0, false // an infinity or NaN went in: the results must be the same
		}
		if overflow := 65536.0; rule.Elem == "f16" && m >= overflow && max(math.Abs(s), math.Abs(g)) >= overflow {
			// whether a partial sum overflows depends on the order of the additions, which PTX leaves open
			return 0, true
		}
		limit = rule.Scale * m
	}
	diff := math.Abs(s - g)
	if diff > limit || limit == 0 {
		return 0, diff == 0
	}
	return diff / limit, true
}

// compareBytes compares two images that hold no numbers known to be approximate.
func compareBytes(soft, gpu []byte) (count, first int) {
	first = -1
	const block = 4096
	for lo := 0; lo < len(soft); lo += block {
		hi := min(lo+block, len(soft))
		if bytes.Equal(soft[lo:hi], gpu[lo:hi]) {
			continue
		}
		for i := lo; i < hi; i++ {
			if soft[i] != gpu[i] {
				if first < 0 {
					first = i
				}
				count++
			}
		}
	}
	return count, first
}

func around(b []byte, at int) string {
	lo := at &^ 7
	return fmt.Sprintf("%#x: %x", lo, b[lo:min(len(b), lo+16)])
}
