package command

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"holdfast/internal/owned"
	"holdfast/internal/recording"
	"holdfast/internal/recording/signature"
)

// Trust is whose recordings a user takes.
type Trust struct {
	Keys      []string // files of public keys; none: any recording, and no signature is looked for
	Signature string   // file; "": SignatureOf the recording
}

// SignatureOf is where the signature of a recording lies if nothing else is said.
func SignatureOf(path string) string { return path + ".sig" }

// maxKey limits files of keys and signatures, in bytes: a key in PEM has some hundred.
const maxKey = 16 << 10

// Opener reads the keys. What it returns opens recordings, those alone that one of the keys has signed: the signature
// is checked against the manifest that was read, and everything that is read later against the manifest.
func (t Trust) Opener() (func(path string) (*recording.File, error), error) {
	if len(t.Keys) == 0 {
		if t.Signature != "" {
			return nil, usage("--signature %s: whose? --trust-key is missing", t.Signature)
		}
		return recording.Open, nil
	}
	var keys []ed25519.PublicKey
	for _, path := range t.Keys {
		key, err := readKey(path)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", path, err)
		}
		keys = append(keys, key)
	}
	return func(path string) (*recording.File, error) {
		f, err := recording.Open(path)
		if err != nil {
			return nil, err
		}
		if err := t.check(path, f.Digest, keys); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		}
		return f, nil
	}, nil
}

// Open is a recording that the user trusts; see Opener.
func (t Trust) Open(path string) (*recording.File, error) {
	open, err := t.Opener()
	if err != nil {
		return nil, err
	}
	return open(path)
}

// readKey reads a public key. Who can write it says who is trusted, so that may be nobody else.
func readKey(path string) (ed25519.PublicKey, error) {
	if err := owned.Check(path); err != nil {
		return nil, err
	}
	text, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	return signature.Public(text)
}

func (t Trust) check(path string, d recording.Digest, keys []ed25519.PublicKey) error {
	file := t.Signature
	if file == "" {
		file = SignatureOf(path)
	}
	text, err := readSmall(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(`no signature: there is no %s ("holdfast sign" makes one)`, file)
	}
	if err != nil {
		return err
	}
	s, err := signature.Decode(text)
	if err == nil {
		err = s.Check(d, keys)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// readSmall reads a file of at most maxKey bytes.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err == nil && len(b) > maxKey {
		err = fmt.Errorf("%s: more than %d bytes", path, maxKey)
	}
	return b, err
}
