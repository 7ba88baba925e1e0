package rm

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
)

// A Handle names an object of a client.
type Handle uint32

// A Client is a connection to the resource manager. What it has made ends with it. It is safe for concurrent use.
type Client struct {
	ABI     *ABI
	Version Version
	Root    Handle

	files Files
	ctl   File          // /dev/nvidiactl
	last  atomic.Uint32 // of the handles given out
}

// NewClient opens the control file, asks for the driver's version and refuses one that is not known (*VersionError).
func NewClient(files Files) (c *Client, err error) {
	ctl, err := files.Open("/dev/nvidiactl")
	if err != nil {
		return nil, err
	}
	c = &Client{files: files, ctl: ctl}
	c.last.Store(0x5c000000)
	defer func() {
		if err != nil {
			err = errors.Join(err, ctl.Close())
		}
	}()
	if c.Version, err = c.version(); err != nil {
		return nil, err
	}
	if c.ABI, err = ABIOf(c.Version); err != nil {
		return nil, err
	}
	// hObjectNew 0: the resource manager picks the client's handle, which must be unique among processes.
	if c.Root, err = c.alloc(0, 0, 0, NV01_ROOT_CLIENT, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// next is a handle that was not given out yet.
func (c *Client) next() Handle { return Handle(c.last.Add(1)) }

// Close frees everything.
func (c *Client) Close() error { return errors.Join(c.Free(c.Root, c.Root), c.ctl.Close()) }

// version asks the driver for its version, which must be done before anything whose form depends on it.
func (c *Client) version() (Version, error) {
	p := Nv_ioctl_rm_api_version_t{Cmd: NV_RM_API_VERSION_CMD_QUERY}
	if err := c.do(NV_ESC_CHECK_VERSION_STR, &p); err != nil {
		return Version{}, fmt.Errorf("version of the driver: %w", err)
	}
	return ParseVersion(cString(p.VersionString[:]))
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// do makes a request of the control file; p is the structure, whose answer comes back in it.
func (c *Client) do(nr uint32, p any, in ...Pointer) error { return doOn(c.ctl, nr, p, in...) }

func doOn(f File, nr uint32, p any, in ...Pointer) error {
	var a *ABI // the outer structures are the same in all versions
	b := a.Encode(p)
	if err := f.Ioctl(request(nr, len(b)), b, in...); err != nil {
		return err
	}
	a.Decode(b, p)
	return nil
}

// Alloc makes an object of a class below parent; params may be nil, and comes back as the driver left it.
func (c *Client) Alloc(parent Handle, class uint32, params any) (Handle, error) {
	return c.alloc(c.Root, parent, c.next(), class, params)
}

func (c *Client) alloc(root, parent, object Handle, class uint32, params any) (Handle, error) {
	p := NVOS21_PARAMETERS{HRoot: uint32(root), HObjectParent: uint32(parent), HObjectNew: uint32(object),
		HClass: class}
	var in []Pointer
	var body []byte
	if params != nil {
		body = c.ABI.Encode(params)
		p.ParamsSize = uint32(len(body))
		in = []Pointer{{At: 16, To: body}}
	}
	err := c.do(NV_ESC_RM_ALLOC, &p, in...)
	if err == nil {
		err = check(p.Status)
	}
	if err != nil {
		return 0, fmt.Errorf("make object of class %#x: %w", class, err)
	}
	if params != nil {
		c.ABI.Decode(body, params)
	}
	return Handle(p.HObjectNew), nil
}

// Control asks something of an object. params comes back as the driver left it.
func (c *Client) Control(object Handle, cmd uint32, params any, in ...Pointer) error {
	body := c.ABI.Encode(params)
	p := NVOS54_PARAMETERS{HClient: uint32(c.Root), HObject: uint32(object), Cmd: cmd, ParamsSize: uint32(len(body))}
	err := c.do(NV_ESC_RM_CONTROL, &p, Pointer{At: 16, To: body, In: in})
	if err == nil {
		err = check(p.Status)
	}
	if err != nil {
		return fmt.Errorf("control %#x: %w", cmd, err)
	}
	c.ABI.Decode(body, params)
	return nil
}

// Free ends an object and everything below it.
func (c *Client) Free(parent, object Handle) error {
	p := NVOS00_PARAMETERS{HRoot: uint32(c.Root), HObjectParent: uint32(parent), HObjectOld: uint32(object)}
	err := c.do(NV_ESC_RM_FREE, &p)
	if err == nil {
		err = check(p.Status)
	}
	if err != nil {
		return fmt.Errorf("free object %#x: %w", uint32(object), err)
	}
	return nil
}

// Cards lists the machine's GPUs.
func (c *Client) Cards() ([]Nv_ioctl_card_info_t, error) {
	var p [32]Nv_ioctl_card_info_t
	if err := c.do(NV_ESC_CARD_INFO, &p); err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	var cards []Nv_ioctl_card_info_t
	for _, card := range p {
		if card.Valid != 0 {
			cards = append(cards, card)
		}
	}
	return cards, nil
}

// OpenDevice opens the file of a GPU, which makes the GPU ready, and ties it to this client.
func (c *Client) OpenDevice(minor uint32) (File, error) {
	f, err := c.files.Open(fmt.Sprintf("/dev/nvidia%d", minor))
	if err != nil {
		return nil, err
	}
	p := Nv_ioctl_register_fd_t{c.ctl.Fd()}
	if err := doOn(f, NV_ESC_REGISTER_FD, &p); err != nil {
		return nil, errors.Join(fmt.Errorf("tie /dev/nvidia%d to its control file: %w", minor, err), f.Close())
	}
	return f, nil
}

// A Mapping is memory of an object as this process sees it.
type Mapping struct {
	Bytes []byte
	file  File
	files Files
}

// Map maps length bytes of an object: of a device through its file, of system memory through a control file. via is a
// fresh file, which the mapping keeps.
func (c *Client) Map(device, object Handle, via File, length int, flags uint32) (*Mapping, error) {
	p := Nv_ioctl_nvos33_parameters_with_fd{HClient: uint32(c.Root), HDevice: uint32(device), HMemory: uint32(object),
		Length: uint64(length), Flags: flags, Fd: via.Fd()}
	err := c.do(NV_ESC_RM_MAP_MEMORY, &p)
	if err == nil {
		err = check(p.Status)
	}
	var b []byte
	if err == nil {
		b, err = via.Map(length)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %d bytes of object %#x: %w", length, uint32(object), err), via.Close())
	}
	return &Mapping{b, via, c.files}, nil
}

// OpenControl opens another control file, for Map.
func (c *Client) OpenControl() (File, error) { return c.files.Open("/dev/nvidiactl") }

// Close ends the mapping.
func (m *Mapping) Close() error { return errors.Join(m.files.Unmap(m.Bytes), m.file.Close()) }

// Pin makes a memory object of pages of this process. dev is a device's file; pages stay where they are until the
// object is freed.
func (c *Client) Pin(dev File, device Handle, pages []byte) (Handle, error) {
	p := Nv_ioctl_nvos02_parameters_with_fd{HRoot: uint32(c.Root), HObjectParent: uint32(device),
		HObjectNew: uint32(c.next()),
		HClass:     NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, Limit: uint64(len(pages)) - 1, Fd: -1,
		Flags: NVOS02_FLAGS_PHYSICALITY_NONCONTIGUOUS | NVOS02_FLAGS_COHERENCY_CACHED | NVOS02_FLAGS_MAPPING_NO_MAP}
	err := doOn(dev, NV_ESC_RM_ALLOC_MEMORY, &p, Pointer{At: 24, To: pages})
	if err == nil {
		err = check(p.Status)
	}
	if err != nil {
		return 0, fmt.Errorf("pin %d bytes: %w", len(pages), err)
	}
	return Handle(p.HObjectNew), nil
}

// GRInfo asks about the compute engine: one answer for each index.
func (c *Client) GRInfo(subdevice Handle, index ...uint32) ([]uint32, error) {
	list := make([]NV2080_CTRL_GR_INFO, len(index))
	for i, n := range index {
		list[i].Index = n
	}
	b := c.ABI.Encode(list)
	p := NV2080_CTRL_GR_GET_INFO_PARAMS{GrInfoListSize: uint32(len(index))}
	if err := c.Control(subdevice, NV2080_CTRL_CMD_GR_GET_INFO, &p, Pointer{At: 8, To: b}); err != nil {
		return nil, err
	}
	c.ABI.Decode(b, list)
	data := make([]uint32, len(index))
	for i := range list {
		data[i] = list[i].Data
	}
	return data, nil
}

// UUID is the GPU's.
func (c *Client) UUID(subdevice Handle) (uuid [16]byte, err error) {
	p := NV2080_CTRL_GPU_GET_GID_INFO_PARAMS{Flags: NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY, Length: 16}
	if err := c.Control(subdevice, NV2080_CTRL_CMD_GPU_GET_GID_INFO, &p); err != nil {
		return uuid, err
	}
	return [16]byte(p.Data[:16]), nil
}
