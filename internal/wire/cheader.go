package wire

import (
	"fmt"
	"reflect"
	"strings"
)

// Header prints shim/zwire.h: the constants, and for each message a struct with hf_put_NAME and hf_get_NAME.
func Header() []byte {
	var b strings.Builder
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("/* Code generated from internal/wire by internal/cuda/gen (make generate); DO NOT EDIT. */\n")
	p("#ifndef HF_ZWIRE_H\n#define HF_ZWIRE_H\n#include <stdint.h>\n#include <string.h>\n\n")
	for _, c := range constants() {
		p("#define %s %s\n", c.name, c.value)
	}
	p(`
struct hf_out { uint8_t *p, *end; int bad; };
struct hf_in { const uint8_t *p, *end; int bad; };
static inline void hf_put(struct hf_out *o, const void *v, size_t n)
{
	if (o->bad || (size_t)(o->end - o->p) < n) { o->bad = 1; return; }
	memcpy(o->p, v, n);
	o->p += n;
}
static inline void hf_get(struct hf_in *i, void *v, size_t n)
{
	if (i->bad || (size_t)(i->end - i->p) < n) { i->bad = 1; return; }
	memcpy(v, i->p, n);
	i->p += n;
}
static inline void hf_put_text(struct hf_out *o, const char *s, size_t max)
{
	uint16_t n = (uint16_t)strnlen(s, max);
	hf_put(o, &n, 2);
	hf_put(o, s, n);
}
static inline void hf_get_text(struct hf_in *i, char *s, size_t max)
{
	uint16_t n = 0;
	hf_get(i, &n, 2);
	if (n > max) { i->bad = 1; n = 0; }
	hf_get(i, s, n);
	s[n] = 0;
}
/* hf_begin and hf_end frame one packet in buf; hf_end returns its length, 0 if it did not fit. */
static inline struct hf_out hf_begin(uint8_t *buf, size_t cap, uint32_t type, uint64_t seq)
{
	struct hf_out o = { buf, buf + cap, 0 };
	uint32_t zero = 0;
	hf_put(&o, &type, 4);
	hf_put(&o, &zero, 4);
	hf_put(&o, &seq, 8);
	return o;
}
static inline size_t hf_end(struct hf_out *o, uint8_t *buf)
{
	if (o->bad) return 0;
	uint32_t n = (uint32_t)(o->p - buf) - HF_HEADER_SIZE;
	memcpy(buf + 4, &n, 4);
	return n + HF_HEADER_SIZE;
}
/* hf_open checks the frame of a received packet; the body is left in *i. */
static inline int hf_open(const uint8_t *buf, size_t len, struct hf_in *i, uint32_t *type, uint64_t *seq)
{
	uint32_t n = 0;
	i->p = buf; i->end = buf + len; i->bad = 0;
	hf_get(i, type, 4);
	hf_get(i, &n, 4);
	hf_get(i, seq, 8);
	return !i->bad && n == len - HF_HEADER_SIZE;
}
`)
	for _, m := range messages() {
		t := reflect.TypeOf(m).Elem()
		name := strings.ToLower(t.Name())
		p("\nstruct hf_msg_%s {\n", name)
		if t.NumField() == 0 {
			p("\tchar none;\n")
		}
		for f := range fields(t) {
			c := snake(f.Name)
			switch f.Type.Kind() {
			case reflect.Uint32:
				p("\tuint32_t %s;\n", c)
			case reflect.Uint64:
				p("\tuint64_t %s;\n", c)
			case reflect.Array:
				p("\tuint8_t %s[16];\n", c)
			case reflect.String:
				p("\tchar %s[%d];\n", c, maxOf(f)+1)
			case reflect.Slice:
				p("\tuint16_t n_%s;\n\tuint8_t %s[%d][16];\n", c, c, maxOf(f))
			}
		}
		p("};\n")
		for _, dir := range []string{"put", "get"} {
			arg, stream := "const ", "out"
			if dir == "get" {
				arg, stream = "", "in"
			}
			if dir == "put" {
				p("static inline size_t hf_put_%s(uint8_t *buf, size_t cap, uint64_t seq, %sstruct hf_msg_%s *m)\n{\n",
					name, arg, name)
				p("\tstruct hf_out s = hf_begin(buf, cap, HF_TYPE_%s, seq);\n", strings.ToUpper(t.Name()))
			} else {
				p("static inline int hf_get_%s(struct hf_%s *body, struct hf_msg_%s *m)\n{\n", name, stream, name)
				p("\tstruct hf_in s = *body;\n")
			}
			if t.NumField() == 0 {
				p("\t(void)m;\n")
			}
			for f := range fields(t) {
				c := snake(f.Name)
				switch f.Type.Kind() {
				case reflect.Uint32:
					p("\thf_%s(&s, &m->%s, 4);\n", dir, c)
				case reflect.Uint64:
					p("\thf_%s(&s, &m->%s, 8);\n", dir, c)
				case reflect.Array:
					p("\thf_%s(&s, m->%s, 16);\n", dir, c)
				case reflect.String:
					p("\thf_%s_text(&s, m->%s, %d);\n", dir, c, maxOf(f))
				case reflect.Slice:
					p("\thf_%s(&s, &m->n_%s, 2);\n", dir, c)
					p("\tif (s.bad || m->n_%s > %d) return 0;\n", c, maxOf(f))
					p("\thf_%s(&s, m->%s, 16u * m->n_%s);\n", dir, c, c)
				}
			}
			if dir == "put" {
				p("\treturn hf_end(&s, buf);\n}\n")
			} else {
				p("\treturn !s.bad && s.p == s.end;\n}\n")
			}
		}
	}
	p("\n#endif\n")
	return []byte(b.String())
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// snake turns StartTime into start_time, and PID into pid.
func snake(s string) string {
	var b strings.Builder
	up := func(i int) bool { return i < len(s) && 'A' <= s[i] && s[i] <= 'Z' }
	for i := range len(s) {
		if up(i) && i > 0 && (!up(i-1) || i+1 < len(s) && !up(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(s[i])
	}
	return strings.ToLower(b.String())
}

type constant struct{ name, value string }

func constants() []constant {
	n := func(name string, v uint32) constant { return constant{name, fmt.Sprintf("%du", v)} }
	cs := []constant{
		n("HF_VERSION", Version), n("HF_MAX_PACKET", MaxPacket), n("HF_HEADER_SIZE", HeaderSize),
		n("HF_MAX_FDS", MaxFDs),
		{"HF_SIGNAL_OFFSET", fmt.Sprint(SignalOffset)}, {"HF_RUN_OFFSET", fmt.Sprint(RunOffset)},
		{"HF_CONTROL_COMM", fmt.Sprintf("%q", ControlComm)}, n("HF_RECONNECT_MS", ReconnectMillis),
		n("HF_ROOM_MS", RoomMillis), n("HF_SHARE_MS", ShareMillis),
	}
	for _, m := range messages() {
		cs = append(cs, n("HF_TYPE_"+m.Type().String(), uint32(m.Type())))
	}
	return append(cs,
		n("HF_HELLO_RESUME", HelloResume), n("HF_HELLO_READOPT", HelloReadopt), n("HF_HELLO_TRACE", HelloTrace),
		n("HF_HELLO_CALM", HelloCalm),
		n("HF_HELLO_PARK", HelloPark), n("HF_HELLO_FROZEN", HelloFrozen), n("HF_LEASE_SHUT", LeaseShut),
		n("HF_FAILED_PARK", FailedPark),
		n("HF_FAILED_OPEN", FailedOpen), n("HF_WELCOME_MOVE", WelcomeMove),
		n("HF_TAP_RECORD", TapRecord), n("HF_TAP_NO_CODE", TapNoCode), n("HF_ASK_WRITES", AskWrites),
		n("HF_ASK_READS", AskReads), n("HF_ASK_HOLD", AskHold),
		n("HF_GPU_NATIVE", GPUNative), n("HF_GPU_SOFT", GPUSoft),
		n("HF_KIND_LINEAR", KindLinear), n("HF_KIND_SLAB", KindSlab), n("HF_KIND_POOL", KindPool),
		n("HF_KIND_VMM", KindVMM), n("HF_KIND_MIRROR", KindMirror),
		n("HF_CAVEAT_MANAGED", CaveatManaged), n("HF_CAVEAT_IPC", CaveatIPC), n("HF_CAVEAT_EXPORTED", CaveatExported),
		n("HF_CAVEAT_EXTERNAL", CaveatExternal), n("HF_CAVEAT_GRAPHICS", CaveatGraphics),
		n("HF_CAVEAT_MULTICAST", CaveatMulticast),
		n("HF_CAVEAT_HOST_MEMORY", CaveatHostMemory), n("HF_CAVEAT_ARRAY", CaveatArray),
		n("HF_CAVEAT_GLOBALS", CaveatGlobals),
		n("HF_CAVEAT_DRIVER_MEMORY", CaveatDriverMemory), n("HF_CAVEAT_GRAPH_MEMORY", CaveatGraphMemory),
		n("HF_CAVEAT_PEER", CaveatPeer),
		n("HF_CAVEAT_GREEN", CaveatGreen),
		n("HF_CAVEAT_BLOCKS_FULL", CaveatBlocksFull), n("HF_CAVEAT_BLOCKS_GPU_ONLY", CaveatBlocksGPUOnly),
		n("HF_MODULE_UNKNOWN", ModuleUnknown), n("HF_MODULE_PTX", ModulePTX), n("HF_MODULE_CUBIN", ModuleCubin),
		n("HF_MODULE_FATBIN", ModuleFatbin),
		n("HF_FAILED_STATE", FailedState), n("HF_FAILED_INSIDE", FailedInside), n("HF_FAILED_CAPTURE", FailedCapture),
		n("HF_FAILED_SYNC", FailedSync),
		n("HF_FAILED_UNMAP", FailedUnmap), n("HF_FAILED_MAP", FailedMap), n("HF_FAILED_PROTOCOL", FailedProtocol),
		n("HF_FAILED_RELEASE", FailedRelease),
		n("HF_FAILED_BLOCKED", FailedBlocked), n("HF_FAILED_GLOBALS", FailedGlobals), n("HF_THAW_GLOBALS", ThawGlobals),
		n("HF_PAGE_MAGIC", PageMagic), n("HF_PAGE_SIZE", PageSize), n("HF_PAGE_SLOTS", PageSlots),
		n("HF_SLOT_SIZE", SlotSize), n("HF_MAX_SLOTS", MaxSlots),
		n("HF_GATE_OPEN", GateOpen), n("HF_GATE_CLOSED", GateClosed), n("HF_GATE_WATCHED", GateWatched),
		n("HF_TAP_MAGIC", TapMagic), n("HF_TAP_SIZE", TapSize), n("HF_TAP_CELLS", tapCells),
		n("HF_TAP_NCELLS", TapCells),
		n("HF_TAP_RING", tapRing), n("HF_TAP_RING_SIZE", TapRing), n("HF_TAP_HEAD", tapHead),
		n("HF_TAP_WAITS", tapWaits), n("HF_TAP_WAIT_NANOS", tapWaitNanos),
		n("HF_TAP_TAIL", tapTail), n("HF_TAP_READER", tapReader), n("HF_TAP_WRITER", tapWriter),
		n("HF_TAP_STOP", tapStop),
		n("HF_CELL_IDLE", cellIdle), n("HF_CELL_ASKS", cellAsks), n("HF_CELL_SLEEPS", cellSleeps),
		n("HF_OFF_GATE", offGate), n("HF_OFF_SLOTS", offSlots), n("HF_OFF_BYTES", offBytes),
		n("HF_OFF_ALLOCS", offAllocs),
		n("HF_OFF_REFUSED", offRefused), n("HF_OFF_WAITING", offWaiting),
		n("HF_SLOT_INSIDE", slotInside), n("HF_SLOT_CALL", slotCall), n("HF_SLOT_LAUNCHES", slotLaunches),
		n("HF_SLOT_GRAPHS", slotGraphs),
		n("HF_SLOT_COPIES", slotCopies), n("HF_SLOT_TID", slotTID),
	)
}
