// Command launch measures what launches cost on a channel of our own, without libcuda, and how long it takes from the
// start of a process to a first result. bench/replay/launch.sh runs it beside the same by libcuda, and prints the
// table of docs/results/replay.md.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 2 || args[0] != "launch" && args[0] != "cold" {
		fmt.Fprintln(stderr, "usage: launch launch|cold CUBIN")
		return 2
	}
	image, err := os.ReadFile(args[1])
	if err == nil {
		err = measure(args[0], image, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

const base = 0x7f00_0000_0000

func measure(what string, image []byte, w io.Writer) error {
	begin := time.Now()
	b, err := raw.Open(raw.Options{})
	if err != nil {
		return err
	}
	opened := time.Since(begin)
	err = b.Map(base, 64<<20)
	var c engine.Code
	if err == nil {
		c, err = b.Load(image)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if what == "cold" {
		// The driver closes what a process that ends leaves open, here as in the peer.
		return cold(w, b, c, begin, opened)
	}
	return errors.Join(launches(w, b, c), b.Close())
}

// cold adds two arrays and compares.
func cold(w io.Writer, b *raw.Backend, c engine.Code, begin time.Time, opened time.Duration) error {
	const n = 1 << 16
	buf := make([]byte, 4*n)
	for i := range uint32(n) {
		binary.LittleEndian.PutUint32(buf[4*i:], i)
	}
	k, err := c.Kernel("add")
	if err == nil {
		err = errors.Join(b.Write(base, buf), b.Write(base+4<<20, buf))
	}
	if err != nil {
		return err
	}
	var params []byte
	for _, v := range []uint64{base, base + 4<<20, base + 8<<20} {
		params = binary.LittleEndian.AppendUint64(params, v)
	}
	l := &engine.Launch{Kernel: k, Grid: [3]uint32{n / 256, 1, 1}, Block: [3]uint32{256, 1, 1},
		Params: binary.LittleEndian.AppendUint32(params, n)}
	p, err := b.Prepare([]engine.Word{{Ops: []engine.Op{{Launch: l}}}})
	if err == nil {
		err = errors.Join(p.Run(10*time.Second), b.Read(base+8<<20, buf))
	}
	if err != nil {
		return err
	}
	for i := range uint32(n) {
		if x := binary.LittleEndian.Uint32(buf[4*i:]); x != 2*i {
			return fmt.Errorf("element %d is %d", i, x)
		}
	}
	_, err = fmt.Fprintf(w, "ok: opened after %.1f ms, result after %.1f ms\n", ms(opened), ms(time.Since(begin)))
	return err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rounds is how many runs a figure is the median of.
const rounds = 31

// launches prints a line for each number of launches: independent and dependent ones, by the GPU's clock and by ours.
func launches(w io.Writer, b *raw.Backend, c engine.Code) error {
	k, err := c.Kernel("empty")
	if err != nil {
		return err
	}
	one := engine.Op{Launch: &engine.Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}}
	for _, n := range []int{1, 10, 100, 1000} {
		together := engine.Word{Ops: slices.Repeat([]engine.Op{one}, n)}
		for _, way := range []struct {
			name  string
			words []engine.Word
		}{{"independent", []engine.Word{together}}, {"dependent",
			slices.Repeat([]engine.Word{{Ops: []engine.Op{one}}}, n)}} {
			device, host, err := median(b, way.words)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "raw %d %s %.2f %.2f\n", n, way.name, device, host); err != nil {
				return err
			}
		}
	}
	return nil
}

// median is the microseconds of a run by the GPU's clock, and by the host's from submission to completion.
func median(b *raw.Backend, words []engine.Word) (device, host float64, err error) {
	p, err := b.Prepare(words)
	if err != nil {
		return 0, 0, err
	}
	var d, h []float64
	for range rounds {
		begin := time.Now()
		if err := p.Run(10 * time.Second); err != nil {
			return 0, 0, err
		}
		h = append(h, float64(time.Since(begin).Nanoseconds())/1000)
		d = append(d, float64(p.(interface{ Took() time.Duration }).Took().Nanoseconds())/1000)
	}
	slices.Sort(d)
	slices.Sort(h)
	return d[rounds/2], h[rounds/2], p.Close()
}
