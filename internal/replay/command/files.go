package command

import (
	"fmt"
	"os"
	"strings"

	"holdfast/internal/npy"
	"holdfast/internal/recording"
)

// namedFiles reads NAME=FILE options, each for one of ports.
func namedFiles(list []string, flag string, ports []recording.Port) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" {
			return nil, usage("--%s %s: want NAME=FILE", flag, text)
		}
		if out[name] != "" {
			return nil, usage("--%s %s: given twice", flag, name)
		}
		if _, err := recording.FindPort(ports, name); err != nil {
			return nil, usage("--%s %s: %v", flag, text, err)
		}
		out[name] = file
	}
	return out, nil
}

func readInputs(e *recording.Entry, list []string) (map[string][]byte, error) {
	files, err := namedFiles(list, "in", e.Inputs)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name, file := range files {
		p, err := recording.FindPort(e.Inputs, name)
		if err != nil {
			return nil, err
		}
		if out[name], err = readInput(file, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readInput reads what a file has for p.
func readInput(file string, p *recording.Port) ([]byte, error) {
	if !strings.HasSuffix(file, ".npy") {
		st, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if st.Mode().IsRegular() && st.Size() != p.Bytes {
			return nil, fmt.Errorf("%s: %d bytes, input %s has %d", file, st.Size(), p.Name, p.Bytes)
		}
		return os.ReadFile(file)
	}
	x, err := npy.ReadFile(file, p.Bytes)
	if err != nil {
		return nil, err
	}
	same := x.DType == npyType(p.DType) && fmt.Sprint(x.Shape) == fmt.Sprint(p.Shape)
	if int64(len(x.Data)) != p.Bytes || !p.Untyped() && !same {
		return nil, fmt.Errorf("%s: %s %v, input %s is %s %v", file, x.DType, x.Shape, p.Name, p.DType, p.Shape)
	}
	return x.Data, nil
}

// npyType is the type by which .npy files have one. They know no bfloat16: its bits are taken as uint16.
func npyType(dtype string) string {
	if dtype == "bfloat16" {
		return "uint16"
	}
	return dtype
}

func writeOutput(file string, p *recording.Port, data []byte) error {
	if strings.HasSuffix(file, ".npy") {
		return npy.WriteFile(file, &npy.Array{DType: npyType(p.DType), Shape: p.Shape, Data: data})
	}
	return os.WriteFile(file, data, 0o666)
}
