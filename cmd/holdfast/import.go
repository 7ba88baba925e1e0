package main

import (
	"fmt"
	"io"
	"os"

	"holdfast/internal/image"

	"github.com/spf13/cobra"
)

const importLong = `Make an image from an archive that "holdfast export" wrote, from a file or (-) from
standard input. Everything is verified; there is no image before all of it is good. Chunks
that images in the same parent directory have are shared.`

func (a *app) importVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "import FILE DIR",
		Short:   "Make an image from an archive",
		Long:    importLong,
		Example: "  holdfast import train-3.tar /ckpt/train-3",
		Args:    exactly("FILE", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(args[1])
			if err != nil {
				return err
			}
			var r io.Reader = a.stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				r = f
			}
			m := a.meter()
			manifest, err := image.Import(cmd.Context(), dir, r, image.CreateOptions{}, m.bytes("import"))
			m.clear()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(infoOf(dir, manifest))
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s image, %s of GPU memory, digest %s\n", dir, manifest.Kind,
				bytesText(manifest.Bytes()), manifest.Digest())
			return err
		},
	}
}
