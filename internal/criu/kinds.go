package criu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A kind is something that CRIU does not dump, by the name that /proc gives its descriptors and mappings.
type kind struct {
	prefix string // of that name
	what   string // it is
	who    string // usually opens it
	remedy string
}

const (
	closeNVML = "call nvmlShutdown before, or start the program without what opens it"
	closeIt   = "close it before, or start the program without it"
)

const pidfdLink = "anon_inode:[pidfd]" // those of the tree are dumped

// kinds is searched from the top. What CUDA itself has open is away by the time of a dump: what is left of NVIDIA's
// was opened beside it.
var kinds = []kind{
	{"/dev/nvidia-caps", "a capability of NVIDIA's driver", "NVML or NCCL (MIG, fabric)", closeNVML},
	{"/dev/nvidiactl", "NVIDIA's driver, not through CUDA", "NVML or NCCL, sometimes graphics", closeNVML},
	{"/dev/nvidia-modeset", "NVIDIA's display driver", "graphics (EGL, Vulkan)", closeIt},
	{"/dev/nvidia-uvm", "NVIDIA's unified memory", "a CUDA context that was not taken down",
		"hold every process of the program that uses CUDA"},
	{"/dev/nvidia-nvswitch", "an NVSwitch", "a fabric manager", closeIt},
	{"/dev/nvidia", "a GPU, not through CUDA", "NVML or NCCL, sometimes graphics", closeNVML},
	{"/dev/dri/", "a graphics card", "EGL, Vulkan or video decoding", "start the program without graphics"},
	{"/dev/infiniband/", "an InfiniBand card", "NCCL, UCX or MPI", "NCCL_IB_DISABLE=1 makes NCCL use sockets"},
	{"/dev/gdrdrv", "GDRCopy", "NCCL or UCX", "start the program without GDRCopy"},
	{"/dev/kvm", "KVM", "a virtual machine", closeIt},
	{"/dev/fuse", "a FUSE file system", "the one who serves it", "serve it from a program of its own"},
	{"anon_inode:[io_uring]", "an io_uring", "libuv (Node.js, PyTorch's TCPStore) or a database",
		"UV_USE_IO_URING=0 makes libuv do without, USE_LIBUV=0 PyTorch's TCPStore"},
	{"anon_inode:[perf_event]", "a performance counter", "a profiler", "end the profiling before"},
	{"anon_inode:[userfaultfd]", "a userfaultfd", "a memory manager or virtual machine", closeIt},
	{pidfdLink, "a descriptor of a process outside of the tree", "multiprocessing, asyncio or a supervisor", closeIt},
	{"anon_inode:bpf", "a BPF object", "a tracer", closeIt},
	{"anon_inode:[landlock-ruleset]", "a Landlock rule set", "a sandbox", "close it when the rules are in force"},
	{"anon_inode:seccomp", "a seccomp listener", "a sandbox", closeIt},
	{"anon_inode:kvm", "a virtual machine", "the one who runs it", closeIt},
	{"/dmabuf:", "a buffer of a device", "graphics or RDMA", closeIt},
	{"anon_inode:dmabuf", "a buffer of a device", "graphics or RDMA", closeIt},
	{"anon_inode:sync_file", "a fence of a device", "graphics", closeIt},
}

func kindOf(link string) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return strings.HasPrefix(link, k.prefix) })
	if i < 0 {
		return kind{remedy: "close it before"}, false
	}
	return kinds[i], true
}

// is says what a link of that kind leads to.
func (k kind) is() string {
	if k.what == "" {
		return "a file of a kind that cannot be dumped"
	}
	return k.what + " (usually opened by " + k.who + ")"
}

// find looks a descriptor up; its link stays empty if the process has closed it.
func find(pid, fd int) descriptor {
	link, _ := os.Readlink(procPath(pid, "fd/"+strconv.Itoa(fd)))
	return descriptor{pid: pid, fd: fd, link: link}
}

// named is the descriptor with what it leads to.
func (d descriptor) named() string {
	if d.link == "" {
		return d.String()
	}
	return fmt.Sprintf("%s (%s)", d, d.link)
}

// refused names descriptors that cannot be dumped, and says what to do about the first. at is the one at which CRIU
// stopped, nil if its log does not say; more of the kinds that are known follow, so that not every attempt finds
// just one.
func refused(at *descriptor, pids []int, prefix string) (reason, remedy string) {
	var list []descriptor
	if at != nil {
		list = append(list, *at)
	}
	for _, pid := range pids {
		all, _ := descriptors(pid)
		for _, d := range all {
			if at != nil && d.pid == at.pid && d.fd == at.fd {
				continue
			}
			if _, known := kindOf(d.link); known && strings.HasPrefix(d.link, prefix) &&
				!strings.HasPrefix(d.link, pidfdLink) {
				list = append(list, d)
			}
		}
	}
	if len(list) == 0 {
		return "", ""
	}
	k, _ := kindOf(list[0].link)
	reason = list[0].named() + ": " + k.is()
	var more []string
	for _, d := range list[1:] {
		more = append(more, d.named())
	}
	if len(more) > 0 {
		reason += "; also " + abbreviate(more)
	}
	return reason, k.remedy
}

// mapping names a mapping of a process, and what it is of.
func mapping(pid int, addr string) (reason, remedy string) {
	reason = fmt.Sprintf("process %d: mapping at 0x%s", pid, addr)
	remedy = "a device mapping cannot be dumped: it has to be released before (is the GPU state checkpointed?)"
	maps, _ := os.ReadFile(procPath(pid, "maps"))
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(line, addr+"-") || len(f) <= 5 {
			continue
		}
		link := strings.Join(f[5:], " ")
		reason += " (" + link + ")"
		if k, known := kindOf(link); known {
			reason, remedy = reason+": "+k.is(), k.remedy
		}
	}
	return reason, remedy
}
