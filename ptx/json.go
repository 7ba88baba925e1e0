package ptx

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

var immKinds = [...]string{ImmS64: "s64", ImmU64: "u64", ImmF32: "f32", ImmF64: "f64"}

// String is the kind's type name: "s64".
func (k ImmKind) String() string {
	if int(k) < len(immKinds) {
		return immKinds[k]
	}
	return "?"
}

// AppendJSON appends a tree as JSON: a *Module, or any node of it. Each node
// is an object with its type's name as "node", its position as "line:column", and
// those of its fields that are not zero, in the order of the Go declaration.
// Types, spaces and linkages have their PTX spelling; Bits is hexadecimal.
func AppendJSON(b []byte, node any) ([]byte, error) {
	return appendJSON(b, reflect.ValueOf(node))
}

func appendJSON(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case Pos:
			return strconv.AppendQuote(b, fmt.Sprintf("%d:%d", x.Line, x.Col)), nil
		case Version:
			return strconv.AppendQuote(b, fmt.Sprintf("%d.%d", x.Major, x.Minor)), nil
		case Type, Space, Linkage, ImmKind:
			return strconv.AppendQuote(b, x.(fmt.Stringer).String()), nil
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return appendJSON(b, v.Elem())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Uint64:
		return strconv.AppendQuote(b, fmt.Sprintf("%#x", v.Uint())), nil // above 2^53 a JSON number is not exact
	case reflect.String:
		s, err := json.Marshal(v.String())
		return append(b, s...), err
	case reflect.Slice:
		return appendJSONList(b, v)
	case reflect.Struct:
		return appendJSONStruct(b, v)
	}
	return b, fmt.Errorf("no JSON form for %s", v.Type())
}

func appendJSONList(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, v.Index(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendJSONStruct(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, `{"node":`...)
	b = strconv.AppendQuote(b, v.Type().Name())
	var err error
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		b = append(b, ',')
		b = strconv.AppendQuote(b, v.Type().Field(i).Name)
		b = append(b, ':')
		if b, err = appendJSON(b, f); err != nil {
			return b, fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
		}
	}
	return append(b, '}'), nil
}
