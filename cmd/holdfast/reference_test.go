package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli anew")

const referenceDir = "../../docs/cli"

// TestReference compares docs/cli with the help texts; with -update it writes it.
func TestReference(t *testing.T) {
	t.Setenv("COLUMNS", "")
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	want := map[string][]byte{}
	var index bytes.Buffer
	index.WriteString("# Command line\n\nGenerated from the help texts; `make generate` writes these pages.\n\n")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".md"
		want[name] = page(cmd)
		fmt.Fprintf(&index, "- [`%s`](%s): %s\n", cmd.CommandPath(), name, cmd.Short)
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(a.root())
	index.WriteString("\n" + exitStatusHelp + "\n")
	want["README.md"] = index.Bytes()

	if *update {
		if err := os.RemoveAll(referenceDir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(referenceDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(referenceDir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	have, err := os.ReadDir(referenceDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range have {
		if want[f.Name()] == nil {
			t.Errorf("docs/cli/%s describes no verb; run make generate", f.Name())
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(referenceDir, name))
		if err != nil {
			t.Errorf("%v; run make generate", err)
		} else if !bytes.Equal(got, text) {
			t.Errorf("docs/cli/%s is not what the help says; run make generate", name)
		}
	}
}

func page(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
	long := cmd.Long
	if long != "" {
		fmt.Fprintf(&b, "\n%s\n", indented(long))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n## Verbs\n\n")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				fmt.Fprintf(&b, "- [`%s`](%s.md): %s\n", sub.CommandPath(),
					strings.ReplaceAll(sub.CommandPath(), " ", "-"), sub.Short)
			}
		}
	}
	fmt.Fprintf(&b, "\n## Examples\n\n```sh\n%s\n```\n", unindent(cmd.Example))
	flags(&b, "Options", cmd.NonInheritedFlags())
	flags(&b, "Options of all verbs", cmd.InheritedFlags())
	return b.Bytes()
}

// indented turns the indented blocks of a help text into code blocks, so that their lines
// stay lines.
func indented(text string) string {
	var b strings.Builder
	code := false
	for _, line := range strings.Split(text, "\n") {
		if in := strings.HasPrefix(line, "  "); in != code && line != "" {
			b.WriteString(map[bool]string{true: "\n```\n", false: "```\n\n"}[in])
			code = in
		}
		b.WriteString(line + "\n")
	}
	if code {
		b.WriteString("```\n")
	}
	return strings.TrimRight(strings.ReplaceAll(b.String(), "\n\n\n", "\n\n"), "\n")
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func flags(b *bytes.Buffer, title string, set *pflag.FlagSet) {
	if usage := set.FlagUsages(); usage != "" {
		fmt.Fprintf(b, "\n## %s\n\n```\n%s```\n", title, usage)
	}
}

// Every verb has an example, a short text that is no sentence, and takes --json.
func TestVerbs(t *testing.T) {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example in its help", cmd.CommandPath())
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Flag("json") == nil {
			t.Errorf("%s does not take --json", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len([]rune(line)) > 90 {
				t.Errorf("%s: a line of the help is %d wide: %s", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}
