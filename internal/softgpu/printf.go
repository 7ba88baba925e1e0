package softgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"holdfast/internal/softgpu/number"
)

// nativeFunc is a function that the device runtime provides; nil = none.
func nativeFunc(name string) func(w *warp, in *inst, site *callSite, mask uint32) {
	switch name {
	case "vprintf":
		return vprintf
	case "__assertfail":
		return assertFail
	case "malloc", "__nv_aligned_device_malloc":
		return deviceMalloc
	case "free":
		return deviceFree
	}
	return nil
}

// deviceRuntime names functions of CUDA's device runtime that are known but not served.
var deviceRuntime = map[string]string{
	"cudaGetParameterBufferV2": "launches from the device", "cudaLaunchDeviceV2": "launches from the device",
	"cudaGetParameterBuffer": "launches from the device", "cudaLaunchDevice": "launches from the device",
	"cudaDeviceSynchronize": "launches from the device", "cudaStreamCreateWithFlags": "launches from the device",
}

// maxString bounds a string that printf or assert reads.
const maxString = 64 << 10

// argument reads parameter k of a native call.
func (w *warp) argument(in *inst, site *callSite, k, lane int) uint64 {
	if k >= len(site.in) {
		w.fault(FaultCall, in, lane, 0, "too few arguments")
	}
	var x uint64
	for i, b := range w.operandBytes(&site.in[k], lane) {
		if i < 8 {
			x |= uint64(b) << (8 * i)
		}
	}
	return x
}

// result writes the result of a native call.
func (w *warp) result(site *callSite, lane int, x uint64) {
	for k := range site.out {
		op := &site.out[k]
		n := 8
		if op.parts == nil {
			n = min(len(w.operandBytes(op, lane)), 8)
		}
		w.setOperand(op, lane, binary.LittleEndian.AppendUint64(nil, x)[:n])
	}
}

func (w *warp) cString(in *inst, lane int, addr uint64) string {
	var b strings.Builder
	for i := range uint64(maxString) {
		w.observe(lane, addr+i, 1, Read)
		c := *(*byte)(w.pointer(in, memGlobal, lane, addr+i, 1, pageReadOnly))
		if c == 0 {
			break
		}
		b.WriteByte(c)
	}
	return b.String()
}

// readInt reads n bytes, aligned or not.
func (w *warp) readInt(in *inst, lane int, addr, n uint64) uint64 {
	var x uint64
	w.observe(lane, addr, n, Read)
	for i := range n {
		x |= uint64(*(*byte)(w.pointer(in, memGlobal, lane, addr+i, 1, pageReadOnly))) << (8 * i)
	}
	return x
}

// vprintf(format, arguments): the second points to the variable arguments, each at its natural alignment.
func vprintf(w *warp, in *inst, site *callSite, mask uint32) {
	l := w.block.launch
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m)
		format := w.cString(in, lane, w.argument(in, site, 0, lane))
		text, count := w.format(in, lane, format, w.argument(in, site, 1, lane))
		if l.cfg.Printf != nil {
			l.printMu.Lock()
			_, err := l.cfg.Printf.Write([]byte(text))
			l.printMu.Unlock()
			if err != nil {
				count = -1
			}
		}
		w.result(site, lane, uint64(uint32(int32(count))))
	}
}

// format interprets a C format; it returns the text and the number of conversions.
func (w *warp) format(in *inst, lane int, format string, args uint64) (string, int) {
	var b strings.Builder
	count := 0
	next := func(n uint64) uint64 {
		args = alignUp(args, n)
		x := w.readInt(in, lane, args, n)
		args += n
		return x
	}
	for len(format) > 0 {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			b.WriteString(format)
			break
		}
		b.WriteString(format[:i])
		format = format[i+1:]
		spec := convSpec{prec: -1}
		format = spec.parse(format, func() int { return int(int32(next(4))) })
		if spec.verb == 0 {
			break
		}
		if spec.verb == '%' {
			b.WriteByte('%')
			continue
		}
		count++
		switch spec.verb {
		case 's':
			p := next(8)
			s := "(null)"
			if p != 0 {
				s = w.cString(in, lane, p)
			}
			b.WriteString(spec.text(s))
		case 'f', 'F', 'e', 'E', 'g', 'G', 'a', 'A':
			b.WriteString(spec.float(math.Float64frombits(next(8))))
		case 'p':
			b.WriteString(spec.pad(fmt.Sprintf("%#x", next(8)), false))
		case 'c':
			b.WriteString(spec.pad(string([]byte{byte(next(4))}), false))
		case 'd', 'i', 'u', 'o', 'x', 'X':
			n := uint64(4)
			if spec.long {
				n = 8
			}
			b.WriteString(spec.integer(next(n), uint(8*n)))
		default:
			b.WriteByte('%')
			b.WriteByte(spec.verb)
		}
	}
	return b.String(), count
}

// A convSpec is one conversion of a C format.
type convSpec struct {
	minus, plus, space, alt, zero bool
	width, prec                   int
	size                          string
	long                          bool
	verb                          byte
}

const maxWidth = 4096

func (s *convSpec) parse(f string, star func() int) string {
	for len(f) > 0 && strings.IndexByte("-+ #0", f[0]) >= 0 {
		switch f[0] {
		case '-':
			s.minus = true
		case '+':
			s.plus = true
		case ' ':
			s.space = true
		case '#':
			s.alt = true
		case '0':
			s.zero = true
		}
		f = f[1:]
	}
	number := func() int {
		if len(f) > 0 && f[0] == '*' {
			f = f[1:]
			return star()
		}
		n := 0
		for len(f) > 0 && f[0] >= '0' && f[0] <= '9' {
			n = min(n*10+int(f[0]-'0'), maxWidth)
			f = f[1:]
		}
		return n
	}
	s.width = number()
	if s.width < 0 {
		s.minus, s.width = true, -s.width
	}
	s.width = min(s.width, maxWidth)
	if len(f) > 0 && f[0] == '.' {
		f = f[1:]
		s.prec = min(number(), maxWidth)
	}
	for len(f) > 0 && strings.IndexByte("hljzt", f[0]) >= 0 {
		s.size += f[:1]
		f = f[1:]
	}
	s.long = strings.ContainsAny(s.size, "ljzt")
	if len(f) == 0 {
		return f
	}
	s.verb = f[0]
	return f[1:]
}

// pad fills up to the width; zeros go behind the sign and the 0x.
func (s *convSpec) pad(x string, number bool) string {
	n := s.width - len(x)
	if n <= 0 {
		return x
	}
	switch {
	case s.minus:
		return x + strings.Repeat(" ", n)
	case s.zero && number:
		k := 0
		if len(x) > 0 && strings.IndexByte("+- ", x[0]) >= 0 {
			k = 1
		}
		if len(x) > k+1 && x[k] == '0' && (x[k+1] == 'x' || x[k+1] == 'X') {
			k += 2
		}
		return x[:k] + strings.Repeat("0", n) + x[k:]
	}
	return strings.Repeat(" ", n) + x
}

func (s *convSpec) text(x string) string {
	if s.prec >= 0 && s.prec < len(x) {
		x = x[:s.prec]
	}
	return s.pad(x, false)
}

func (s *convSpec) sign(neg bool) string {
	switch {
	case neg:
		return "-"
	case s.plus:
		return "+"
	case s.space:
		return " "
	}
	return ""
}

func (s *convSpec) integer(x uint64, n uint) string {
	if strings.HasPrefix(s.size, "hh") {
		n = 8
	} else if s.size == "h" {
		n = 16
	}
	sign, digits := "", ""
	switch s.verb {
	case 'd', 'i':
		v := number.SignExtend(x, n)
		sign = s.sign(v < 0)
		u := uint64(v)
		if v < 0 {
			u = -u
		}
		digits = strconv.FormatUint(u, 10)
	case 'u':
		digits = strconv.FormatUint(number.ZeroExtend(x, n), 10)
	case 'o':
		digits = strconv.FormatUint(number.ZeroExtend(x, n), 8)
		if s.alt && digits[0] != '0' {
			digits = "0" + digits
		}
	default:
		v := number.ZeroExtend(x, n)
		digits = strconv.FormatUint(v, 16)
		if s.alt && v != 0 {
			sign = "0x"
		}
		if s.verb == 'X' {
			digits, sign = strings.ToUpper(digits), strings.ToUpper(sign)
		}
	}
	number := true
	if s.prec >= 0 {
		number = false // a precision switches the zero flag off
		if s.prec == 0 && digits == "0" {
			digits = ""
		}
		digits = strings.Repeat("0", max(0, s.prec-len(digits))) + digits
	}
	return s.pad(sign+digits, number)
}

func (s *convSpec) float(x float64) string {
	sign := s.sign(math.Signbit(x))
	upper := s.verb >= 'A' && s.verb <= 'Z'
	x = math.Abs(x)
	var t string
	number := true
	switch {
	case x != x:
		t, number = "nan", false
	case math.IsInf(x, 0):
		t, number = "inf", false
	default:
		t = s.digits(x)
	}
	if upper {
		t = strings.ToUpper(t)
	}
	return s.pad(sign+t, number)
}

func (s *convSpec) digits(x float64) string {
	prec := s.prec
	switch s.verb | 0x20 {
	case 'a':
		t := strconv.FormatFloat(x, 'x', prec, 64)
		// C writes the exponent without leading zeros.
		if i := strings.IndexByte(t, 'p'); i >= 0 {
			e := strings.TrimLeft(t[i+2:], "0")
			if e == "" {
				e = "0"
			}
			t = t[:i+2] + e
		}
		return t
	case 'g':
		if prec < 0 {
			prec = 6
		}
		prec = max(prec, 1)
		exp := 0
		if x != 0 {
			e := strconv.FormatFloat(x, 'e', prec-1, 64)
			exp, _ = strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
		}
		var t, tail string
		if exp < -4 || exp >= prec {
			t = strconv.FormatFloat(x, 'e', prec-1, 64)
			i := strings.IndexByte(t, 'e')
			t, tail = t[:i], t[i:]
		} else {
			t = strconv.FormatFloat(x, 'f', prec-1-exp, 64)
		}
		if !s.alt && strings.Contains(t, ".") {
			t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
		}
		return t + tail
	}
	if prec < 0 {
		prec = 6
	}
	t := strconv.FormatFloat(x, s.verb|0x20, prec, 64)
	if s.alt && prec == 0 {
		t += "."
	}
	return t
}

// assertFail is __assertfail(message, file, line, function, size of a character).
func assertFail(w *warp, in *inst, site *callSite, mask uint32) {
	lane := bits.TrailingZeros32(mask)
	str := func(k int) string {
		p := w.argument(in, site, k, lane)
		if p == 0 {
			return "?"
		}
		return w.cString(in, lane, p)
	}
	w.fault(FaultAssert, in, lane, 0, fmt.Sprintf("%s:%d: %s: assertion `%s` failed", str(1),
		uint32(w.argument(in, site, 2, lane)), str(3), str(0)))
}
