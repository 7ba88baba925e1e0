package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/replay/command"
	"holdfast/internal/replay/verify"

	"github.com/spf13/cobra"
)

const verifyRecordingLong = `Check a recording before it is replayed, without a GPU: that the file is whole and its
sizes, counts and grids are possible, and that everything it does stays in the memory
that it declares.

Of each launch it says how much is known:

  proven        its code is PTX, and whatever memory holds, it touches nothing else.
                Indices and pointers that it loads count as what the recording has
                there, if nothing of the recording writes them
  by arguments  its code cannot be read (machine code), or has no provable bounds; but
                every argument that looks like an address points into the recording's
                memory. That is no proof
  refused       it goes outside, or needs what no recording has: calls of the host,
                launches from the device, textures

Copies and sets are looked at exactly. A recording that can be relocated is looked at
where it was recorded and at one other place; --base looks at the place where it is to be
replayed, and there alone. --strict refuses every launch that is not proven.

With --json, everything that was found is printed: for each piece of work its level and
the reason, for each region of memory whether anything writes it. What is proven holds
for the recorded input and any other. A time limit is the replay's (--timeout).

With --trust-key it also takes a signature with that key ("holdfast sign").

The exit status is 1 if the recording is damaged or refused.`

func (a *app) verifyRecordingVerb() *cobra.Command {
	var strict bool
	var base string
	var trust command.Trust
	cmd := &cobra.Command{
		Use:   "verify MODEL.hfr [--strict]",
		Short: "Check that a recording keeps to its memory, before it is replayed",
		Long:  verifyRecordingLong,
		Example: `  holdfast verify resnet.hfr && holdfast replay resnet.hfr
  holdfast verify resnet.hfr --strict --json | jq .regions`,
		Args: exactly("MODEL.hfr"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.verifyRecording(args[0], strict, base, trust)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse launches that are not proven")
	baseFlag(cmd, &base)
	trustFlags(cmd, &trust)
	return cmd
}

func (a *app) verifyRecording(path string, strict bool, base string, trust command.Trust) error {
	f, err := openTrusted("verify", path, trust)
	if err != nil {
		return err
	}
	defer f.Close()
	var wrong *command.UsageError
	at, err := command.Rebase(f, base)
	switch {
	case errors.As(err, &wrong):
		return usageErrorf("verify: %v", err)
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	r, err := verify.Verify(at)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	refused := r.Err(strict)
	if a.json {
		err = a.printJSON(struct {
			Verified bool `json:"verified"`
			Strict   bool `json:"strict"`
			*verify.Report
		}{refused == nil, strict, r})
	} else {
		err = a.printVerified(path, r)
	}
	if refused != nil {
		return fmt.Errorf("%s: %w", path, refused)
	}
	return err
}

// printVerified lists kernels that are not proven, those with most launches first, and what is refused.
func (a *app) printVerified(path string, r *verify.Report) error {
	if _, err := fmt.Fprintf(a.stdout, "%s: %d launches: %d proven, %d by arguments, %d refused; %d copies and sets\n",
		path, r.Launches, r.Proven, r.ByArguments, r.Launches-r.Proven-r.ByArguments, r.Copies); err != nil {
		return err
	}
	list := slices.Clone(r.Kernels)
	slices.SortStableFunc(list, func(a, b verify.Kernel) int { return cmp.Compare(b.Launches, a.Launches) })
	for _, k := range list {
		if n := k.Launches - k.Proven - k.Refused; n > 0 {
			fmt.Fprintf(a.stdout, "by arguments: %d × %s: %s\n", n, verify.Shorten(k.Name), k.Reason)
		}
	}
	const most = 10 // the rest is in --json
	n := 0
	for i := range r.Items {
		if x := &r.Items[i]; x.Level == verify.Refused {
			if n++; n <= most {
				fmt.Fprintf(a.stdout, "refused: %s\n", r.Describe(x))
			}
		}
	}
	if n > most {
		fmt.Fprintf(a.stdout, "refused: %d more\n", n-most)
	}
	counts, bytes := map[string]int{}, map[string]int64{}
	for _, g := range r.Regions {
		counts[g.Written]++
		bytes[g.Written] += g.Bytes
	}
	_, err := fmt.Fprintf(a.stdout, "memory: %s in %d regions", bytesText(uint64(r.Memory)), len(r.Regions))
	for _, what := range []struct{ key, text string }{{verify.Never, "that nothing writes"},
		{verify.Perhaps, "that work writes"}, {verify.Unknown, "of which that is not known"}} {
		if counts[what.key] > 0 && err == nil {
			_, err = fmt.Fprintf(a.stdout, "; %d (%s) %s", counts[what.key], bytesText(uint64(bytes[what.key])),
				what.text)
		}
	}
	if err == nil {
		_, err = fmt.Fprintln(a.stdout)
	}
	return err
}
