package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"holdfast/internal/param"
)

// A Pointer is an address in a buffer.
type Pointer struct {
	Buf    string `json:"buf"`
	Offset int64  `json:"offset"`
}

// A Patch is a pointer inside an argument.
type Patch struct {
	At int `json:"at"`
	Pointer
}

// An Arg is one argument: its bytes, and the pointers to put into them.
type Arg struct {
	Type    string // buf, bytes, or a type of numbers
	Bytes   []byte
	Patches []Patch
}

// An Init says what a buffer holds in the beginning: zeros unless it says something else.
type Init struct {
	Kind     string // zero, f16, bf16, f32, f64, u8, u32, index, iota, data, pointers
	Wide     bool   // index, iota: s64
	Below    uint64 // index
	Data     []byte
	Pointers []*Pointer
}

// strict decodes into v and refuses names that v does not have.
func strict(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// one is the only key of an object besides those in also.
func one(fields map[string]json.RawMessage, also ...string) (string, error) {
	found := ""
	for k := range fields {
		known := false
		for _, a := range also {
			known = known || a == k
		}
		if known {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%s and %s at once", min(found, k), max(found, k))
		}
		found = k
	}
	if found == "" {
		return "", errors.New("says nothing")
	}
	return found, nil
}

// UnmarshalJSON decodes {"buf":…}, {TYPE:number} or {"bytes":…}.
func (a *Arg) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if err := a.decode(text, fields); err != nil {
		return fmt.Errorf("argument %s: %w", short(text), err)
	}
	return nil
}

func (a *Arg) decode(text []byte, fields map[string]json.RawMessage) error {
	kind, err := one(fields, "offset", "patch")
	if err != nil {
		return err
	}
	a.Type = kind
	switch kind {
	case "buf":
		var p Pointer
		if err := strict(text, &p); err != nil {
			return err
		}
		a.Bytes, a.Patches = make([]byte, 8), []Patch{{0, p}}
		return nil
	case "bytes":
		var x struct {
			Bytes string  `json:"bytes"`
			Patch []Patch `json:"patch"`
		}
		if err := strict(text, &x); err != nil {
			return err
		}
		if a.Bytes, err = hex.DecodeString(x.Bytes); err != nil {
			return err
		}
		for _, p := range x.Patch {
			if p.At < 0 || p.At > len(a.Bytes)-8 {
				return fmt.Errorf("a pointer at %d of %d bytes", p.At, len(a.Bytes))
			}
		}
		a.Patches = x.Patch
		return nil
	}
	if len(fields) != 1 {
		return errors.New("offset and patch are for buf and bytes")
	}
	a.Bytes, err = number(nil, kind, fields[kind])
	return err
}

func short(text []byte) string {
	if len(text) > 60 {
		return string(text[:60]) + "…"
	}
	return string(text)
}

// number appends a number of a type, little endian.
func number(to []byte, kind string, text json.RawMessage) ([]byte, error) {
	s := string(text)
	if q, err := strconv.Unquote(s); err == nil && strings.HasPrefix(kind, "f") {
		s = q // "nan", "inf": JSON has no number for them
	}
	b, err := param.Encode(kind, s)
	return append(to, b...), err
}

// UnmarshalJSON decodes a word or an object.
func (in *Init) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil {
		switch word {
		case "zero", "f16", "bf16", "f32", "f64", "u8", "u32":
			in.Kind = word
			return nil
		}
		return fmt.Errorf("init %q is not known", word)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if err := in.decode(fields); err != nil {
		return fmt.Errorf("init %s: %w", short(text), err)
	}
	return nil
}

func (in *Init) decode(fields map[string]json.RawMessage) error {
	kind, err := one(fields, "below")
	if err != nil {
		return err
	}
	below, has := fields["below"]
	if has != (kind == "index") {
		return errors.New("below is for index, and index needs it")
	}
	var word string
	switch kind {
	case "index", "iota":
		if err := json.Unmarshal(fields[kind], &word); err != nil || word != "s32" && word != "s64" {
			return fmt.Errorf("%s of %s: want s32 or s64", kind, fields[kind])
		}
		in.Kind, in.Wide = kind, word == "s64"
		if has {
			in.Below, err = strconv.ParseUint(string(below), 10, 63)
		}
		return err
	case "hex", "gz":
		in.Kind = "data"
		if err := json.Unmarshal(fields[kind], &word); err != nil {
			return err
		}
		if kind == "hex" {
			in.Data, err = hex.DecodeString(word)
		} else {
			in.Data, err = unzip(word)
		}
		return err
	case "pointers":
		in.Kind = "pointers"
		return strict(fields[kind], &in.Pointers)
	}
	in.Kind = "data"
	var list []json.RawMessage
	if err := json.Unmarshal(fields[kind], &list); err != nil {
		return err
	}
	for _, x := range list {
		if in.Data, err = number(in.Data, kind, x); err != nil {
			return err
		}
	}
	return nil
}

func unzip(text string) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, maxData+1))
	if err == nil && len(data) > maxData {
		err = fmt.Errorf("more than %d bytes", maxData)
	}
	return data, err
}
