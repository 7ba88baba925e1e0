package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/store"

	"github.com/spf13/cobra"
)

const imagesLong = `Look at images and care for them. An image is a directory; images in one parent
directory share their chunks. These verbs work on files alone: they need no daemon and
no GPU.`

func (a *app) imagesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Short:   "Look at images and care for them",
		Long:    imagesLong,
		Example: "  holdfast images ls /ckpt\n  holdfast images verify /ckpt/train-3",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageErrorf("images: no verb %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imagesLsVerb(), a.imagesInspectVerb(), a.imagesVerifyVerb(), a.imagesDiffVerb(), a.imagesRmVerb(),
		a.imagesGCVerb())
	return cmd
}

// An imageInfo is an image in a list.
type imageInfo struct {
	Dir     string    `json:"dir"`
	Kind    string    `json:"kind,omitempty"`
	Created time.Time `json:"created,omitzero"`
	GPU     string    `json:"gpu,omitempty"`
	Names   []string  `json:"names,omitempty"`
	PIDs    []int     `json:"pids,omitempty"`
	Bytes   uint64    `json:"bytes"` // device memory
	Digest  string    `json:"digest,omitempty"`
	Error   string    `json:"error,omitempty"`
}

func infoOf(dir string, m *image.Manifest) imageInfo {
	info := imageInfo{Dir: dir, Kind: m.Kind, Created: m.Created, GPU: imageGPU(m), Bytes: m.Bytes(),
		Digest: m.Digest()}
	for _, p := range m.Programs {
		info.Names = append(info.Names, p.Name)
		info.PIDs = append(info.PIDs, p.PID)
	}
	return info
}

func (a *app) imagesLsVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "ls [DIR]",
		Short:   "List the images in a directory",
		Long:    "List the images in a directory (default: this one), oldest first.",
		Example: "  holdfast images ls /ckpt --json",
		Args:    atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			entries, err := image.List(dir)
			if err != nil {
				return err
			}
			list := make([]imageInfo, 0, len(entries))
			for _, e := range entries {
				if e.Err != nil {
					list = append(list, imageInfo{Dir: e.Dir, Error: e.Err.Error()})
				} else {
					list = append(list, infoOf(e.Dir, e.Manifest))
				}
			}
			if a.json {
				return a.printJSON(list)
			}
			t := newTable("IMAGE", "KIND", "GPU", "PROGRAM", ">GPU MEMORY", ">AGE")
			for _, i := range list {
				if i.Error != "" {
					t.add(i.Dir, "damaged", "", i.Error, "", "")
					continue
				}
				t.add(i.Dir, i.Kind, i.GPU, strings.Join(i.Names, ","), bytesText(i.Bytes),
					ageText(time.Since(i.Created)))
			}
			return t.print(a.stdout)
		},
	}
}

func (a *app) imagesInspectVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "inspect DIR",
		Short:   "Show what an image holds",
		Long:    "Show what an image holds. With --json, its whole manifest and how much space it takes.",
		Example: "  holdfast images inspect /ckpt/train-3",
		Args:    exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			im, err := image.OpenForeign(args[0])
			if err != nil {
				return err
			}
			defer im.Close()
			usage := im.Usage()
			if a.json {
				return a.printJSON(struct {
					Dir      string          `json:"dir"`
					Digest   string          `json:"digest"`
					Usage    image.Usage     `json:"usage"`
					Manifest *image.Manifest `json:"manifest"`
				}{im.Dir(), im.Manifest.Digest(), usage, im.Manifest})
			}
			return printImage(a.stdout, im, usage)
		},
	}
}

func printImage(w io.Writer, im *image.Image, u image.Usage) error {
	m := im.Manifest
	fmt.Fprintf(w, "%s: %s image of %s, written by %s\n", im.Dir(), m.Kind,
		m.Created.Local().Format(time.DateTime), m.Tool)
	fmt.Fprintf(w, "GPU: %s, %s\n", imageGPU(m), m.GPU.Name)
	for _, p := range m.Programs {
		fmt.Fprintf(w, "program %s (PID %d): %s\n", p.Name, p.PID,
			commandText(api.Process{Exe: p.Exe, Command: p.Command}))
	}
	fmt.Fprintf(w, "GPU memory: %s in %d allocations, digest %s\n", bytesText(m.Bytes()), len(m.Regions), m.Digest())
	fmt.Fprintf(w, "chunks: %d, of them %d zero; %d files of %s, %d shared with other images; other files %s\n",
		u.Chunks, u.ZeroChunks, u.ChunkFiles, bytesText(u.ChunkBytes), u.SharedFiles, bytesText(u.FileBytes))
	fmt.Fprintf(w, "removing it frees %s\n\n", bytesText(u.OwnBytes))
	t := newTable(">PID", ">ID", "ADDRESS", ">SIZE")
	for _, r := range m.Regions {
		t.add(fmt.Sprint(m.Programs[r.Program].PID), fmt.Sprint(r.ID), fmt.Sprintf("%#x", r.VA), bytesText(r.Size))
	}
	return t.print(w)
}

const verifyLong = `Read every file and every chunk of an image and compare it with the manifest.

Exit status 0 if all is well; 1 if not, and each bad file or chunk is named.`

func (a *app) imagesVerifyVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "verify DIR",
		Short:   "Check every byte of an image",
		Long:    verifyLong,
		Example: "  holdfast images verify /ckpt/train-3",
		Args:    exactly("DIR"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), args[0]) },
	}
}

// A verifyResult is what images verify finds.
type verifyResult struct {
	Dir      string          `json:"dir"`
	OK       bool            `json:"ok"`
	Bytes    uint64          `json:"bytes,omitempty"` // device memory
	Digest   string          `json:"digest,omitempty"`
	Problems []image.Problem `json:"problems"`
}

func (a *app) verify(ctx context.Context, dir string) error {
	res := verifyResult{Dir: dir, Problems: []image.Problem{}}
	im, err := image.OpenForeign(dir)
	switch {
	case err == nil:
		defer im.Close()
		m := a.meter()
		problems, err := im.Verify(ctx, m.bytes("verify"))
		m.clear()
		if err != nil {
			return err
		}
		res.Problems = append(res.Problems, problems...)
		res.Bytes, res.Digest = im.Manifest.Bytes(), im.Manifest.Digest()
	case exists(filepath.Join(dir, image.ManifestName)):
		// It is an image, and its manifest is what is wrong with it.
		res.Problems = append(res.Problems, image.Problem{Path: image.ManifestName, What: err.Error()})
	default:
		return err
	}
	res.OK = len(res.Problems) == 0
	if a.json {
		err = a.printJSON(res)
	} else {
		err = printVerify(a.stdout, res)
	}
	if err == nil && !res.OK {
		err = &exitError{code: exitFailed} // what is wrong has been said
	}
	return err
}

func printVerify(w io.Writer, r verifyResult) error {
	for _, p := range r.Problems {
		if _, err := fmt.Fprintf(w, "%s: %v\n", r.Dir, p); err != nil {
			return err
		}
	}
	if r.OK {
		_, err := fmt.Fprintf(w, "%s: good; %s of GPU memory, digest %s\n", r.Dir, bytesText(r.Bytes), r.Digest)
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %d problems\n", r.Dir, len(r.Problems))
	return err
}

func (a *app) imagesDiffVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "diff DIR DIR",
		Short:   "Compare the GPU memory of two images",
		Long:    "Compare the GPU memory of two images by digest, allocation by allocation. Equal ones are\nleft out.",
		Example: "  holdfast images diff /ckpt/train-2 /ckpt/train-3",
		Args:    exactly("DIR", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var manifests [2]*image.Manifest
			for i, dir := range args {
				im, err := image.OpenForeign(dir)
				if err != nil {
					return err
				}
				manifests[i] = im.Manifest
				im.Close()
			}
			diff := image.Diff(manifests[0], manifests[1])
			if a.json {
				if diff == nil {
					diff = []image.RegionDiff{}
				}
				return a.printJSON(diff)
			}
			t := newTable(">PID", "ADDRESS", ">SIZE", "IN", ">CHANGED CHUNKS")
			changed := 0
			for _, d := range diff {
				t.add(fmt.Sprint(d.PID), fmt.Sprintf("%#x", d.VA), bytesText(d.Size), d.In, fmt.Sprint(d.Changed))
				changed += d.Changed
			}
			if err := t.print(a.stdout); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "%d chunks differ\n", changed)
			return err
		},
	}
}

func (a *app) imagesRmVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "rm DIR…",
		Short:   "Remove images",
		Long:    "Remove images, and the chunks that no other image has. What is no image is left alone.",
		Example: "  holdfast images rm /ckpt/train-1 /ckpt/train-2",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("rm: DIR is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			removed := []string{}
			for _, dir := range args {
				if err := image.Remove(dir); err != nil {
					return err
				}
				removed = append(removed, dir)
				if !a.json {
					fmt.Fprintf(a.stdout, "%s: removed\n", dir)
				}
			}
			if a.json {
				return a.printJSON(struct {
					Removed []string `json:"removed"`
				}{removed})
			}
			return nil
		},
	}
}

func (a *app) imagesGCVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "gc [DIR]",
		Short: "Remove what belongs to no image",
		Long: `Remove from a directory of images (default: this one) what belongs to none of them: chunks
that no image refers to, and what writers that died have left. Checkpoints may be
written meanwhile.`,
		Example: "  holdfast images gc /ckpt",
		Args:    atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			c, err := store.GC(dir)
			if err != nil {
				return fmt.Errorf("gc %s: %w", dir, err)
			}
			if a.json {
				return a.printJSON(c)
			}
			_, err = fmt.Fprintf(a.stdout, "%d chunks (%s) and %d unfinished images removed; %d images are being "+
				"written\n",
				c.Chunks, bytesText(c.Bytes), c.Partials, c.Busy)
			return err
		},
	}
}

func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageErrorf("%s: %q is one argument too many", cmd.Name(), args[1])
	}
	return nil
}

// absolute is filepath.Abs for arguments: they are shown as they were understood.
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", usageErrorf("the directory is an empty string")
	}
	return filepath.Abs(dir)
}
