package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"holdfast/internal/engine"
	"holdfast/internal/newfile"
	"holdfast/internal/recording"
)

// A piece is memory that a run may change and a later one depend on.
type piece struct {
	name  string // the same wherever the recording is loaded on such a backend
	addr  uint64
	bytes int64
}

// state is all such memory: live regions that are not constant, staging memory, variables. Of scratch regions the first
// contents do not count. whole is false if code may have variables more: the recording names only those that the
// program has asked for, and a driver library finds them by name alone.
func (p *Player) state() (list []piece, whole bool, err error) {
	m := p.f.Manifest
	for _, r := range m.Memory {
		if r.Class == recording.Live {
			list = append(list, piece{"memory " + r.Addr.String(), uint64(r.Addr), r.Bytes})
		}
	}
	if m.Staging.Bytes > 0 {
		list = append(list, piece{"staging " + m.Staging.Addr.String(), uint64(m.Staging.Addr), m.Staging.Bytes})
	}
	whole = true
	for i, c := range p.codes {
		if c, ok := c.(engine.Stateful); ok {
			for k, r := range c.Data() {
				list = append(list, piece{fmt.Sprintf("code %d data %d", i, k), r.Addr, int64(r.Size)})
			}
			continue
		}
		var names []string
		for _, v := range m.Variables {
			if v.Code != i {
				continue
			}
			addr, _, err := c.Symbol(v.Name)
			if err != nil {
				return nil, false, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			names = append(names, v.Name)
			list = append(list, piece{fmt.Sprintf("code %d variable %s", i, v.Name), addr, v.Contents.Bytes})
		}
		known, err := p.declares(i, names)
		if err != nil {
			return nil, false, err
		}
		whole = whole && known
	}
	return list, whole, nil
}

// declares reports whether code has surely no variables but those that are named. Of machine code it is not known.
func (p *Player) declares(code int, names []string) (bool, error) {
	g, err := p.image(&p.f.Manifest.Code[code])
	if err != nil || g.Kind != recording.PTX {
		return false, err
	}
	text, err := p.f.Read(g.Contents)
	return err == nil && onlyGlobals(string(text), names), err
}

// onlyGlobals reports whether PTX text declares no variables in global memory but these. What it cannot tell from a
// declaration it takes for one.
func onlyGlobals(text string, names []string) bool {
	const space = ".global"
	for {
		before, after, found := strings.Cut(text, space)
		if !found {
			return true
		}
		text = after
		if !declared(before) {
			continue
		}
		head := after[:max(0, strings.IndexAny(after+";", ";={"))]
		for _, word := range strings.FieldsFunc(head, separates) {
			number := word[0] >= '0' && word[0] <= '9'
			if word[0] != '.' && !number && !slices.Contains(names, word) {
				return false
			}
		}
	}
}

func separates(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) }

// declared reports whether what follows is a declaration, not the rest of an instruction's name or what a parameter
// points to.
func declared(before string) bool {
	for _, linkage := range []string{".visible", ".extern", ".weak", ".common"} {
		if strings.HasSuffix(before, linkage) {
			return true
		}
	}
	if strings.HasSuffix(strings.TrimRight(before, " \t\r\n"), ".ptr") || before == "" {
		return before == ""
	}
	last := before[len(before)-1]
	return last != '_' && (last < '0' || last > '9') && (last|0x20 < 'a' || last|0x20 > 'z')
}

// errHidden is why the state of a replay is not all known.
var errHidden = errors.New("its code may keep state in variables that the recording does not name, and this backend " +
	"does not say where they are: the raw backend does")

// A file of state, all numbers little endian: the magic, u32 version, u32 pieces, u64 runs that led to it, the digest
// of the recording's manifest; of each piece u64 bytes, u16 bytes of its name, the name; the pieces' contents, each
// 1 MiB of them behind a byte that is 0 if there are only zeros, which are left out, else 1; the SHA-256 of all that.
const (
	stateMagic   = "HFSTATE\n"
	stateVersion = 1
	stateHead    = 8 + 4 + 4 + 8 + sha256.Size
)

// ErrState is wrapped by the errors of files that hold no state of the recording.
var ErrState = errors.New("not a state of this recording")

// SaveState writes what later runs depend on to a file, after so many runs. It returns the file's size.
func (p *Player) SaveState(path string, runs uint64) (int64, error) {
	list, whole, err := p.state()
	if err == nil && !whole {
		err = errHidden
	}
	if err != nil {
		return 0, fmt.Errorf("state: %w", err)
	}
	f, err := newfile.Create(path)
	if err != nil {
		return 0, err
	}
	sum, size := sha256.New(), int64(sha256.Size)
	err = p.writeState(list, runs, func(b []byte) error {
		sum.Write(b)
		size += int64(len(b))
		_, err := f.Write(b)
		return err
	})
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err == nil {
		err = f.Finish(0o666)
	}
	if err != nil {
		f.Abort()
		return 0, fmt.Errorf("state: %w", err)
	}
	return size, nil
}

func (p *Player) writeState(list []piece, runs uint64, write func(b []byte) error) error {
	le := binary.LittleEndian
	head := []byte(stateMagic)
	head = le.AppendUint32(head, stateVersion)
	head = le.AppendUint32(head, uint32(len(list)))
	head = append(le.AppendUint64(head, runs), p.f.Digest[:]...)
	for _, x := range list {
		head = le.AppendUint64(head, uint64(x.bytes))
		head = append(le.AppendUint16(head, uint16(len(x.name))), x.name...)
	}
	if err := write(head); err != nil {
		return err
	}
	chunk := make([]byte, 1+recording.ChunkSize)
	for _, x := range list {
		for at := int64(0); at < x.bytes; at += recording.ChunkSize {
			b := chunk[:1+min(recording.ChunkSize, x.bytes-at)]
			if err := p.b.Read(x.addr+uint64(at), b[1:]); err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			if b[0] = 1; recording.IsZero(b[1:]) {
				b = []byte{0}
			}
			if err := write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// A State is a file of state that is open, and whole.
type State struct {
	Runs uint64 // that led to it

	Recording recording.Digest // whose it is
	pieces    []piece          // without addresses
	f         *os.File
	begin     int64 // of the contents
	end       int64
	at        int64 // what is read next
}

// OpenState opens a file of state and checks its digest.
func OpenState(path string) (*State, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &State{f: f}
	if err := s.open(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Close closes the file.
func (s *State) Close() error { return s.f.Close() }

func (s *State) open() error {
	st, err := s.f.Stat()
	if err != nil {
		return err
	}
	s.end = st.Size() - sha256.Size
	if s.end < stateHead {
		return fmt.Errorf("%w: %d bytes are too few", ErrState, st.Size())
	}
	sum := sha256.New()
	buf := make([]byte, recording.ChunkSize)
	for at := int64(0); at < s.end; at += recording.ChunkSize {
		part := buf[:min(recording.ChunkSize, s.end-at)]
		if _, err := s.f.ReadAt(part, at); err != nil {
			return err
		}
		sum.Write(part)
	}
	tail := make([]byte, sha256.Size)
	if _, err := s.f.ReadAt(tail, s.end); err != nil {
		return err
	}
	if !bytes.Equal(tail, sum.Sum(nil)) {
		return fmt.Errorf("%w: its digest is wrong, it is cut short or damaged", ErrState)
	}
	return s.readHead()
}

// take reads the next bytes that there are before the digest.
func (s *State) take(b []byte) error {
	if int64(len(b)) > s.end-s.at {
		return fmt.Errorf("%w: it is shorter than it says", ErrState)
	}
	_, err := s.f.ReadAt(b, s.at)
	s.at += int64(len(b))
	return err
}

// readHead reads all but the contents.
func (s *State) readHead() error {
	le := binary.LittleEndian
	var head [stateHead]byte
	if err := s.take(head[:]); err != nil {
		return err
	}
	if v := le.Uint32(head[8:]); string(head[:8]) != stateMagic || v != stateVersion {
		return fmt.Errorf("%w: it does not begin as one does, or is of another version", ErrState)
	}
	n := le.Uint32(head[12:])
	s.Runs = le.Uint64(head[16:])
	copy(s.Recording[:], head[24:])
	for range n {
		var b [10]byte
		if err := s.take(b[:]); err != nil {
			return err
		}
		name := make([]byte, le.Uint16(b[8:]))
		if err := s.take(name); err != nil {
			return err
		}
		s.pieces = append(s.pieces, piece{name: string(name), bytes: int64(le.Uint64(b[:]))})
	}
	s.begin = s.at
	return nil
}

// LoadState puts memory to what it was when the state was saved.
func (p *Player) LoadState(s *State) error {
	if s.Recording != p.f.Digest {
		return fmt.Errorf("%w: it is another recording's", ErrState)
	}
	list, whole, err := p.state()
	if err == nil && !whole {
		err = errHidden
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if len(list) != len(s.pieces) {
		return fmt.Errorf("%w: it was saved by another backend: %d pieces, here %d", ErrState, len(s.pieces), len(list))
	}
	for i, x := range list {
		if y := s.pieces[i]; x.name != y.name || x.bytes != y.bytes {
			return fmt.Errorf("%w: it was saved by another backend: %.80q (%d bytes), here %.80q (%d)", ErrState,
				y.name, y.bytes, x.name, x.bytes)
		}
	}
	return s.contents(list, p.b.Write)
}

// contents gives every chunk of the pieces to use.
func (s *State) contents(list []piece, use func(addr uint64, b []byte) error) error {
	buf, zeros := make([]byte, recording.ChunkSize), make([]byte, recording.ChunkSize)
	var kind [1]byte
	s.at = s.begin
	for _, x := range list {
		for at := int64(0); at < x.bytes; at += recording.ChunkSize {
			n := min(recording.ChunkSize, x.bytes-at)
			b := zeros[:n]
			err := s.take(kind[:])
			if err == nil && kind[0] > 1 {
				err = fmt.Errorf("%w: %s is damaged", ErrState, x.name)
			}
			if err == nil && kind[0] == 1 {
				b = buf[:n]
				err = s.take(b)
			}
			if err == nil {
				err = use(x.addr+uint64(at), b)
			}
			if err != nil {
				return err
			}
		}
	}
	if s.at != s.end {
		return fmt.Errorf("%w: there is more in it than its pieces", ErrState)
	}
	return nil
}
