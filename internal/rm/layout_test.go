package rm

import (
	"encoding/binary"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// all is every structure of this package.
var all = []any{Nv_ioctl_card_info_t{}, Nv_ioctl_register_fd_t{}, Nv_ioctl_rm_api_version_t{}, NVOS00_PARAMETERS{},
	Nv_ioctl_nvos02_parameters_with_fd{}, NVOS21_PARAMETERS{}, Nv_ioctl_nvos33_parameters_with_fd{},
	NVOS46_PARAMETERS{},
	NVOS47_PARAMETERS{}, NVOS54_PARAMETERS{}, NV0080_ALLOC_PARAMETERS{}, NV2080_ALLOC_PARAMETERS{},
	NV_MEMORY_ALLOCATION_PARAMS{},
	NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS{}, NV_VASPACE_ALLOCATION_PARAMETERS{}, NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{},
	NV_CTXSHARE_ALLOCATION_PARAMETERS{}, NV_MEMORY_DESC_PARAMS{}, NV_CHANNEL_ALLOC_PARAMS{}, NV83DE_ALLOC_PARAMETERS{},
	NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS{}, NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS{},
	NV2080_CTRL_GPU_GET_GID_INFO_PARAMS{},
	NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS{}, NV2080_CTRL_FB_INFO{}, NV2080_CTRL_FB_GET_INFO_V2_PARAMS{},
	NV2080_CTRL_GR_INFO{},
	NV2080_CTRL_GR_GET_INFO_PARAMS{}, NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS{},
	NV2080_CTRL_PERF_BOOST_PARAMS{},
	NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS{},
	NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS{}, NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY{},
	NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS{}, NV83DE_SM_ERROR_STATE_REGISTERS{},
	NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS{}, UVM_INITIALIZE_PARAMS{}, UVM_MM_INITIALIZE_PARAMS{},
	UVM_REGISTER_GPU_PARAMS{}, UVM_REGISTER_GPU_VASPACE_PARAMS{}, UVM_REGISTER_CHANNEL_PARAMS{},
	UVM_UNREGISTER_CHANNEL_PARAMS{},
	UVM_CREATE_EXTERNAL_RANGE_PARAMS{}, UvmGpuMappingAttributes{}, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS{},
	UVM_FREE_PARAMS{},
	NvNotification{}}

// flattened are structures inside others whose fields stand here one by one, or that the compiler's list has as one
// field.
var flattened = map[string]string{"Nv_ioctl_nvos02_parameters_with_fd": "NVOS02",
	"Nv_ioctl_nvos33_parameters_with_fd": "NVOS33",
	"NvNotification":                     "", "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS": ""}

// Sizes and fields are those that a C compiler gives them, in every version.
func TestLayout(t *testing.T) {
	text, err := os.ReadFile("rmtest/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "version ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		v, err := ParseVersion(name)
		if err != nil {
			t.Fatal(err)
		}
		abi, err := ABIOf(v)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, name, abi, body)
	}
}

// compare checks the structures of one version; those of the first are all of them.
func compare(t *testing.T, version string, abi *ABI, body string) {
	t.Helper()
	vendor := map[string][]string{}
	var at string
	for line := range strings.Lines(body) {
		f := strings.Fields(line)
		if line[0] != ' ' {
			at = f[0]
			vendor[at] = []string{f[1]}
			continue
		}
		vendor[at] = append(vendor[at], strings.Join(f, " "))
	}
	for _, s := range all {
		typ := reflect.TypeOf(s)
		want, ok := vendor[spelled(typ.Name())]
		if !ok {
			if version == "580.95.05" {
				t.Errorf("%s is not in the list", typ.Name())
			}
			continue
		}
		if typ == reflect.TypeOf(NVOS46_PARAMETERS{}) && version < "580" {
			s = NVOS46_PARAMETERS_570{}
			typ = reflect.TypeOf(s)
		}
		size := len(abi.Encode(s))
		if got := itoa(size); got != want[0] {
			t.Errorf("%s: %s has %s bytes, the vendor's %s", version, typ.Name(), got, want[0])
		}
		if _, ok := flattened[typ.Name()]; !ok {
			compareFields(t, version, typ, size, want[1:])
		}
	}
}

func compareFields(t *testing.T, version string, typ reflect.Type, size int, want []string) {
	t.Helper()
	var got []string
	offset := 0
	for i := range typ.NumField() {
		f := typ.Field(i)
		n := binary.Size(reflect.New(f.Type).Elem().Interface())
		if f.Name != "_" && offset < size {
			got = append(got, spelled(f.Name)+" "+itoa(offset)+" "+itoa(n))
		}
		offset += n
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %s lacks %s", version, typ.Name(), want[i])
		case i >= len(want):
			t.Errorf("%s: %s has more: %s", version, typ.Name(), got[i])
		case !same(got[i], want[i], offset, size):
			t.Errorf("%s: %s has %s, the vendor's %s", version, typ.Name(), got[i], want[i])
		}
	}
}

// same compares a field; the last one of a structure that a version cuts short has another size there.
func same(got, want string, full, size int) bool {
	if strings.EqualFold(got, want) {
		return true
	}
	g, w := strings.Fields(got), strings.Fields(want)
	return full != size && len(g) == 3 && len(w) == 3 && strings.EqualFold(g[0], w[0]) && g[1] == w[1]
}

func spelled(s string) string {
	if strings.HasPrefix(s, "Nv_") || !strings.Contains(s, "_") && s != "NvNotification" &&
		s != "UvmGpuMappingAttributes" {
		return string(unicode.ToLower(rune(s[0]))) + s[1:]
	}
	return s
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestVersions(t *testing.T) {
	for text, ok := range map[string]bool{"570.86.15": true, "575.64": true, "580.159.04": true, "565.77": false,
		"590.44.01": false, "610.1": false} {
		v, err := ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ABIOf(v)
		if (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "x", ".5", "-1.0", strings.Repeat("1", 70)} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("%q is version %v", text, v)
		}
	}
}
