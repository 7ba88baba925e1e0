package api

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed result.txt
var results string

// A Result is one value of CUresult.
type Result struct {
	Code int
	Name string // CUDA_ERROR_INVALID_VALUE
	Text string // invalid argument
}

// Results is the table of result.txt, by ascending code.
func Results() ([]Result, error) {
	var rs []Result
	for i, line := range strings.Split(results, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		w := strings.SplitN(line, " ", 3)
		if len(w) != 3 {
			return nil, fmt.Errorf("result.txt:%d: want CODE NAME TEXT", i+1)
		}
		code, err := strconv.Atoi(w[0])
		if err != nil {
			return nil, fmt.Errorf("result.txt:%d: %w", i+1, err)
		}
		if n := len(rs); n > 0 && rs[n-1].Code >= code {
			return nil, fmt.Errorf("result.txt:%d: code %d out of order", i+1, code)
		}
		rs = append(rs, Result{code, w[1], w[2]})
	}
	return rs, nil
}
