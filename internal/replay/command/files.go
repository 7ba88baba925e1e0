package command

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"holdfast/internal/npy"
	"holdfast/internal/recording"
)

// A bound is a file for an input or output.
type bound struct {
	entry int
	port  *recording.Port
	file  string
}

// bind reads [ENTRY/]NAME=FILE options, each for one of the ports of the entries that run. Without ENTRY/ only one of
// them may have a port of that name.
func (j *job) bind(list []string, flag string, ports [][]recording.Port) ([]bound, error) {
	var out []bound
	for _, text := range list {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" {
			return nil, usage("--%s %s: want NAME=FILE", flag, text)
		}
		b := bound{file: file}
		var known []string
		for i := range ports {
			for k := range ports[i] {
				p, full := &ports[i][k], j.names[i]+"/"+ports[i][k].Name
				switch {
				case name != p.Name && name != full:
					if len(ports) == 1 {
						full = p.Name
					}
					known = append(known, full)
				case b.port != nil:
					return nil, usage("--%s %s: several entries have one: say --%s %s=%s", flag, text, flag, full, file)
				default:
					b.entry, b.port = i, p
				}
			}
		}
		if b.port == nil {
			return nil, usage("--%s %s: no %q; there are %v", flag, text, name, known)
		}
		if slices.ContainsFunc(out, func(x bound) bool { return x.port == b.port }) {
			return nil, usage("--%s %s: given twice", flag, name)
		}
		out = append(out, b)
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
