package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"holdfast/internal/hfx/player"
)

const packHelp = `hfreplay pack makes one executable of a recording that "holdfast link" has linked for a GPU.
The executable needs NVIDIA's open kernel modules and nothing else: no library, no loader.

Usage:
  hfreplay pack MODEL.hfx -o FILE [--beside]

Example:
  hfreplay pack resnet.hfx -o resnet
  ./resnet --in image=cat.npy --out scores=scores.npy

Flags:
`

// pack is the verb of that name.
func pack(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet("hfreplay pack", flag.ContinueOnError)
	fs.SetOutput(stderr)
	out := fs.String("o", "", "the `FILE` to write")
	beside := fs.Bool("beside", false, "leave the recording beside the executable, as FILE.hfx")
	fs.Usage = func() {
		fmt.Fprint(stderr, packHelp)
		fs.PrintDefaults()
	}
	files, status := parse(fs, args)
	if status >= 0 {
		return status
	}
	if len(files) != 1 || *out == "" {
		fmt.Fprintln(stderr, "hfreplay: pack takes one linked recording, and -o FILE (hfreplay pack --help)")
		return 2
	}
	binary, err := player.Binary()
	if err == nil {
		err = player.Pack(binary, files[0], *out, *beside)
	}
	if err != nil {
		fmt.Fprintf(stderr, "hfreplay: %v\n", err)
		return 1
	}
	st, err := os.Stat(*out)
	if err == nil {
		fmt.Fprintf(stderr, "hfreplay: %s: %d bytes, of them %d the player\n", *out, st.Size(), len(binary))
	}
	return 0
}
