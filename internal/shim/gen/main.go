// Command gen writes shim/zshim.c and shim/zshim.h. Run it with go generate in internal/shim.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"holdfast/internal/cuda/api"
	"holdfast/internal/shim"
)

func main() {
	if err := run(filepath.Join("..", "..", "shim")); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	fns, err := api.Functions()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"zshim.c": shim.Source(fns), "zshim.h": shim.Header(fns)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
