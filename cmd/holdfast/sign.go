package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/newfile"
	"holdfast/internal/recording"
	"holdfast/internal/recording/signature"
	"holdfast/internal/replay/command"

	"github.com/spf13/cobra"
)

const signLong = `Sign a recording, so that others can tell whose it is: "replay", "hfreplay", "serve",
"link" and "verify" with --trust-key take no recording but those signed with that key. The
signature is a small file beside the recording, MODEL.hfr.sig.

--key is a private Ed25519 key as "openssl genpkey -algorithm ed25519" writes it (PEM, not
encrypted), which only its owner may read. --new-key FILE makes one, and FILE.pub, which
is for those who trust it; files that are there are never overwritten.

The recording is read and checked against its digests first. That says that it is whole,
not that it is harmless: see "holdfast verify".`

func (a *app) signVerb() *cobra.Command {
	var key, out, made string
	cmd := &cobra.Command{
		Use:   "sign MODEL.hfr --key FILE [-o MODEL.hfr.sig] | sign --new-key FILE",
		Short: "Sign a recording, or make a key for that",
		Long:  signLong,
		Example: `  holdfast sign --new-key team.key
  holdfast sign resnet.hfr --key team.key
  holdfast replay resnet.hfr --trust-key team.key.pub`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case made == "":
				return exactly("MODEL.hfr")(cmd, args)
			case key != "" || out != "" || len(args) > 0:
				return usageErrorf("sign: --new-key makes a key and signs nothing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case made != "":
				return a.newKey(made)
			case key == "":
				return usageErrorf("sign: --key FILE is missing")
			case out == "":
				out = command.SignatureOf(args[0])
			}
			return a.sign(args[0], key, out)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the `FILE` of the private key")
	cmd.Flags().StringVarP(&out, "output", "o", "", "the `FILE` to write (default MODEL.hfr.sig)")
	cmd.Flags().StringVar(&made, "new-key", "", "make a key: the `FILE` of the private one; FILE.pub is the public one")
	return cmd
}

// trustFlags are of verbs that take one recording.
func trustFlags(cmd *cobra.Command, to *command.Trust) {
	trustKeyFlag(cmd, to)
	cmd.Flags().StringVar(&to.Signature, "signature", "", "with --trust-key: the `FILE` (default MODEL.hfr.sig)")
}

func trustKeyFlag(cmd *cobra.Command, to *command.Trust) {
	cmd.Flags().StringArrayVar(&to.Keys, "trust-key", nil,
		"take only what is signed with the key of this `FILE`; repeated, with one of them")
}

// openTrusted opens a recording for a verb.
func openTrusted(verb, path string, trust command.Trust) (*recording.File, error) {
	f, err := trust.Open(path)
	var wrong *command.UsageError
	if errors.As(err, &wrong) {
		return nil, usageErrorf("%s: %v", verb, err)
	}
	return f, err
}

// A signReport is what --json says.
type signReport struct {
	Signature string `json:"signature,omitempty"` // file
	Manifest  string `json:"manifest,omitempty"`  // digest
	Key       string `json:"key"`                 // ID
	Public    string `json:"public_key,omitempty"`
}

func (a *app) sign(path, keyFile, out string) error {
	key, err := readPrivate(keyFile)
	if err != nil {
		return fmt.Errorf("key %s: %w", keyFile, err)
	}
	f, err := recording.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Verify(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s := signature.Sign(key, f.Digest)
	if err := writeWhole(out, s.Encode()); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(signReport{Signature: out, Manifest: fmt.Sprintf("%x", f.Digest[:]), Key: s.Key.String()})
	}
	_, err = fmt.Fprintf(a.stderr, "holdfast: %s: manifest %x, signed with key %v\n", out, f.Digest[:], s.Key)
	return err
}

func writeWhole(path string, b []byte) error {
	f, err := newfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Finish(0o666)
}

// readPrivate reads a private key, if only its owner can.
func readPrivate(path string) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("it is open to others (mode %04o): chmod 600 it if nobody else has read it",
			st.Mode().Perm())
	}
	const most = 16 << 10 // a key in PEM has some hundred bytes
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, err
	}
	return signature.Private(text)
}

// newKey writes a key to path, and the public one beside it.
func (a *app) newKey(path string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	beside := path + ".pub"
	if err := writeNew(path, signature.EncodePrivate(private), 0o600); err != nil {
		return err
	}
	if err := writeNew(beside, signature.EncodePublic(public), 0o666); err != nil {
		return errors.Join(err, os.Remove(path)) // a key that was never told to anybody
	}
	id := signature.IDOf(public)
	if a.json {
		return a.printJSON(signReport{Key: id.String(), Public: beside})
	}
	_, err = fmt.Fprintf(a.stderr, "holdfast: %s: key %v; %s is for those who trust it\n", path, id, beside)
	return err
}

// writeNew writes a file where there is none.
func writeNew(path string, b []byte, perm os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
