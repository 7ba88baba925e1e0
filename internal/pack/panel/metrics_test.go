package panel

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/pack"
)

// The lines of the text exposition format.
var (
	comment = regexp.MustCompile(`^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$`)
	value   = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	pair    = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\n"])*)"(?:,|$)`)
)

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// readMetrics reads samples by name and labels, and holds the text to the format: each family has help and type before
// its samples, which stand together, and no sample is there twice.
func readMetrics(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out, types := map[string]float64{}, map[string]string{}
	family := ""
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line does not end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := comment.FindStringSubmatch(line); m != nil {
			if m[1] == "HELP" {
				family = m[2]
			} else if m[2] != family || types[family] != "" {
				t.Errorf("%q after the help of %s", line, family)
			} else {
				types[family] = m[3]
			}
			continue
		}
		m := value.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a line of the format: %q", line)
			continue
		}
		base := m[1]
		if types[family] == "histogram" {
			base = strings.TrimSuffix(strings.TrimSuffix(base, "_bucket"), "_count")
		}
		if base != family || types[family] == "" {
			t.Errorf("%q stands in %s", line, family)
		}
		x, err := strconv.ParseFloat(m[3], 64)
		key := m[1] + readLabels(t, m[2])
		if _, twice := out[key]; twice || err != nil {
			t.Errorf("%q: twice %t, %v", line, twice, err)
		}
		out[key] = x
	}
	return out
}

func readLabels(t *testing.T, text string) string {
	t.Helper()
	labels := map[string]string{}
	for text != "" {
		m := pair.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("not labels: %q", text)
		}
		labels[m[1]] = unescape.Replace(m[2])
		text = text[len(m[0]):]
	}
	if len(labels) == 0 {
		return ""
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%q", k, labels[k]))
	}
	return "{" + strings.Join(out, ",") + "}"
}

func TestMetrics(t *testing.T) {
	s := stateAt(append(hostile, "plain", "\xff"), 2)
	var b bytes.Buffer
	if err := WriteMetrics(&b, s); err != nil {
		t.Fatal(err)
	}
	got := readMetrics(t, b.String())
	want := map[string]float64{"gpus": 2, "parts_total": 20000, "parts_under_way": 3, "busy_seconds_total": 3,
		"filled_seconds_total": 2, "capacity": 1.25}
	for i := range s.Tenants {
		x := &s.Tenants[i]
		name := strings.ToValidUTF8(x.Name, "\uFFFD")
		tenant := fmt.Sprintf("{tenant=%q}", name)
		for metric, n := range map[string]uint64{"requests_arrived_total": x.Arrived,
			"requests_admitted_total": x.Admitted, "requests_met_total": x.Met,
			"requests_missed_total": x.Missed, "requests_complete_total": x.Complete,
			"requests_failed_total": x.Failed, "parts_repeated_total": x.Repeated, "stragglers_total": x.Stragglers,
			"requests_waiting": 5, "requests_outstanding": uint64(6 + i), "faulty": 0} {
			want[metric+tenant] = float64(n)
		}
		if i == 1 {
			want["faulty"+tenant] = 1
		}
		for r := pack.Draining; r < pack.Refusals; r++ {
			want[fmt.Sprintf("requests_refused_total{reason=%q,tenant=%q}", r, name)] = float64(x.Refused[r])
		}
		for metric, h := range map[string]*pack.Histogram{"latency_seconds": &x.Latency, "slack_seconds": &x.Slack} {
			sum := uint64(0)
			for i, n := range h {
				le := "+Inf"
				if i < pack.Buckets-1 {
					le = number(h.End(i).Seconds())
				}
				sum += n
				want[fmt.Sprintf("%s_bucket{le=%q,tenant=%q}", metric, le, name)] = float64(sum)
			}
			want[metric+"_count"+tenant] = float64(sum)
		}
	}
	for key, x := range want {
		if y, there := got[prefix+key]; !there || y != x {
			t.Errorf("%s: %v (%t), want %v", key, y, there, x)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d samples, want %d", len(got), len(want))
	}
}
