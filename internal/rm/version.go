package rm

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A Version is that of the driver, as it tells it: 580.95.05.
type Version struct {
	Major int
	Text  string
}

// ParseVersion reads what the driver says.
func ParseVersion(s string) (Version, error) {
	head, _, _ := strings.Cut(s, ".")
	n, err := strconv.Atoi(head)
	if err != nil || n <= 0 || len(s) > 63 {
		return Version{}, fmt.Errorf("driver version %q cannot be read", s)
	}
	return Version{n, s}, nil
}

// A VersionError is a driver whose interface this package does not know.
type VersionError struct{ Version Version }

func (e *VersionError) Error() string {
	return fmt.Sprintf("driver %s: its interface is not known here (known: %s)", e.Version.Text, known)
}

const known = "570, 575 and 580"

// An ABI is how structures of one version look.
type ABI struct{ size map[reflect.Type]int }

// differences are, newest first, what versions before one had otherwise: a structure ended earlier.
var differences = []struct {
	before int
	of     any
	size   int
}{
	{580, NV_VASPACE_ALLOCATION_PARAMETERS{}, 48},
	{580, NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS{}, 404},
	{580, NV2080_CTRL_FB_GET_INFO_V2_PARAMS{}, 460},
	{575, NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS{}, 2},
}

// ABIOf is the interface of a version; a *VersionError if it is not known.
func ABIOf(v Version) (*ABI, error) {
	if v.Major != 570 && v.Major != 575 && v.Major != 580 {
		return nil, &VersionError{v}
	}
	a := &ABI{size: map[reflect.Type]int{}}
	for _, d := range differences {
		if v.Major < d.before {
			a.size[reflect.TypeOf(d.of)] = d.size
		}
	}
	return a, nil
}

// Encode is the bytes of a structure. A nil ABI knows no differences.
func (a *ABI) Encode(s any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, s)
	if err != nil {
		panic(fmt.Sprintf("rm: %T has no fixed size: %v", s, err))
	}
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if a != nil {
		if n, ok := a.size[t]; ok {
			b = b[:n]
		}
	}
	return b
}

// Decode fills a structure from bytes that Encode made room for.
func (a *ABI) Decode(b []byte, s any) {
	if n := binary.Size(s); n > len(b) { // an earlier version's: what it does not have is zero
		b = append(append(make([]byte, 0, n), b...), make([]byte, n-len(b))...)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, s); err != nil {
		panic(fmt.Sprintf("rm: %T has no fixed size: %v", s, err))
	}
}
