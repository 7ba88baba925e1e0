package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// ErrMalformed is wrapped by every error of Decode.
var ErrMalformed = errors.New("malformed message")

// String gives the message's name, as in "ALLOC" (or "type 99").
func (t Type) String() string {
	if m := newMessage(t); m != nil {
		return upper(reflect.TypeOf(m).Elem().Name())
	}
	return "type " + strconv.FormatUint(uint64(t), 10)
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// Encode appends the packet of m to b.
func Encode(b []byte, seq uint64, m Message) ([]byte, error) {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Type()))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, seq)
	v := reflect.ValueOf(m).Elem()
	t := v.Type()
	for i := range t.NumField() {
		f, sf := v.Field(i), t.Field(i)
		switch sf.Type.Kind() {
		case reflect.Uint32:
			b = binary.LittleEndian.AppendUint32(b, uint32(f.Uint()))
		case reflect.Uint64:
			b = binary.LittleEndian.AppendUint64(b, f.Uint())
		case reflect.Array:
			a := f.Interface().([16]byte)
			b = append(b, a[:]...)
		case reflect.String:
			if f.Len() > maxOf(sf) {
				return nil, fmt.Errorf("%v: %s has %d bytes, limit %d", m.Type(), sf.Name, f.Len(), maxOf(sf))
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(f.Len()))
			b = append(b, f.String()...)
		case reflect.Slice:
			s := f.Interface().([][16]byte)
			if len(s) > maxOf(sf) {
				return nil, fmt.Errorf("%v: %s has %d elements, limit %d", m.Type(), sf.Name, len(s), maxOf(sf))
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
			for _, a := range s {
				b = append(b, a[:]...)
			}
		default:
			return nil, fmt.Errorf("%v: field %s has no encoding", m.Type(), sf.Name)
		}
	}
	if len(b)-start > MaxPacket {
		return nil, fmt.Errorf("%v: packet of %d bytes, limit %d", m.Type(), len(b)-start, MaxPacket)
	}
	binary.LittleEndian.PutUint32(b[start+4:], uint32(len(b)-start-HeaderSize))
	return b, nil
}

// Decode reads exactly one packet. Strings are copied out of p.
func Decode(p []byte) (seq uint64, m Message, err error) {
	if len(p) < HeaderSize || len(p) > MaxPacket {
		return 0, nil, fmt.Errorf("%w: packet of %d bytes", ErrMalformed, len(p))
	}
	t := Type(binary.LittleEndian.Uint32(p))
	n := binary.LittleEndian.Uint32(p[4:])
	seq = binary.LittleEndian.Uint64(p[8:])
	body := p[HeaderSize:]
	if uint64(n) != uint64(len(body)) {
		return 0, nil, fmt.Errorf("%w: %v: header says %d bytes, packet has %d", ErrMalformed, t, n, len(body))
	}
	m = newMessage(t)
	if m == nil {
		return 0, nil, fmt.Errorf("%w: unknown type %d", ErrMalformed, uint32(t))
	}
	v := reflect.ValueOf(m).Elem()
	st := v.Type()
	take := func(n int) []byte {
		if n > len(body) {
			return nil
		}
		b := body[:n:n]
		body = body[n:]
		return b
	}
	for i := range st.NumField() {
		f, sf := v.Field(i), st.Field(i)
		short := func() error {
			return fmt.Errorf("%w: %v: %s is cut short", ErrMalformed, t, sf.Name)
		}
		switch sf.Type.Kind() {
		case reflect.Uint32:
			b := take(4)
			if b == nil {
				return 0, nil, short()
			}
			f.SetUint(uint64(binary.LittleEndian.Uint32(b)))
		case reflect.Uint64:
			b := take(8)
			if b == nil {
				return 0, nil, short()
			}
			f.SetUint(binary.LittleEndian.Uint64(b))
		case reflect.Array:
			b := take(16)
			if b == nil {
				return 0, nil, short()
			}
			f.Set(reflect.ValueOf([16]byte(b)))
		case reflect.String, reflect.Slice:
			b := take(2)
			if b == nil {
				return 0, nil, short()
			}
			n := int(binary.LittleEndian.Uint16(b))
			if n > maxOf(sf) {
				return 0, nil, fmt.Errorf("%w: %v: %s has %d elements, limit %d", ErrMalformed, t, sf.Name, n,
					maxOf(sf))
			}
			if sf.Type.Kind() == reflect.String {
				if b = take(n); b == nil {
					return 0, nil, short()
				}
				f.SetString(string(b))
				continue
			}
			if b = take(16 * n); b == nil {
				return 0, nil, short()
			}
			if n > 0 {
				s := make([][16]byte, n)
				for j := range s {
					s[j] = [16]byte(b[16*j:])
				}
				f.Set(reflect.ValueOf(s))
			}
		}
	}
	if len(body) != 0 {
		return 0, nil, fmt.Errorf("%w: %v: %d bytes too many", ErrMalformed, t, len(body))
	}
	return seq, m, nil
}

// maxOf is the limit of a string or slice; a field without one is a mistake in wire.go that TestTags finds.
func maxOf(f reflect.StructField) int {
	n, err := strconv.Atoi(f.Tag.Get("max"))
	if err != nil {
		return 0
	}
	return n
}
