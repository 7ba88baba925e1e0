package ptx

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestCheckCompiled: nothing that a compiler made, and nothing in the syntax
// files that ptxas takes, has unknown names.
func TestCheckCompiled(t *testing.T) {
	n := 0
	for name, src := range corpus(t) {
		if _, ok := assembleFor(src); !ok {
			continue
		}
		m, err := Parse(name, []byte(src))
		if err != nil {
			t.Errorf("%+v", err)
			continue
		}
		if err := Check(m); err != nil {
			t.Errorf("%+v", err)
		}
		n++
	}
	if n < 8 {
		t.Errorf("only %d sources", n)
	}
}

func TestCheck(t *testing.T) {
	a := readArchive(t, "testdata/check.txtar")
	for _, name := range a.names {
		if strings.HasSuffix(name, ".err") {
			continue
		}
		m, err := Parse(name, []byte(".version 8.0\n.target sm_90\n.address_size 64\n"+a.files[name]))
		if err != nil {
			t.Errorf("%+v", err)
			continue
		}
		got := "ok\n"
		if err := Check(m); err != nil {
			got = fmt.Sprintf("%+v\n", err)
		}
		a.golden(t, name+".err", got)
	}
}

func TestJSON(t *testing.T) {
	for name, src := range corpus(t) {
		m, err := Parse(name, []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		b, err := AppendJSON(nil, m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var tree map[string]any
		if err := json.Unmarshal(b, &tree); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tree["node"] != "Module" || len(tree["Decls"].([]any)) != len(m.Decls) {
			t.Errorf("%s: %s…", name, b[:100])
		}
	}
	m, err := Parse("x", []byte(".version 8.0\n.target sm_90\n.entry k() {\n@!%p ld.global.f32 %f1, [%rd1+-4];\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := AppendJSON(nil, m.Decls[0].(*Func).Body.Stmts[0])
	want := `{"node":"Inst","Pos":"4:1","Guard":{"node":"Guard","Reg":"%p","Not":true},"Op":"ld",` +
		`"Mods":["global","f32"],"Args":[{"node":"Ref","Pos":"4:20","Name":"%f1"},{"node":"Addr","Pos":"4:25",` +
		`"Base":{"node":"Ref","Pos":"4:26","Name":"%rd1"},"Off":-4}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}
