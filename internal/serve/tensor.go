package serve

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// datatypes are the names that the protocol has for types of elements. The complex ones have none.
var datatypes = map[string]string{
	"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
	"int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32",
	"float64": "FP64",
}

// errBinary refuses what JSON has no form for.
var errBinary = errors.New("only as binary data (Inference-Header-Content-Length)")

// fromJSON is the bytes of a tensor that JSON has, an array of n elements in row-major order, perhaps nested.
func fromJSON(dtype string, data json.RawMessage, n int) ([]byte, error) {
	var list []json.RawMessage
	if err := flatten(data, n, &list); err != nil {
		return nil, err
	}
	if len(list) != n {
		return nil, fmt.Errorf("%d elements, the shape has %d", len(list), n)
	}
	out := []byte{}
	for i, x := range list {
		var err error
		if out, err = element(out, dtype, string(x)); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return out, nil
}

// flatten collects the elements of nested arrays, at most one more than limit.
func flatten(data json.RawMessage, limit int, list *[]json.RawMessage) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return errors.New("data is not an array")
	}
	for _, p := range parts {
		if len(*list) > limit {
			return nil
		}
		if len(p) > 0 && p[0] == '[' {
			if err := flatten(p, limit, list); err != nil {
				return err
			}
			continue
		}
		*list = append(*list, p)
	}
	return nil
}

// element appends one number or boolean.
func element(out []byte, dtype, text string) ([]byte, error) {
	le := binary.LittleEndian
	bits := map[string]int{"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int8": 8, "int16": 16, "int32": 32,
		"int64": 64}[dtype]
	put := func(v uint64) []byte {
		return le.AppendUint64(out, v)[:len(out)+bits/8]
	}
	switch dtype {
	case "bool":
		switch text {
		case "true", "1":
			return append(out, 1), nil
		case "false", "0":
			return append(out, 0), nil
		}
		return nil, fmt.Errorf("%.40q is not true or false", text)
	case "uint8", "uint16", "uint32", "uint64":
		v, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not a %s", text, dtype)
		}
		return put(v), nil
	case "int8", "int16", "int32", "int64":
		v, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not an %s", text, dtype)
		}
		return put(uint64(v)), nil
	case "float32":
		v, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not a %s", text, dtype)
		}
		return le.AppendUint32(out, math.Float32bits(float32(v))), nil
	case "float64":
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not a %s", text, dtype)
		}
		return le.AppendUint64(out, math.Float64bits(v)), nil
	}
	return nil, fmt.Errorf("%s: %w", dtype, errBinary)
}

// toJSON is a tensor as JSON has it. Numbers are written such that reading them gives the same bits; what is not
// finite has no form.
func toJSON(dtype string, b []byte) (json.RawMessage, error) {
	le := binary.LittleEndian
	out := []byte{'['}
	next := func(size int) []byte {
		x := b[:size]
		b = b[size:]
		return x
	}
	for first := true; len(b) > 0; first = false {
		if !first {
			out = append(out, ',')
		}
		switch dtype {
		case "bool":
			out = strconv.AppendBool(out, next(1)[0] != 0)
		case "uint8":
			out = strconv.AppendUint(out, uint64(next(1)[0]), 10)
		case "uint16":
			out = strconv.AppendUint(out, uint64(le.Uint16(next(2))), 10)
		case "uint32":
			out = strconv.AppendUint(out, uint64(le.Uint32(next(4))), 10)
		case "uint64":
			out = strconv.AppendUint(out, le.Uint64(next(8)), 10)
		case "int8":
			out = strconv.AppendInt(out, int64(int8(next(1)[0])), 10)
		case "int16":
			out = strconv.AppendInt(out, int64(int16(le.Uint16(next(2)))), 10)
		case "int32":
			out = strconv.AppendInt(out, int64(int32(le.Uint32(next(4)))), 10)
		case "int64":
			out = strconv.AppendInt(out, int64(le.Uint64(next(8))), 10)
		case "float32":
			f := float64(math.Float32frombits(le.Uint32(next(4))))
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("%v: %w", f, errBinary)
			}
			out = strconv.AppendFloat(out, f, 'g', -1, 32)
		case "float64":
			f := math.Float64frombits(le.Uint64(next(8)))
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("%v: %w", f, errBinary)
			}
			out = strconv.AppendFloat(out, f, 'g', -1, 64)
		default:
			return nil, fmt.Errorf("%s: %w", dtype, errBinary)
		}
	}
	return append(out, ']'), nil
}
