package main

import (
	"fmt"

	"holdfast/internal/replay/command"
	"holdfast/internal/replay/link"

	"github.com/spf13/cobra"
)

const linkLong = `Make a recording flat for one kind of GPU: every buffer has its address, every launch
descriptor and every command word is made, and nothing is left to decide. "hfreplay pack"
makes an executable of it that needs no library at all, and a driver with open kernel
modules (docs/hfx-format.md).

--gpu says for which GPU: h200; sm_90, which means the GPU of that architecture on which
all this was tried, the H200; "this", the first GPU of this machine; or the figures of
another: sm_90:8,9,2,64,66 has 8 processing clusters of up to 9 pairs of multiprocessors,
2 multiprocessors a pair, 64 warps each, and 66 pairs in all. The player refuses a GPU
that is another.

With --trust-key only a recording that is signed with that key is linked ("holdfast
sign"). What is written has no signature.`

func (a *app) linkVerb() *cobra.Command {
	var out, gpu, entry string
	var trust command.Trust
	cmd := &cobra.Command{
		Use:   "link MODEL.hfr -o MODEL.hfx [--gpu GPU]",
		Short: "Make a recording flat for one kind of GPU",
		Long:  linkLong,
		Example: `  holdfast link resnet.hfr -o resnet.hfx --gpu h200
  hfreplay pack resnet.hfx -o resnet && ./resnet --in image=cat.npy --out scores=scores.npy`,
		Args: exactly("MODEL.hfr"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usageErrorf("link: -o MODEL.hfx is missing")
			}
			return a.link(args[0], out, gpu, entry, trust)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write")
	cmd.Flags().StringVar(&gpu, "gpu", "this", "for which GPU")
	registerValues(cmd, "gpu", "this", "h200", "sm_90")
	cmd.Flags().StringVar(&entry, "entry", "", "which entry, if there are several: a linked recording has one")
	trustFlags(cmd, &trust)
	return cmd
}

// A linkReport is what --json says.
type linkReport struct {
	GPU    string `json:"gpu"`
	Arch   uint32 `json:"arch"`
	Steps  uint32 `json:"steps"`         // that the player does
	Words  uint32 `json:"command_words"` // of the program
	Device uint64 `json:"device_bytes"`
	Bytes  uint64 `json:"bytes"` // of the file
}

func (a *app) link(from, to, gpu, entry string, trust command.Trust) error {
	g, err := link.GPU(gpu)
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	rec, err := openTrusted("link", from, trust)
	if err != nil {
		return err
	}
	defer rec.Close()
	f, err := link.File(rec, to, entry, g)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	h := &f.Header
	if a.json {
		return a.printJSON(linkReport{GPU: g.Name, Arch: h.Arch, Steps: h.Ops, Words: h.ProgramWords,
			Device: h.DeviceBytes, Bytes: h.FileBytes})
	}
	fmt.Fprintf(a.stderr, "holdfast: %s: for %s (sm_%d): %d steps, %d command words, %s of device memory, %s\n", to,
		g.Name, h.Arch, h.Ops, h.ProgramWords, bytesText(h.DeviceBytes), bytesText(h.FileBytes))
	return nil
}
