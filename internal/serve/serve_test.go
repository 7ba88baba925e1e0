package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// double is a player whose output y is twice its input x, plus the first byte of the constant c.
type double struct {
	in     map[string][]byte
	y      []byte
	resets int
	fault  error
}

func (d *double) SetInput(name string, b []byte) error { d.in[name] = b; return nil }
func (d *double) Reset() error                         { d.resets++; return nil }
func (d *double) Output(name string) ([]byte, error) {
	if name != "y" {
		return nil, fmt.Errorf("no %s", name)
	}
	return d.y, nil
}

func (d *double) Run(time.Duration) error {
	if d.fault != nil {
		return d.fault
	}
	d.y = nil
	for x := d.in["x"]; len(x) > 0; x = x[4:] {
		v := 2*math.Float32frombits(binary.LittleEndian.Uint32(x)) + float32(d.in["in1"][0])
		d.y = binary.LittleEndian.AppendUint32(d.y, math.Float32bits(v))
	}
	return nil
}

func server(t *testing.T) (*httptest.Server, *Model, *double) {
	t.Helper()
	d := &double{in: map[string][]byte{}}
	e := &recording.Entry{Inputs: []recording.Port{{Name: "x", DType: "float32", Shape: []int{2, 2}, Bytes: 16},
		{Name: "in1", DType: "uint8", Shape: []int{1}, Bytes: 1}},
		Outputs: []recording.Port{{Name: "y", DType: "float32", Shape: []int{2, 2}, Bytes: 16}}}
	m := &Model{Name: "double", Entry: e, answerer: Alone(d, NewState(d.Reset), time.Second),
		recorded: map[string][]byte{"in1": {1}}}
	s, err := New([]*Model{m}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h, m, d
}

// ask sends a request and returns the status, the header and the body.
func ask(t *testing.T, method, url, body string, header ...string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, b
}

const good = `{"id":"7","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2.5],[-3e0,0.1]]}]}`

func TestInfer(t *testing.T) {
	h, _, d := server(t)
	url := h.URL + "/v2/models/double/infer"
	want := `{"model_name":"double","model_version":"1","id":"7","outputs":[{"name":"y","datatype":"FP32",` +
		`"shape":[2,2],"data":[3,6,-5,1.2]}]}`
	for range 2 {
		status, _, body := ask(t, "POST", url, good)
		if status != 200 || string(body) != want {
			t.Errorf("%d %s", status, body)
		}
		d.in["in1"] = []byte{9} // what one request leaves another does not find
	}
	if status, _, body := ask(t, "POST", strings.Replace(url, "/infer", "/versions/1/infer", 1), good); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	// A constant may be given.
	status, _, body := ask(t, "POST", url, strings.Replace(good, `"inputs":[`,
		`"inputs":[{"name":"in1","shape":[1],"datatype":"UINT8","data":[2]},`, 1))
	if status != 200 || !strings.Contains(string(body), "[4,7,-4,2.2]") {
		t.Errorf("%d %s", status, body)
	}
}

func TestBinary(t *testing.T) {
	h, _, _ := server(t)
	head := `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}],` +
		`"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`
	x := []byte{}
	for _, v := range []float32{1, 2, float32(math.Inf(1)), 4} {
		x = binary.LittleEndian.AppendUint32(x, math.Float32bits(v))
	}
	url := h.URL + "/v2/models/double/infer"
	status, header, body := ask(t, "POST", url, head+string(x), headerLength, strconv.Itoa(len(head)))
	n, err := strconv.Atoi(header.Get(headerLength))
	if status != 200 || err != nil || n >= len(body) {
		t.Fatalf("%d %v %s", status, err, body)
	}
	var res response
	if err := json.Unmarshal(body[:n], &res); err != nil || len(res.Outputs) != 1 || res.Outputs[0].Data != nil ||
		*res.Outputs[0].Parameters.BinarySize != 16 {
		t.Errorf("%v %s", err, body[:n])
	}
	want := []byte{}
	for _, v := range []float32{3, 5, float32(math.Inf(1)), 9} {
		want = binary.LittleEndian.AppendUint32(want, math.Float32bits(v))
	}
	if !bytes.Equal(body[n:], want) {
		t.Errorf("% x", body[n:])
	}
	// What JSON has no form for is refused there.
	head = strings.Replace(head, "true", "false", 1)
	status, _, body = ask(t, "POST", url, head+string(x), headerLength, strconv.Itoa(len(head)))
	if status != 400 || !strings.Contains(string(body), "binary") {
		t.Errorf("%d %s", status, body)
	}
}

func TestBadRequests(t *testing.T) {
	h, _, _ := server(t)
	for what, x := range map[string]struct {
		path, body, says string
		status           int
		length           string
	}{
		"another model": {"/v2/models/other/infer", good, "no model", 404, ""},
		"a version":     {"/v2/models/double/versions/2/infer", good, "no model", 404, ""},
		"no JSON":       {"", "x", "not JSON", 400, ""},
		"no input":      {"", `{"inputs":[]}`, "input x is missing", 400, ""},
		"another input": {"", strings.Replace(good, `"x"`, `"z"`, 1), "no such input", 400, ""},
		"another type":  {"", strings.Replace(good, "FP32", "INT32", 1), "want FP32", 400, ""},
		"another shape": {"", strings.Replace(good, "[2,2]", "[4]", 1), "want FP32 [2 2]", 400, ""},
		"too few":       {"", strings.Replace(good, ",2.5", "", 1), "3 elements", 400, ""},
		"too many":      {"", strings.Replace(good, "2.5", "2.5,6", 1), "5 elements", 400, ""},
		"no number":     {"", strings.Replace(good, "2.5", `"a"`, 1), "float32", 400, ""},
		"no array":      {"", strings.Replace(good, "[[1,2.5],[-3e0,0.1]]", "1", 1), "not an array", 400, ""},
		"an output":     {"", strings.Replace(good, `"id"`, `"outputs":[{"name":"q"}],"id"`, 1), "no output", 400, ""},
		"twice":         {"", strings.Replace(good, `]}]}`, `]},{"name":"x"}]}`, 1), "twice", 400, ""},
		"length":        {"", good, headerLength, 400, "100000"},
		"a rest":        {"", good + "more", "belong to no input", 400, strconv.Itoa(len(good))},
		"too long":      {"", strings.Repeat(" ", 2<<20), "too large", 413, ""},
		"a short tensor": {"", `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32",` +
			`"parameters":{"binary_data_size":16}}]}`, "0 that are there", 400, ""},
	} {
		if x.path == "" {
			x.path = "/v2/models/double/infer"
		}
		var header []string
		if x.length != "" {
			header = []string{headerLength, x.length}
		}
		status, _, body := ask(t, "POST", h.URL+x.path, x.body, header...)
		var f failure
		if err := json.Unmarshal(body, &f); err != nil || status != x.status || !strings.Contains(f.Error, x.says) {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
}

func TestMetadataAndHealth(t *testing.T) {
	h, m, d := server(t)
	for path, want := range map[string]string{
		"/v2": `{"name":"holdfast","version":"test","extensions":["binary_tensor_data","statistics"]}`,
		"/v2/models/double": `"inputs":[{"name":"x","datatype":"FP32","shape":[2,2]},` +
			`{"name":"in1","datatype":"UINT8","shape":[1]}]`,
		"/v2/health/live": "", "/v2/health/ready": "", "/v2/models/double/ready": "",
		"/v2/models/double/stats": `"inference_count":0`,
	} {
		if status, _, body := ask(t, "GET", h.URL+path, ""); status != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	m.answerer.(*alone).state.Reset = true
	for range 3 {
		ask(t, "POST", h.URL+"/v2/models/double/infer", good)
	}
	if d.resets != 2 {
		t.Errorf("memory was put back %d times in three requests", d.resets)
	}
	// After a fault nothing runs any more, and it says so.
	d.fault = &engine.Fault{Err: errors.New("a bad address")}
	for range 2 {
		if status, _, body := ask(t, "POST", h.URL+"/v2/models/double/infer", good); status != 503 ||
			!strings.Contains(string(body), "a bad address") {
			t.Errorf("%d %s", status, body)
		}
	}
	for _, path := range []string{"/v2/health/ready", "/v2/models/double/ready"} {
		if status, _, _ := ask(t, "GET", h.URL+path, ""); status != 503 {
			t.Errorf("%s: %d", path, status)
		}
	}
	_, _, body := ask(t, "GET", h.URL+"/v2/models/double/stats", "")
	if !strings.Contains(string(body), `"inference_count":3`) || !strings.Contains(string(body), `"fail":{"count":2`) {
		t.Errorf("%s", body)
	}
	_, _, body = ask(t, "GET", h.URL+"/metrics", "")
	for _, want := range []string{`holdfast_requests_total{model="double"} 3`,
		`holdfast_request_errors_total{model="double"} 2`, "holdfast_request_seconds_bucket"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

// What is written as JSON is read back as the same bits, for every type that has a form there.
func TestJSONRoundTrip(t *testing.T) {
	sizes := map[string]int{"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int8": 1, "int16": 2, "int32": 4,
		"int64": 8, "float32": 4, "float64": 8}
	var bits []byte
	for i := range 64 {
		bits = binary.LittleEndian.AppendUint64(bits, uint64(i)*0x9e3779b97f4a7c15)
	}
	for dtype, size := range sizes {
		text, err := toJSON(dtype, bits)
		if err != nil {
			t.Fatalf("%s: %v", dtype, err)
		}
		if got, err := fromJSON(dtype, text, len(bits)/size); err != nil || !bytes.Equal(got, bits) {
			t.Errorf("%s: %v", dtype, err)
		}
	}
	if text, err := toJSON("bool", []byte{0, 1, 7}); err != nil || string(text) != "[false,true,true]" {
		t.Errorf("%s %v", text, err)
	}
	if b, err := fromJSON("bool", []byte("[false,true,1,0]"), 4); err != nil || !bytes.Equal(b, []byte{0, 1, 1, 0}) {
		t.Errorf("% x %v", b, err)
	}
	for _, dtype := range []string{"float16", "bfloat16"} {
		if _, err := toJSON(dtype, []byte{1, 2}); !errors.Is(err, errBinary) {
			t.Errorf("%s: %v", dtype, err)
		}
	}
	for _, x := range []struct{ dtype, text string }{{"uint8", "[256]"}, {"int8", "[-129]"}, {"int32", "[1.5]"},
		{"float32", "[1e99]"}, {"uint64", "[null]"}, {"float64", `["1"]`}} {
		if _, err := fromJSON(x.dtype, []byte(x.text), 1); err == nil {
			t.Errorf("%s is taken as %s", x.text, x.dtype)
		}
	}
}

// answerer does what a test says.
type answerer func(in map[string][]byte, within time.Duration) (map[string][]byte, error)

func (a answerer) Answer(_ context.Context, in map[string][]byte, _ []string, within time.Duration) (map[string][]byte,
	Took, error) {
	out, err := a(in, within)
	return out, Took{}, err
}

func (a answerer) Ready() error { return nil }

// A deadline comes by the header or the parameter; who is refused is told so and why.
func TestDeadlines(t *testing.T) {
	h, m, _ := server(t)
	var got time.Duration
	var err error
	m.answerer = answerer(func(_ map[string][]byte, within time.Duration) (map[string][]byte, error) {
		got = within
		return map[string][]byte{"y": make([]byte, 16)}, err
	})
	timed := strings.Replace(good, "{", `{"parameters":{"timeout":2500},`, 1)
	for _, c := range []struct {
		body, header string
		want         time.Duration
		status       int
	}{{good, "", 0, 200}, {timed, "", 2500 * time.Microsecond, 200}, {timed, "20ms", 20 * time.Millisecond, 200},
		{good, "20", 0, 400}, {good, "-1ms", 0, 400}, {strings.Replace(timed, "2500", "-1", 1), "", 0, 400}} {
		var header []string
		if c.header != "" {
			header = []string{"Inference-Deadline", c.header}
		}
		got = 0
		status, _, body := ask(t, "POST", h.URL+"/v2/models/double/infer", c.body, header...)
		if status != c.status || got != c.want {
			t.Errorf("%s with %q: %d %s, within %v", c.body, c.header, status, body, got)
		}
	}
	err = &Refused{"the deadline cannot be met"}
	if status, _, body := ask(t, "POST", h.URL+"/v2/models/double/infer", good); status != 429 ||
		!strings.Contains(string(body), "the deadline cannot be met") {
		t.Errorf("refused: %d %s", status, body)
	}
}

// shelf is a repository of one model, and one that cannot be loaded.
type shelf struct {
	s      *Server
	m      *Model
	loaded map[string]string
}

func (r *shelf) Models() ([]string, error) { return []string{"bad", "later"}, nil }
func (r *shelf) Unload(name string) error  { r.s.Remove(name); return nil }
func (r *shelf) Load(name string, parameters map[string]string) error {
	if name != "later" {
		return errors.New("it is broken")
	}
	r.loaded = parameters
	m := *r.m
	m.Name = name
	return r.s.Add(&m)
}

// Models of a repository come and go.
func TestRepository(t *testing.T) {
	h, m, _ := server(t)
	s := h.Config.Handler.(*Server)
	r := &shelf{s: s, m: m}
	s.Manage(r)
	at := h.URL + "/v2/repository/"
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"index", "", 200, `[{"name":"bad","state":"UNAVAILABLE"},{"name":"double","version":"1","state":"READY"},` +
			`{"name":"later","state":"UNAVAILABLE"}]`},
		{"models/later/load", `{"parameters":{"slo":"5ms"}}`, 200, ""},
		{"index", "", 200, `{"name":"later","version":"1","state":"READY"}`},
		{"models/later/load", "", 400, "two models are named later"},
		{"models/bad/load", "", 400, "it is broken"},
		{"models/double/unload", "", 404, "no model"},
		{"models/..%2Fdouble/load", "", 404, "no model"},
		{"models/later/load", "{", 400, "unexpected EOF"},
		{"models/later/unload", "", 200, ""},
		{"models/later/load", "", 200, ""},
	} {
		status, _, body := ask(t, "POST", at+c.path, c.body)
		if status != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
		if c.body != "" && status == 200 && r.loaded["slo"] != "5ms" {
			t.Errorf("parameters %v", r.loaded)
		}
	}
	if status, _, body := ask(t, "POST", h.URL+"/v2/models/later/infer", good); status != 200 {
		t.Errorf("a model that was loaded: %d %s", status, body)
	}
}
