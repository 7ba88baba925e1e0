package npy

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, a := range []*Array{
		{DType: "float32", Shape: []int{2, 3}, Data: make([]byte, 24)},
		{DType: "uint8", Shape: []int{5}, Data: []byte("abcde")},
		{DType: "int64", Shape: []int{}, Data: []byte("12345678")},
		{DType: "complex128", Shape: []int{0, 7}, Data: []byte{}},
	} {
		var b bytes.Buffer
		if err := Write(&b, a); err != nil {
			t.Fatal(err)
		}
		if (b.Len()-len(a.Data))%64 != 0 {
			t.Errorf("data begin at %d", b.Len()-len(a.Data))
		}
		got, err := Read(&b, 100)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v, %v, want %+v", got, err, a)
		}
	}
	if err := Write(&bytes.Buffer{}, &Array{DType: "float32", Shape: []int{2}, Data: make([]byte, 7)}); err == nil {
		t.Error("seven bytes were written as two numbers")
	}
}

// file is a .npy file as NumPy writes it, with that dictionary.
func file(dict string, data string) string {
	dict += strings.Repeat(" ", 117-len(dict)) + "\n"
	return magic + "\x01\x00" + "\x76\x00" + dict + data
}

func TestRead(t *testing.T) {
	good := file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "abcdefgh")
	if a, err := Read(strings.NewReader(good), 8); err != nil || a.DType != "float32" || !reflect.DeepEqual(a.Shape,
		[]int{1, 2}) {
		t.Errorf("%+v, %v", a, err)
	}
	for name, c := range map[string]struct{ b, want string }{
		"too large":    {good, "at most 7"},
		"other file":   {"hello, world", "no .npy"},
		"short header": {good[:50], "cut short"},
		"short data":   {good[:len(good)-1], "has 8 bytes"},
		"long data":    {good + "x", "has 8 bytes"},
		"objects":      {file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", ""), "not read"},
		"big endian":   {file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "abcd"), "not read"},
		"records": {file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"),
			"not of numbers"},
		"fortran order": {file("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", "abcdefgh"), "Fortran"},
		"hostile shape": {file("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", ""),
			"shape"},
		"hostile header":  {magic + "\x02\x00\xff\xff\xff\xff", "limit"},
		"another version": {magic + "\x09\x00\x00\x00\x00\x00", "not known"},
	} {
		limit := int64(7)
		if name != "too large" {
			limit = 1 << 40
		}
		if _, err := Read(strings.NewReader(c.b), limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", name, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "abcdefgh")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Read(bytes.NewReader(b), 1000)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, a); err != nil {
			t.Fatal(err)
		}
		if again, err := Read(&out, 1000); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%+v, %v, want %+v", again, err, a)
		}
	})
}

// A file that says it is NumPy's is one, or is refused.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(magic + "\x01\x00\x10\x00{'descr': '<f4'}"))
	f.Add([]byte(magic + "\x02\x00\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		head, dict, err := Header(bytes.NewReader(b))
		if err == nil && (!bytes.HasPrefix(b, head) || !bytes.HasSuffix(head, dict)) {
			t.Fatalf("a header of %d bytes that is not in the file", len(head))
		}
	})
}
