package rmtest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"holdfast/internal/rm"
)

var le = binary.LittleEndian

// classes are what can be made, and with what structure.
var classes = map[uint32]string{rm.NV01_ROOT_CLIENT: "", rm.NV01_DEVICE_0: "NV0080_ALLOC_PARAMETERS",
	rm.NV20_SUBDEVICE_0: "NV2080_ALLOC_PARAMETERS", rm.FERMI_VASPACE_A: "NV_VASPACE_ALLOCATION_PARAMETERS",
	rm.NV01_MEMORY_VIRTUAL: "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", rm.NV01_MEMORY_SYSTEM: "NV_MEMORY_ALLOCATION_PARAMS",
	rm.NV01_MEMORY_LOCAL_USER:  "NV_MEMORY_ALLOCATION_PARAMS",
	rm.KEPLER_CHANNEL_GROUP_A:  "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS",
	rm.FERMI_CONTEXT_SHARE_A:   "NV_CTXSHARE_ALLOCATION_PARAMETERS",
	rm.HOPPER_CHANNEL_GPFIFO_A: "NV_CHANNEL_ALLOC_PARAMS",
	rm.AMPERE_CHANNEL_GPFIFO_A: "NV_CHANNEL_ALLOC_PARAMS", rm.GT200_DEBUGGER: "NV83DE_ALLOC_PARAMETERS",
	rm.HOPPER_USERMODE_A: "", rm.AMPERE_USERMODE_A: "", rm.HOPPER_COMPUTE_A: "", rm.HOPPER_DMA_COPY_A: "",
	rm.AMPERE_COMPUTE_A:  "",
	rm.AMPERE_DMA_COPY_A: ""}

// alloc makes an object.
func (d *Driver) alloc(arg []byte, in []rm.Pointer, params []byte) uint32 {
	parent, handle, class := le.Uint32(arg[4:]), le.Uint32(arg[8:]), le.Uint32(arg[12:])
	d.Calls = append(d.Calls, fmt.Sprintf("alloc %#x", class))
	name, ok := classes[class]
	if !ok {
		d.wrong("class %#x is not known", class)
		return invalidArg
	}
	if name != "" && len(params) == 0 || len(in) > 0 && in[0].At != 16 || int(le.Uint32(arg[24:])) != len(params) {
		d.wrong("class %#x: %d bytes of parameters", class, len(params))
	}
	if name != "" {
		d.expect(name, len(params))
	}
	if class == rm.NV01_ROOT_CLIENT {
		handle = 0xc1d00001
		le.PutUint32(arg[8:], handle)
	} else if !d.known(le.Uint32(arg), parent) {
		return invalidObject
	}
	if _, ok := d.objects[handle]; ok {
		d.wrong("handle %#x is taken", handle)
		return invalidArg
	}
	o := object{class: class, parent: parent}
	switch class {
	case rm.NV01_MEMORY_SYSTEM, rm.NV01_MEMORY_LOCAL_USER:
		o.bytes = d.room(int(le.Uint64(params[64:])))
		if class != rm.NV01_MEMORY_SYSTEM {
			// What others left there. Of large memory a part is enough: all of it takes longer than the rest of a test.
			copy(o.bytes, bytes.Repeat([]byte{0xa5}, min(len(o.bytes), 16<<20)))
		}
	case rm.HOPPER_USERMODE_A, rm.AMPERE_USERMODE_A:
		o.bytes = d.room(rm.UsermodeSize)
		d.bells[&o.bytes[rm.UsermodeDoorbell]] = o.bytes[rm.UsermodeDoorbell:][:4]
	case rm.HOPPER_CHANNEL_GPFIFO_A, rm.AMPERE_CHANNEL_GPFIFO_A:
		if !d.known(le.Uint32(params), le.Uint32(params[24:]), le.Uint32(params[32:])) {
			return invalidObject
		}
		d.tokens++
		d.channels[handle] = &channel{token: 6 + d.tokens, group: parent, ring: le.Uint64(params[8:]),
			entries: le.Uint32(params[16:]), notifier: d.objects[le.Uint32(params)].bytes,
			userd: d.objects[le.Uint32(params[32:])].bytes[le.Uint64(params[64:]):],
			space: d.spaces[d.objects[le.Uint32(params[24:])].space]}
	case rm.FERMI_VASPACE_A:
		d.spaces[handle] = &Memory{}
		if len(d.spaces) == 1 {
			d.Space = d.spaces[handle]
		}
	case rm.FERMI_CONTEXT_SHARE_A:
		o.space = le.Uint32(params)
	case rm.NV01_MEMORY_VIRTUAL:
		o.space = le.Uint32(params[16:])
	}
	if o.space != 0 && d.spaces[o.space] == nil {
		d.wrong("object %#x is no address space", o.space)
		return invalidObject
	}
	d.objects[handle] = o
	return okay
}

// free ends an object and all below it.
func (d *Driver) free(handle uint32) uint32 {
	if !d.known(handle) {
		return invalidObject
	}
	o := d.objects[handle]
	for _, space := range d.spaces {
		for _, m := range space.maps {
			if o.bytes != nil && &m.bytes[0] == &o.bytes[0] {
				d.wrong("memory is freed while it is mapped at %#x", m.at)
			}
		}
	}
	d.end(handle)
	return okay
}

// end takes an object away, and what is below it.
func (d *Driver) end(handle uint32) {
	delete(d.objects, handle)
	if handle == d.bound {
		d.wrong("a channel is freed while unified memory has it")
	}
	delete(d.spaces, handle)
	delete(d.channels, handle)
	for h, child := range d.objects {
		if child.parent == handle && h != handle {
			d.end(h)
		}
	}
}

// pin makes memory of pages that are there.
func (d *Driver) pin(f *file, arg, pages []byte) uint32 {
	if f.path != "/dev/nvidia0" || !f.tied || le.Uint64(arg[32:])+1 != uint64(len(pages)) {
		d.wrong("pages are pinned through %s, %d bytes", f.path, len(pages))
		return invalidArg
	}
	d.objects[le.Uint32(arg[8:])] = object{class: le.Uint32(arg[12:]), parent: le.Uint32(arg[4:]), bytes: pages}
	return okay
}

// mapHere prepares a file for being mapped.
func (d *Driver) mapHere(arg []byte) uint32 {
	f, o := d.open[int32(le.Uint32(arg[48:]))], d.objects[le.Uint32(arg[8:])]
	if f == nil || len(o.bytes) < int(le.Uint64(arg[24:])) {
		d.wrong("mapping of %d bytes of object %#x", le.Uint64(arg[24:]), le.Uint32(arg[8:]))
		return invalidArg
	}
	if system := o.class == rm.NV01_MEMORY_SYSTEM; system != (f.path == "/dev/nvidiactl") || !system && !f.tied {
		d.wrong("object of class %#x is mapped through %s", o.class, f.path)
		return invalidArg
	}
	f.mapped = o.bytes
	return okay
}

// mapThere maps memory for the GPU.
func (d *Driver) mapThere(arg []byte) {
	at, status := 48, 56
	if len(arg) == 56 { // before 580
		at, status = 40, 48
	}
	o, into := d.objects[le.Uint32(arg[12:])], d.spaces[d.objects[le.Uint32(arg[8:])].space]
	if d.objects[le.Uint32(arg[8:])].class != rm.NV01_MEMORY_VIRTUAL ||
		le.Uint32(arg[32:])&rm.NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE == 0 {
		d.wrong("mapping of object %#x into %#x", le.Uint32(arg[12:]), le.Uint32(arg[8:]))
	}
	le.PutUint32(arg[status:], into.place(le.Uint64(arg[at:]), le.Uint64(arg[24:]), o.bytes))
}

// controls are what can be asked, and with what structure.
var controls = map[uint32]string{rm.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS",
	rm.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2:           "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS",
	rm.NV2080_CTRL_CMD_GPU_GET_NAME_STRING:            "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS",
	rm.NV2080_CTRL_CMD_GPU_GET_GID_INFO:               "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS",
	rm.NV2080_CTRL_CMD_GR_GET_INFO:                    "NV2080_CTRL_GR_GET_INFO_PARAMS",
	rm.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE:   "NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS",
	rm.NV2080_CTRL_CMD_PERF_BOOST:                     "NV2080_CTRL_PERF_BOOST_PARAMS",
	rm.NV2080_CTRL_CMD_FB_GET_INFO_V2:                 "NV2080_CTRL_FB_GET_INFO_V2_PARAMS",
	rm.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:                "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS",
	rm.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN:   "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS",
	rm.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES: "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS",
	rm.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO:      "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS"}

// control answers a question.
func (d *Driver) control(arg, p []byte, in []rm.Pointer) uint32 {
	cmd := le.Uint32(arg[8:])
	d.Calls = append(d.Calls, fmt.Sprintf("control %#x", cmd))
	name, ok := controls[cmd]
	if !ok {
		d.wrong("control %#x is not known", cmd)
		return invalidArg
	}
	d.expect(name, len(p))
	if int(le.Uint32(arg[24:])) != len(p) || !d.known(le.Uint32(arg), le.Uint32(arg[4:])) {
		return invalidArg
	}
	switch cmd {
	case rm.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2:
		le.PutUint32(p, uint32(len(d.Classes)))
		for i, c := range d.Classes {
			le.PutUint32(p[4+4*i:], c)
		}
	case rm.NV2080_CTRL_CMD_GPU_GET_NAME_STRING:
		copy(p[4:], "Played GPU")
	case rm.NV2080_CTRL_CMD_FB_GET_INFO_V2:
		le.PutUint32(p[8:], 1<<20) // KiB
	case rm.NV2080_CTRL_CMD_GR_GET_INFO:
		grInfo(in[0].To)
	case rm.NV2080_CTRL_CMD_PERF_BOOST:
		d.Boost = le.Uint32(p)
	case rm.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
		for _, c := range d.channels {
			if c.group == le.Uint32(arg[4:]) {
				c.scheduled = p[0] == 1
			}
		}
	case rm.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN:
		le.PutUint32(p, d.channels[le.Uint32(arg[4:])].token)
	case rm.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES:
		if d.FaultAt != 0 {
			p[4812] = 1
		}
		first, n := le.Uint32(p[4820:]), le.Uint32(p[4:])
		if d.FaultPC != 0 && first <= 120 && 120 < first+n {
			state := p[8+48*(120-first):]
			le.PutUint32(state[4:], 1)
			le.PutUint64(state[32:], d.FaultPC)
		}
	case rm.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO:
		le.PutUint64(p, d.FaultAt)
		le.PutUint32(p[64:], 1)
	}
	return okay
}

// grInfo answers about an H200.
func grInfo(list []byte) {
	answers := map[uint32]uint32{rm.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT: 66,
		rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS:        8,
		rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC: 9, rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC: 2,
		rm.NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM: 64}
	for ; len(list) >= 8; list = list[8:] {
		le.PutUint32(list[4:], answers[le.Uint32(list)])
	}
}

// unified answers a request of unified memory.
func (d *Driver) unified(request uint32, arg []byte) error {
	name, ok := map[uint32]string{rm.UVM_INITIALIZE: "UVM_INITIALIZE_PARAMS",
		rm.UVM_MM_INITIALIZE: "UVM_MM_INITIALIZE_PARAMS",
		rm.UVM_REGISTER_GPU:  "UVM_REGISTER_GPU_PARAMS", rm.UVM_REGISTER_GPU_VASPACE: "UVM_REGISTER_GPU_VASPACE_PARAMS",
		rm.UVM_REGISTER_CHANNEL:      "UVM_REGISTER_CHANNEL_PARAMS",
		rm.UVM_UNREGISTER_CHANNEL:    "UVM_UNREGISTER_CHANNEL_PARAMS",
		rm.UVM_CREATE_EXTERNAL_RANGE: "UVM_CREATE_EXTERNAL_RANGE_PARAMS", rm.UVM_FREE: "UVM_FREE_PARAMS",
		rm.UVM_MAP_EXTERNAL_ALLOCATION: "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS"}[request]
	if !ok {
		return fmt.Errorf("request %#x of unified memory", request)
	}
	d.Calls = append(d.Calls, name)
	d.expect(name, len(arg))
	switch request {
	case rm.UVM_REGISTER_GPU_VASPACE:
		d.known(le.Uint32(arg[20:]), le.Uint32(arg[24:]))
		d.managed = d.spaces[le.Uint32(arg[24:])]
	case rm.UVM_REGISTER_CHANNEL:
		d.known(le.Uint32(arg[20:]), le.Uint32(arg[24:]))
		d.bound = le.Uint32(arg[24:])
	case rm.UVM_UNREGISTER_CHANNEL:
		d.bound = 0
	case rm.UVM_MAP_EXTERNAL_ALLOCATION:
		if le.Uint32(arg[24+16:]) != rm.UvmGpuMappingTypeReadWriteAtomic || le.Uint64(arg[9240:]) != 1 {
			d.wrong("mapping for %d GPUs of type %d", le.Uint64(arg[9240:]), le.Uint32(arg[40:]))
		}
		le.PutUint32(arg[9260:], d.managed.place(le.Uint64(arg), le.Uint64(arg[8:]),
			d.objects[le.Uint32(arg[9256:])].bytes))
	case rm.UVM_FREE:
		le.PutUint32(arg[16:], d.managed.unmap(le.Uint64(arg)))
	}
	return nil
}
