package device

import (
	"strings"
	"testing"

	"holdfast/ptx"
)

const linkHead = ".version 7.0\n.target sm_70\n.address_size 64\n"

func linked(t *testing.T, texts ...string) (string, error) {
	t.Helper()
	var units []*unit
	for i, text := range texts {
		name := string(rune('a' + i))
		m, err := ptx.Parse(name, []byte(linkHead+text))
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, &unit{name, m})
	}
	m, err := merge(units)
	if err != nil {
		return "", err
	}
	out := ptx.Format(m)
	if _, err := parse(out); err != nil {
		t.Errorf("the linked module is not right: %v\n%s", err, out)
	}
	return string(out), nil
}

// Each unit's own names stay its own, also where a local name hides them.
func TestLinkKeepsNamesApart(t *testing.T) {
	const text = `.global .align 4 .u32 own = 1;
.global .u64 where = generic(own);
.func helper() { .reg .b32 %r<2>; ld.global.u32 %r0, [own+0]; ret; }
.visible .entry NAME(.param .u64 p) {
	.reg .b32 %r<4>; .reg .b64 %d<2>;
	call helper, ();
	{ .reg .b32 own; mov.u32 own, 5; mov.u32 %r1, own; }
	mov.u64 %d1, own;
	bra helper2;
helper2:
	ret;
}
`
	got, err := linked(t, strings.Replace(text, "NAME", "one", 1), strings.Replace(text, "NAME", "two", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"own = 1", "own$2 = 1", "generic(own$2)", ".func helper$2", "[own$2", "call helper$2",
		"mov.u64 %d1, own$2", "mov.u32 own, 5", "%r1, own;"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestLinkResolves(t *testing.T) {
	const user = `.extern .global .u32 v;
.extern .func f();
.extern .func vprintf2();
.extern .shared .align 16 .b8 pool[];
.weak .func w() { ret; }
.visible .entry k() { .reg .b32 %r<2>; ld.global.u32 %r0, [v]; call f, (); call w, (); ret; }
`
	const definer = `.visible .global .u32 v = 3;
.visible .func f() { ret; }
.extern .shared .align 16 .b8 pool[];
.visible .func w() { ret; }
`
	got, err := linked(t, user, definer)
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]int{".u32 v": 1, ".func f": 1, ".func w": 1, "pool[]": 1, ".extern .global": 0,
		".weak": 0, ".func vprintf2": 1} {
		if c := strings.Count(got, what); c != n {
			t.Errorf("%d times %q, want %d:\n%s", c, what, n, got)
		}
	}
	for _, c := range []struct{ a, b, want string }{
		{user, "", "a:4: v is not defined"},
		{definer, definer, "defined in a and in b"},
	} {
		if _, err := linked(t, c.a, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// The result is for the newest architecture and version of the inputs.
func TestLinkTarget(t *testing.T) {
	var units []*unit
	for _, head := range []string{".version 7.8\n.target sm_75\n", ".version 8.0\n.target sm_90a\n",
		".version 7.0\n.target sm_80\n"} {
		m, err := ptx.Parse("unit", []byte(head+".address_size 64\n"))
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, &unit{"unit", m})
	}
	m, err := merge(units)
	if err != nil || m.Version != (ptx.Version{Major: 8, Minor: 0}) || m.Target[0] != "sm_90a" {
		t.Errorf("%+v, %v", m, err)
	}
}
