package number

// A Func is an operation on raw bits. Operands that it does not have are ignored; of results, the low bits of their
// width are set and no others.
type Func func(a, b, c uint64) uint64

// Op is the operation of that name, mnemonic, modifiers and type: add.u32, mul.wide.s32, fma.rz.f32, shf.l.wrap.b32;
// conversions have both types, cvt.rn.f32.s64. It is nil if there is none. ../lanes/table.go has the list.
func Op(name string) Func { return ops[name] }

// Ops calls f with each operation.
func Ops(f func(name string, op Func)) {
	for name, op := range ops {
		f(name, op)
	}
}
