// Package recordingtest makes recordings for tests.
package recordingtest

import (
	"testing"

	"holdfast/internal/recording"
)

// Finish writes the manifest of a recording that w has begun at path, and opens it until the test ends.
func Finish(t testing.TB, path string, w *recording.Writer, m *recording.Manifest) *recording.File {
	t.Helper()
	if _, err := w.Finish(m); err != nil {
		t.Fatal(err)
	}
	f, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
