package main

import (
	"bytes"
	"os"
	"testing"
)

// What is committed is what the table gives.
func TestGenerated(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile("../../../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate in internal/cuda/api", path)
		}
	}
}
