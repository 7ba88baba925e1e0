package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"holdfast/internal/image"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const exportLong = `Write an image as one tar archive, with all its chunks, to a file or (-o -) to standard
output. Every chunk is verified as it is read.`

func (a *app) exportVerb() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "export DIR -o FILE",
		Short: "Write an image as one archive",
		Long:  exportLong,
		Example: `  holdfast export /ckpt/train-3 -o train-3.tar
  holdfast export /ckpt/train-3 -o - | ssh other holdfast import - /ckpt/train-3`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usageErrorf("export: -o FILE is missing")
			}
			im, err := image.OpenForeign(args[0])
			if err != nil {
				return err
			}
			defer im.Close()
			if to == "-" {
				if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
					return usageErrorf("export: an archive would garble the terminal: redirect the output")
				}
				m := a.meter()
				defer m.clear()
				return im.Export(cmd.Context(), a.stdout, m.bytes("export"))
			}
			n, err := a.exportFile(cmd.Context(), im, to)
			if err != nil {
				return fmt.Errorf("export %s: %w", to, err)
			}
			if a.json {
				return a.printJSON(struct {
					Dir   string `json:"dir"`
					File  string `json:"file"`
					Bytes int64  `json:"bytes"`
				}{im.Dir(), to, n})
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s\n", to, bytesText(uint64(n)))
			return err
		},
	}
	cmd.Flags().StringVarP(&to, "output", "o", "", "archive to write; - is standard output")
	return cmd
}

// exportFile writes the archive beside its name first: what has the name is complete.
func (a *app) exportFile(ctx context.Context, im *image.Image, to string) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".partial-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	m := a.meter()
	err = im.Export(ctx, f, m.bytes("export"))
	m.clear()
	n, seekErr := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(err, seekErr, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), to)
}
