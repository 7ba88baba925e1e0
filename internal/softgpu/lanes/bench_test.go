package lanes

import "testing"

// BenchmarkOperation is what 32 lanes of an operation take, as a loop and with vectors.
func BenchmarkOperation(b *testing.B) {
	var d, x, y, z register
	for i := range x {
		x[i], y[i], z[i] = 0x3f9000003f900000+uint64(i), 0x3f8000003f800000, 0x3c003c003c003c00
	}
	for _, name := range []string{"add.u32", "mul.lo.u32", "add.u64", "xor.b64", "mul.lo.u64", "shl.b32",
		"add.f32", "fma.f32", "fma.f64"} {
		for kind, table := range map[string]map[string]Vec{"loop": loops, "vectors": simds} {
			f := table[name]
			if f == nil || kind == "vectors" && !vectors() {
				continue
			}
			b.Run(name+"/"+kind, func(b *testing.B) {
				for b.Loop() {
					f(d.at(), x.at(), y.at(), z.at())
				}
			})
		}
	}
	b.Run("row", func(b *testing.B) {
		var a [32]uint64
		for i := range a {
			a[i] = 1<<33 + 4*uint64(i)
		}
		for b.Loop() {
			if row, _ := Row64(&a, 4); !row {
				b.Fatal("no row")
			}
		}
	})
}
