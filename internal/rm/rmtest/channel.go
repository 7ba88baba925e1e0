package rmtest

import (
	"bytes"
	"errors"
	"fmt"
)

// Memory is the GPU's view of memory.
type Memory struct{ maps []mapping }

type mapping struct {
	at    uint64
	bytes []byte
}

// place maps bytes at a device address.
func (m *Memory) place(at, size uint64, bytes []byte) uint32 {
	if size == 0 || uint64(len(bytes)) < size || at%4096 != 0 {
		return invalidArg
	}
	for _, old := range m.maps {
		if at < old.at+uint64(len(old.bytes)) && old.at < at+size {
			return addressInUse
		}
	}
	m.maps = append(m.maps, mapping{at, bytes[:size]})
	return okay
}

func (m *Memory) unmap(at uint64) uint32 {
	for i, old := range m.maps {
		if old.at == at {
			m.maps = append(m.maps[:i], m.maps[i+1:]...)
			return okay
		}
	}
	return invalidArg
}

// Bytes is n bytes at a device address; nil if they are not mapped as one.
func (m *Memory) Bytes(at, n uint64) []byte {
	b := m.rest(at)
	if b == nil || n > uint64(len(b)) {
		return nil
	}
	return b[:n]
}

// rest is what is mapped from a device address on, to the end of its mapping; nil for nothing.
func (m *Memory) rest(at uint64) []byte {
	for _, old := range m.maps {
		if at >= old.at && at-old.at < uint64(len(old.bytes)) {
			return old.bytes[at-old.at:]
		}
	}
	return nil
}

// each calls f for the parts of n bytes at a device address, mapping by mapping; false if some are not mapped.
func (m *Memory) each(at, n uint64, f func(part []byte)) bool {
	for n > 0 {
		part := m.rest(at)
		if part == nil {
			return false
		}
		part = part[:min(n, uint64(len(part)))]
		f(part)
		at, n = at+uint64(len(part)), n-uint64(len(part))
	}
	return true
}

// A channel is one that runs what its ring says.
type channel struct {
	token     uint32
	group     uint32
	space     *Memory
	ring      uint64
	entries   uint32
	get       uint32
	userd     []byte
	notifier  []byte
	scheduled bool
	dead      bool
	launches  int
	ahead     map[uint64]int // launches that were scheduled and wait for so many others, by descriptor
	clock     uint64
	state     map[uint32]uint32 // last value of each method, of all subchannels
}

var errHang = errors.New("hang")

// run takes entries until there are none left, or until something fails.
func (c *channel) run(d *Driver) {
	if c.state == nil {
		c.state = map[uint32]uint32{}
	}
	put := le.Uint32(c.userd[0x8c:])
	for !c.dead && c.get != put {
		entry := le.Uint64(c.space.Bytes(c.ring+8*uint64(c.get), 8))
		c.get = (c.get + 1) % c.entries
		push := c.space.Bytes(entry&0xfffffffffc, entry>>42&(1<<21-1)*4)
		if push == nil {
			d.wrong("pushbuffer at %#x is not mapped", entry&0xfffffffffc)
			return
		}
		d.Pushes = append(d.Pushes, Push{entry & 0xfffffffffc, bytes.Clone(push)})
		err := c.words(d, push)
		if errors.Is(err, errHang) {
			c.dead = true
			return
		}
		if err != nil {
			c.fail(d, err)
		}
	}
	le.PutUint32(c.userd[0x88:], c.get)
}

// fail reports an error of the channel, as the driver does: the kernel's (13), or an address (31). All channels of a
// group have it.
func (c *channel) fail(d *Driver, err error) {
	d.Methods = append(d.Methods, "fault: "+err.Error())
	code := uint32(13)
	if d.FaultAt != 0 {
		code = 31
	}
	for _, o := range d.channels {
		if o.group == c.group {
			o.dead = true
			le.PutUint32(o.notifier[8:], code)
			le.PutUint16(o.notifier[14:], 0xffff)
		}
	}
}

// words runs a pushbuffer.
func (c *channel) words(d *Driver, push []byte) error {
	for len(push) >= 4 {
		h := le.Uint32(push)
		push = push[4:]
		kind, count, sub, at := h>>29, h>>16&0x1fff, h>>13&7, h&0x1fff<<2
		if kind == 4 {
			if err := c.method(d, sub, at, count); err != nil {
				return err
			}
			continue
		}
		if kind != 1 || uint64(count)*4 > uint64(len(push)) {
			return fmt.Errorf("method header %#x", h)
		}
		for i := range count {
			if err := c.method(d, sub, at+4*i, le.Uint32(push[4*i:])); err != nil {
				return err
			}
		}
		push = push[4*count:]
	}
	return nil
}

// method runs one.
func (c *channel) method(d *Driver, sub, at, value uint32) error {
	if at < 0x100 {
		sub = 0
	}
	c.state[sub<<16|at] = value
	get := func(at uint32) uint64 { return uint64(c.state[sub<<16|at]) }
	switch sub<<16 | at {
	case 0x6c:
		return c.semaphore(d, value, get(0x60)<<32|get(0x5c), get(0x68)<<32|get(0x64))
	case 1<<16 | 0x110:
		if len(c.ahead) > 0 {
			return fmt.Errorf("%d grids wait for others, and nothing waits for them", len(c.ahead))
		}
		d.Methods = append(d.Methods, "idle")
	case 1<<16 | 0x21c:
		d.Methods = append(d.Methods, "new code")
	case 1<<16 | 0x1698:
		d.Methods = append(d.Methods, "invalidate")
	case 1<<16 | 0x790 + 4:
		d.Methods = append(d.Methods, "local memory")
	case 1<<16 | 0x2c0:
		return c.schedule(d, get(0x2b4)<<8, value)
	case 4<<16 | 0x300:
		return c.move(d, value, get)
	}
	return nil
}

// semaphore releases or acquires.
func (c *channel) semaphore(d *Driver, do uint32, at, payload uint64) error {
	size := uint64(4)
	if do>>24&1 == 1 {
		size = 8
	}
	b := c.space.Bytes(at, size)
	if b == nil {
		return fmt.Errorf("semaphore at %#x", at)
	}
	old := uint64(le.Uint32(b))
	if size == 8 {
		old = le.Uint64(b)
	}
	switch do & 7 {
	case 1:
		if size == 8 {
			le.PutUint64(b, payload)
		} else {
			le.PutUint32(b, uint32(payload))
		}
		if do>>25&1 == 1 {
			c.clock += 32
			le.PutUint64(c.space.Bytes(at+8, 8), c.clock)
		}
		if do>>20&1 == 1 {
			d.Methods = append(d.Methods, "release")
		}
	case 3:
		if old < payload { // nobody else will ever release it
			d.Methods = append(d.Methods, fmt.Sprintf("acquire %d of %d", old, payload))
			return errHang
		}
		d.Methods = append(d.Methods, "acquire")
	default:
		return fmt.Errorf("semaphore operation %#x", do)
	}
	return nil
}

// schedule starts a grid at once, or lets it wait for others to count it down.
func (c *channel) schedule(d *Driver, at uint64, action uint32) error {
	const down, ahead = 7, 10 // DECREMENT_DEPENDENCE, INVALIDATE_PREFETCH_COPY_SCHEDULE
	switch action {
	case down:
		return c.countDown(d, at)
	case ahead:
	default:
		return c.launch(d, at)
	}
	descriptor := c.space.Bytes(at, 384)
	if descriptor == nil {
		return fmt.Errorf("descriptor at %#x", at)
	}
	n := d.Counter(descriptor)
	if n == 0 || len(c.ahead) == mostAhead {
		return fmt.Errorf("descriptor at %#x is scheduled ahead, waits for %d, beside %d others", at, n, len(c.ahead))
	}
	if c.ahead == nil {
		c.ahead = map[uint64]int{}
	}
	c.ahead[at] = n
	d.Methods = append(d.Methods, "ahead")
	return nil
}

// mostAhead is how many grids wait at most: an H200 was seen to take 300.
const mostAhead = 64

// countDown counts a grid that was scheduled ahead down by one, and runs it if that was the last.
func (c *channel) countDown(d *Driver, at uint64) error {
	n, ok := c.ahead[at]
	if !ok {
		return fmt.Errorf("descriptor at %#x is counted down and was not scheduled ahead", at)
	}
	if c.ahead[at] = n - 1; n > 1 {
		return nil
	}
	delete(c.ahead, at)
	d.Methods = append(d.Methods, "counted")
	return c.launch(d, at)
}

// launch runs a grid, and those that it starts.
func (c *channel) launch(d *Driver, at uint64) error {
	for at != 0 {
		if c.launches++; d.Hang >= 0 && c.launches > d.Hang {
			return errHang
		}
		descriptor := c.space.Bytes(at, 384)
		if descriptor == nil {
			return fmt.Errorf("descriptor at %#x", at)
		}
		d.Methods = append(d.Methods, "launch")
		if err := d.Kernel(c.space, at); err != nil {
			return err
		}
		then := d.Next(descriptor)
		if then.Release != nil {
			then.Release(c.space)
		}
		for _, next := range then.Count {
			if err := c.countDown(d, next); err != nil {
				return err
			}
		}
		at = 0
		for i, next := range then.Start {
			d.Methods = append(d.Methods, "chained")
			if i+1 == len(then.Start) {
				at = next
			} else if err := c.launch(d, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// move copies or sets, and writes the copy engine's semaphore.
func (c *channel) move(d *Driver, do uint32, get func(uint32) uint64) error {
	if do&3 != 0 {
		if err := c.lines(d, do, get); err != nil {
			return err
		}
	}
	if do>>3&3 == 1 {
		b := c.space.Bytes(get(0x240)<<32|get(0x244), 4)
		if b == nil {
			return errors.New("semaphore of the copy engine")
		}
		le.PutUint32(b, uint32(get(0x248)))
		d.Methods = append(d.Methods, "joined")
	}
	return nil
}

func (c *channel) lines(d *Driver, do uint32, get func(uint32) uint64) error {
	src, dst := get(0x400)<<32|get(0x404), get(0x408)<<32|get(0x40c)
	from, to, width, height := get(0x410), get(0x414), get(0x418), uint64(1)
	if do>>9&1 == 1 {
		height = get(0x41c)
	}
	size, remap := uint64(1), do>>10&1 == 1
	if remap {
		size = get(0x708)>>16&3 + 1
		if get(0x708)&7 != 4 {
			return errors.New("remap of another component than constant A")
		}
	}
	// LAUNCHERR_REPORT_SRC_LINE_EXCEEDS_PITCH and its like (dev_ce.ref.txt); the source counts in a set too.
	if height > 1 && (from < width*size || to < width*size) {
		return fmt.Errorf("line of %d bytes, pitches %d and %d", width*size, from, to)
	}
	value := get(0x700)
	for y := range height {
		line := make([]byte, width*size)
		for x := range line {
			line[x] = byte(value >> (8 * (uint64(x) % size)))
		}
		if !remap {
			at := 0
			if !c.space.each(src+y*from, width, func(part []byte) { at += copy(line[at:], part) }) {
				return fmt.Errorf("copy from %#x", src+y*from)
			}
		}
		if !c.space.each(dst+y*to, width*size, func(part []byte) { line = line[copy(part, line):] }) {
			return fmt.Errorf("copy to %#x", dst+y*to)
		}
	}
	d.Methods = append(d.Methods, map[bool]string{false: "copy", true: "set"}[remap])
	return nil
}
