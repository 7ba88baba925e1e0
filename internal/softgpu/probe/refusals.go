//go:build ignore

// Refusals writes refused.txt: which probes ptxas does not assemble, and why. It is run by hand where there is
// a ptxas (12.4 made the committed file): go run refusals.go -ptxas PATH
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"

	"holdfast/internal/softgpu/probe"
)

const group = 50

var errorLine = regexp.MustCompile(`line (\d+); error\s*:\s*(.*)`)

func main() {
	ptxas := flag.String("ptxas", "ptxas", "the assembler")
	level := flag.String("O", "1", "optimisation level")
	match := flag.String("match", "", "only probes whose ID contains this; then nothing is written")
	flag.Parse()
	dir, err := os.MkdirTemp("", "refusals")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	byTarget := map[string][]*probe.Probe{}
	for _, p := range probe.All() {
		if strings.Contains(p.ID(), *match) {
			byTarget[p.Target] = append(byTarget[p.Target], p)
		}
	}
	refused := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	limit := make(chan struct{}, 2)
	for target, ps := range byTarget {
		for i := 0; i < len(ps); i += group {
			limit <- struct{}{}
			wg.Go(func() {
				defer func() { <-limit }()
				for id, why := range check(*ptxas, *level, dir, fmt.Sprintf("%s-%d", target, i), target,
					ps[i:min(i+group, len(ps))]) {
					mu.Lock()
					refused[id] = why
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	var lines []string
	for id, why := range refused {
		lines = append(lines, id+"\t"+why+"\n")
	}
	sort.Strings(lines)
	if *match != "" {
		os.Stdout.WriteString(strings.Join(lines, ""))
		return
	}
	head := "# Probes that ptxas 12.4 refuses for sm_90 (wgmma: sm_90a), and why. Written by refusals.go.\n"
	if err := os.WriteFile("refused.txt", []byte(head+strings.Join(lines, "")), 0o666); err != nil {
		log.Fatal(err)
	}
	log.Printf("%d refused", len(lines))
}

// check assembles a module, and again without those kernels that it names in errors, until there are none.
func check(ptxas, level, dir, name, target string, ps []*probe.Probe) map[string]string {
	refused := map[string]string{}
	file := filepath.Join(dir, name+".ptx")
	for len(ps) > 0 {
		text := probe.Module(ps)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			log.Fatal(err)
		}
		out, err := exec.Command(ptxas, "-arch="+target, "-O"+level, "-o",
			filepath.Join(dir, name+".cubin"), file).CombinedOutput()
		if err == nil {
			break
		}
		bad := map[int]string{} // index in ps
		for _, m := range errorLine.FindAllSubmatch(out, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			at := 4 // the first line of the first probe
			for i, p := range ps {
				next := at + strings.Count(p.Source, "\n")
				if n >= at && n < next && bad[i] == "" {
					bad[i] = string(bytes.TrimSpace(m[2]))
				}
				at = next
			}
		}
		if len(bad) == 0 { // no line: find them one at a time
			if len(ps) == 1 {
				first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
				refused[ps[0].ID()] = strings.TrimSpace(first[strings.LastIndex(first, "fatal")+5:])
				break
			}
			for id, why := range check(ptxas, level, dir, name+"a", target, ps[:len(ps)/2]) {
				refused[id] = why
			}
			for id, why := range check(ptxas, level, dir, name+"b", target, ps[len(ps)/2:]) {
				refused[id] = why
			}
			break
		}
		var rest []*probe.Probe
		for i, p := range ps {
			if why, no := bad[i]; no {
				refused[p.ID()] = why
			} else {
				rest = append(rest, p)
			}
		}
		ps = rest
	}
	return refused
}
