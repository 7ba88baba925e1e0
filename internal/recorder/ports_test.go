package recorder

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/recording"
)

func TestPortNames(t *testing.T) {
	typed := func(name string, shape ...int) Hint { return Hint{name, "float32", shape} }
	for _, x := range []struct {
		what  string
		bytes []int64
		hints []Hint
		names []string
		wrong string
	}{
		{"none", []int64{4, 8}, nil, []string{"out0", "out1"}, ""},
		{"all", []int64{4, 8}, []Hint{{Name: "a"}, typed("b", 2)}, []string{"a", "b"}, ""},
		{"too many", []int64{4}, []Hint{{Name: "a"}, {Name: "b"}}, nil,
			"2 outputs are named, the range has 1 outputs (4 b"},
		{"none there", nil, []Hint{{Name: "a"}}, nil, "the range has none"},
		{"wrong size", []int64{4}, []Hint{typed("a", 2)}, nil, "4 bytes were copied"},
		{"a flag before", []int64{1, 400}, []Hint{typed("y", 10, 10)}, []string{"out0", "y"}, ""},
		{"flags around", []int64{1, 4, 1, 8, 1}, []Hint{typed("a", 1), typed("b", 2)},
			[]string{"out0", "a", "out2", "b", "out4"}, ""},
		{"no type", []int64{1, 400}, []Hint{{Name: "y"}}, nil, "--out y:float32"},
		{"two could be", []int64{400, 1, 400}, []Hint{typed("y", 100)}, nil, "more than one"},
		{"two could be, in order", []int64{4, 4, 8}, []Hint{typed("a", 1), typed("b", 2)}, nil, "more than one"},
		{"wrong order", []int64{8, 4, 1}, []Hint{typed("a", 1), typed("b", 2)}, nil, "output b"},
		{"not there", []int64{1, 4}, []Hint{typed("y", 100)}, nil, "output y"},
	} {
		ports := make([]recording.Port, len(x.bytes))
		for i, n := range x.bytes {
			ports[i].Bytes = n
		}
		err := name(ports, x.hints, "out", "output")
		var names []string
		for i := range ports {
			names = append(names, ports[i].Name)
			if n, err := recording.ArrayBytes(ports[i].DType, ports[i].Shape); err != nil || n != ports[i].Bytes {
				t.Errorf("%s: port %d: %s %v of %d bytes", x.what, i, ports[i].DType, ports[i].Shape, ports[i].Bytes)
			}
		}
		switch {
		case x.wrong == "" && (err != nil || !slices.Equal(names, x.names)):
			t.Errorf("%s: %v, %v", x.what, names, err)
		case x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong)):
			t.Errorf("%s: %v", x.what, err)
		}
	}
}
