package param

import (
	"encoding/hex"
	"testing"
)

// Expected bits are those of IEEE 754 binary16.
func TestFloat16(t *testing.T) {
	for _, c := range []struct {
		in   float64
		want uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {0.1, 0x2e66}, {65504, 0x7bff}, {65519.9, 0x7bff}, {65520, 0x7c00},
		{-1e9, 0xfc00},
		{0x1p-14, 0x0400}, {0x1p-24, 1}, {0x1p-25, 0}, {0x1.8p-24, 2}, {0x1.ff8p-15, 0x3ff}, {0x1.ffap-15, 0x3ff},
		{0x1.ffcp-15, 0x400},
		// ties to even, and a carry into the exponent
		{1 + 0x1p-11, 0x3c00}, {1 + 0x3p-11, 0x3c02}, {2 - 0x1p-12, 0x4000},
	} {
		if got := Float16(c.in); got != c.want {
			t.Errorf("Float16(%v) = %#04x, want %#04x", c.in, got, c.want)
		}
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"u8", "255", "ff"}, {"s16", "-2", "feff"}, {"u32", "0x10", "10000000"}, {"s64", "-1", "ffffffffffffffff"},
		{"ptr", "0x1000", "0010000000000000"},
		{"f16", "1", "003c"}, {"f32", "-2", "000000c0"}, {"f64", "1", "000000000000f03f"}, {"f32", "inf", "0000807f"},
	} {
		b, err := Encode(c.kind, c.text)
		if got := hex.EncodeToString(b); err != nil || got != c.want {
			t.Errorf("Encode(%s, %s) = %s, %v, want %s", c.kind, c.text, got, err, c.want)
		}
	}
	for _, c := range [][2]string{{"u8", "256"}, {"s8", "128"}, {"u32", "-1"}, {"f8", "1"}, {"u128", "1"}, {"", ""},
		{"u32", "1.5"}, {"f32", "x"}, {"pred", "1"}} {
		if b, err := Encode(c[0], c[1]); err == nil {
			t.Errorf("Encode(%s, %s) = %x, want an error", c[0], c[1], b)
		}
	}
}
