package rm

// Files opens device files. OS is the machine's.
type Files interface {
	Open(path string) (File, error)
	// Memory is zeroed memory of this process, page-aligned.
	Memory(size int) ([]byte, error)
	// Unmap ends memory that Memory or File.Map has made.
	Unmap(b []byte) error
	// Ring puts token into a doorbell, after everything that was written before.
	Ring(doorbell []byte, token uint32)
}

// A File is an open device file.
type File interface {
	Fd() int32
	// Ioctl makes a request; the driver may change arg and everything that in points to.
	Ioctl(request uint32, arg []byte, in ...Pointer) error
	// Map maps the file from its start: what the resource manager was asked to put there.
	Map(size int) ([]byte, error)
	Close() error
}

// A Pointer is an address inside an argument: at byte At stands the address of To, which may hold addresses itself.
type Pointer struct {
	At int
	To []byte
	In []Pointer
}

// request is the ioctl of the resource manager (_IOWR('F', nr, size)).
func request(nr uint32, size int) uint32 { return 3<<30 | uint32(size)<<16 | 'F'<<8 | nr }
