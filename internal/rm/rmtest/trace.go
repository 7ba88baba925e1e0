package rmtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/internal/rm"
)

// An arena is memory that this process and a traced one share: a file without a name.
type arena struct {
	file   *os.File
	all    []byte
	used   int
	places map[*byte]int // where what was taken begins
}

const arenaSize = 4 << 30 // of addresses; it has the pages that were written

func newArena() (*arena, error) {
	fd, err := unix.MemfdCreate("rmtest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	a := &arena{file: os.NewFile(uintptr(fd), "rmtest"), places: map[*byte]int{}}
	if err = a.file.Truncate(arenaSize); err == nil {
		a.all, err = unix.Mmap(fd, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(err, a.file.Close())
	}
	return a, nil
}

func (a *arena) take(n int) []byte {
	const page = 4096
	b := a.all[a.used:][:n:n]
	a.places[&b[0]] = a.used
	a.used += (n + page - 1) &^ (page - 1)
	return b
}

func (a *arena) close() error { return errors.Join(unix.Munmap(a.all), a.file.Close()) }

// A process is a traced one: its system calls about device files are answered here.
type process struct {
	d     *Driver
	pid   int
	files map[uint64]*file  // by its descriptors
	pages map[uint64][]byte // memory of its own that it could pin, by address
	begun bool              // it is inside a system call,
	after func(r *unix.PtraceRegs) error
}

// Trace runs a program to its end, for which the driver is that of the machine. The program is the one that ships: it
// is stopped at each of its system calls, and those about device files are done by the driver. Memory that the driver
// gives it is shared. A doorbell is noticed at the next system call, so whoever waits must make one now and then. It
// returns the exit status. The driver can be looked at afterwards, until release is called.
func (d *Driver) Trace(cmd *exec.Cmd) (status int, release func() error, err error) {
	if d.arena, err = newArena(); err != nil {
		return 0, nil, err
	}
	release = d.arena.close
	runtime.LockOSThread() // ptrace is a thread's
	defer runtime.UnlockOSThread()
	cmd.ExtraFiles = []*os.File{d.arena.file}
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, release, err
	}
	p := &process{d: d, pid: cmd.Process.Pid, files: map[uint64]*file{}, pages: map[uint64][]byte{}}
	if status, err = p.run(); err != nil {
		err = errors.Join(err, cmd.Process.Kill())
	}
	return status, release, errors.Join(err, cmd.Process.Release())
}

const shared = 3 // the arena's descriptor in the program

func (p *process) run() (int, error) {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(p.pid, &ws, 0, nil); err != nil {
		return 0, err
	}
	if err := unix.PtraceSetOptions(p.pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, err
	}
	for signal := 0; ; {
		if err := unix.PtraceSyscall(p.pid, signal); err != nil {
			return 0, err
		}
		if _, err := unix.Wait4(p.pid, &ws, 0, nil); err != nil {
			return 0, err
		}
		switch {
		case ws.Exited():
			return ws.ExitStatus(), nil
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case ws.StopSignal() == unix.SIGTRAP|0x80:
			signal = 0
			if err := p.stopped(); err != nil {
				return 0, err
			}
		default:
			signal = int(ws.StopSignal())
		}
	}
}

// stopped looks at a system call, when it begins and when it has ended.
func (p *process) stopped() error {
	p.doorbells()
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(p.pid, &r); err != nil {
		return err
	}
	if p.begun = !p.begun; !p.begun {
		if p.after == nil {
			return nil
		}
		err := p.after(&r)
		p.after = nil
		return errors.Join(err, unix.PtraceSetRegs(p.pid, &r))
	}
	var err error
	switch r.Orig_rax {
	case unix.SYS_OPEN:
		err = p.open(&r)
	case unix.SYS_CLOSE:
		if f := p.files[r.Rdi]; f != nil {
			delete(p.files, r.Rdi)
			err = f.Close()
		}
	case unix.SYS_IOCTL:
		err = p.ioctl(&r)
	case unix.SYS_MMAP:
		err = p.mmap(&r)
	case unix.SYS_FORK, unix.SYS_CLONE, unix.SYS_EXECVE, unix.SYS_OPENAT, unix.SYS_MUNMAP, unix.SYS_DUP:
		err = fmt.Errorf("system call %d is not played", r.Orig_rax)
	}
	return errors.Join(err, unix.PtraceSetRegs(p.pid, &r))
}

// doorbells rings those into which something was put.
func (p *process) doorbells() {
	for _, word := range p.d.bells {
		if token := le.Uint32(word); token != 0 {
			clear(word)
			p.d.ring(token)
		}
	}
}

// skip has the system call not be made, and return a value.
func (p *process) skip(r *unix.PtraceRegs, result int64) {
	r.Orig_rax = ^uint64(0)
	p.after = func(r *unix.PtraceRegs) error { r.Rax = uint64(result); return nil }
}

// text is what stands at an address, up to a zero.
func (p *process) text(at uint64) (string, error) {
	var s []byte
	for b := make([]byte, 1); ; at++ {
		if err := p.read(at, b); err != nil {
			return "", err
		}
		if b[0] == 0 {
			return string(s), nil
		}
		s = append(s, b[0])
	}
}

func (p *process) read(at uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := unix.ProcessVMReadv(p.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

func (p *process) write(at uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := unix.ProcessVMWritev(p.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// open makes the opening of a device file a copy of the arena's descriptor.
func (p *process) open(r *unix.PtraceRegs) error {
	path, err := p.text(r.Rdi)
	if err != nil || !strings.HasPrefix(path, "/dev/nvidia") {
		return err
	}
	opened, err := p.d.Open(path)
	if err != nil {
		p.skip(r, -int64(unix.ENOENT))
		return nil
	}
	f := opened.(*file)
	r.Orig_rax, r.Rdi = unix.SYS_DUP, shared
	p.after = func(r *unix.PtraceRegs) error {
		if int64(r.Rax) < 0 {
			return fmt.Errorf("dup: %w", unix.Errno(-int64(r.Rax)))
		}
		delete(p.d.open, f.fd)
		f.fd = int32(r.Rax)
		p.d.open[f.fd], p.files[r.Rax] = f, f
		return nil
	}
	return nil
}

// mmap has memory that a device gives, or that could be pinned, be the arena's.
func (p *process) mmap(r *unix.PtraceRegs) error {
	size, fd := int(r.Rsi), int32(r.R8)
	var b []byte
	switch f := p.files[uint64(uint32(fd))]; {
	case fd >= 0 && f != nil:
		var err error
		if b, err = f.Map(size); err != nil {
			p.skip(r, -int64(unix.EINVAL))
			return nil
		}
	case fd < 0 && r.R10&unix.MAP_SHARED != 0:
		b = p.d.arena.take(size)
		r.R10 &^= unix.MAP_ANONYMOUS
		p.after = func(r *unix.PtraceRegs) error { p.pages[r.Rax] = b; return nil }
	default:
		return nil
	}
	r.R8, r.R9 = shared, uint64(p.d.arena.places[&b[0]])
	return nil
}

// ioctl has the driver answer.
func (p *process) ioctl(r *unix.PtraceRegs) error {
	f := p.files[r.Rdi]
	if f == nil {
		return fmt.Errorf("ioctl of descriptor %d", r.Rdi)
	}
	request, at := uint32(r.Rsi), r.Rdx
	arg := make([]byte, request>>16&0x3fff)
	if err := p.read(at, arg); err != nil {
		return err
	}
	in, err := p.pointers(request&0xff, arg)
	if err != nil {
		return err
	}
	if err := f.Ioctl(request, arg, in...); err != nil {
		p.d.wrong("%w", err)
		p.skip(r, -int64(unix.EINVAL))
		return nil
	}
	p.skip(r, 0)
	return errors.Join(p.write(at, arg), p.back(request&0xff, arg, in))
}

// pointers gets what a structure of the program points to.
func (p *process) pointers(nr uint32, arg []byte) ([]rm.Pointer, error) {
	switch nr {
	case rm.NV_ESC_RM_ALLOC_MEMORY:
		pages := p.pages[le.Uint64(arg[24:])]
		if pages == nil {
			return nil, fmt.Errorf("no pages at %#x", le.Uint64(arg[24:]))
		}
		return []rm.Pointer{{At: 24, To: pages}}, nil
	case rm.NV_ESC_RM_ALLOC, rm.NV_ESC_RM_CONTROL:
	default:
		return nil, nil
	}
	at, n := le.Uint64(arg[16:]), le.Uint32(arg[24:])
	if at == 0 {
		return nil, nil
	}
	to := make([]byte, n)
	if err := p.read(at, to); err != nil {
		return nil, err
	}
	out := rm.Pointer{At: 16, To: to}
	if nr == rm.NV_ESC_RM_CONTROL && le.Uint32(arg[8:]) == rm.NV2080_CTRL_CMD_GR_GET_INFO {
		list := make([]byte, 8*le.Uint32(to))
		if err := p.read(le.Uint64(to[8:]), list); err != nil {
			return nil, err
		}
		out.In = []rm.Pointer{{At: 8, To: list}}
	}
	return []rm.Pointer{out}, nil
}

// back writes what the driver has left in what a structure points to.
func (p *process) back(nr uint32, arg []byte, in []rm.Pointer) error {
	if nr == rm.NV_ESC_RM_ALLOC_MEMORY || len(in) == 0 {
		return nil
	}
	err := p.write(le.Uint64(arg[16:]), in[0].To)
	for _, deeper := range in[0].In {
		err = errors.Join(err, p.write(le.Uint64(in[0].To[deeper.At:]), deeper.To))
	}
	return err
}
