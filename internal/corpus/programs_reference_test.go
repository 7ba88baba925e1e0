package corpus

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"math/bits"
	"math/cmplx"
	"slices"
)

// references is sorted as the sources are: stencil, reduce, scan, sort, histogram, graph, sparse, dense,
// dynprog, nbody, random, hash, image, layer, training, compact, crypto, fft, layout, control, cluster,
// misleading, rare, tensors.
var references = []reference{
	{"stencil1d", floats{1}, func(c *call) {
		in, out, n := f32(c, 0), f32(c, 1), c.int(2)
		for i := 1; i < n-1; i++ {
			out[i] = 0.25*in[i-1] + 0.5*in[i] + 0.25*in[i+1]
		}
	}},
	{"stencil1d_shared", nil, func(c *call) {
		in, out, n := i32(c, 0), i32(c, 1), c.int(2)
		for i := range n {
			for k := max(0, i-4); k <= min(n-1, i+4); k++ {
				out[i] += in[k]
			}
		}
	}},
	{"stencil1d_inplace", nil, func(c *call) {
		a, n := i32(c, 0), c.int(1)
		eachSegment(a[:n], 256, func(s []int32) {
			old := slices.Clone(s)
			for i := range s {
				s[i] *= 2
				if i > 0 {
					s[i] += old[i-1]
				}
				if i+1 < len(s) {
					s[i] += old[i+1]
				}
			}
		})
	}},
	{"heat2d", floats{1}, func(c *call) {
		in, out, w, h := f32(c, 0), f32(c, 1), c.int(2), c.int(3)
		for y := range h {
			for x := range w {
				i := y*w + x
				out[i] = in[i]
				if x > 0 && y > 0 && x < w-1 && y < h-1 {
					out[i] += 0.1 * (in[i-1] + in[i+1] + in[i-w] + in[i+w] - 4*in[i])
				}
			}
		}
	}},
	{"sum9_shared", nil, func(c *call) {
		in, out, w, h := i32(c, 0), i32(c, 1), c.int(2), c.int(3)
		for y := range h {
			for x := range w {
				eachNeighbour(x, y, w, h, func(i int) { out[y*w+x] += in[i] })
			}
		}
	}},
	{"red_black", floats{0}, func(c *call) {
		a, w, h := f32(c, 0), c.int(1), c.int(2)
		for y := 1; y < h-1; y++ {
			for x := 1; x < w-1; x++ {
				if i := y*w + x; (x+y)&1 == c.int(3) {
					a[i] = 0.25 * (a[i-1] + a[i+1] + a[i-w] + a[i+w])
				}
			}
		}
	}},
	{"march3d", nil, func(c *call) {
		in, out, wh, d := i32(c, 0), i32(c, 1), c.int(2)*c.int(3), c.int(4)
		for i := range wh * d {
			out[i] = 2 * in[i]
			if i >= wh {
				out[i] += in[i-wh]
			}
			if i+wh < wh*d {
				out[i] += in[i+wh]
			}
		}
	}},
	{"life", nil, func(c *call) {
		in, out, w, h := buf[uint8](c, 0), buf[uint8](c, 1), c.int(2), c.int(3)
		for y := range h {
			for x := range w {
				alive := uint8(0)
				for k := range 9 {
					if k != 4 {
						alive += in[(y+k/3-1+h)%h*w+(x+k%3-1+w)%w] & 1
					}
				}
				if alive == 3 || alive == 2 && in[y*w+x]&1 == 1 {
					out[y*w+x] = 1
				}
			}
		}
	}},

	{"reduce_tree", nil, func(c *call) {
		in, out := i32(c, 0)[:c.int(2)], i32(c, 1)
		for i, x := range in {
			out[i/c.threads()] += x
		}
	}},
	{"reduce_warp", nil, func(c *call) {
		for i, x := range i32(c, 0)[:c.int(2)] {
			i32(c, 1)[i/c.threads()%c.blocks()] += x
		}
	}},
	{"reduce_atomic", nil, func(c *call) { i32(c, 1)[0] += sum(i32(c, 0)[:c.int(2)]) }},
	{"reduce_ticket", nil, func(c *call) {
		for i, x := range i32(c, 0)[:c.int(4)] {
			i32(c, 1)[i/c.threads()%c.blocks()] += x
			i32(c, 3)[0] += x
		}
	}},
	{"extremes", nil, func(c *call) {
		for _, x := range i32(c, 0)[:c.int(3)] {
			i32(c, 1)[0] = max(i32(c, 1)[0], x)
			i32(c, 2)[0] = min(i32(c, 2)[0], x)
		}
	}},
	{"argmin", nil, func(c *call) {
		best := buf[uint64](c, 1)
		for i, x := range i32(c, 0)[:c.int(2)] {
			best[0] = min(best[0], uint64(x)<<32|uint64(i))
		}
	}},
	{"row_sums", floats{1}, func(c *call) {
		in, out, rows, cols := f32(c, 0), f32(c, 1), c.int(2), c.int(3)
		for r := range rows {
			out[r] = sum(in[r*cols:][:cols])
		}
	}},
	{"column_sums", nil, func(c *call) {
		in, out, cols := buf[float64](c, 0), buf[float64](c, 1), c.int(3)
		for i, x := range in[:c.int(2)*cols] {
			out[i%cols] += x
		}
	}},
	{"fold", nil, func(c *call) {
		a, n := i32(c, 0), c.int(1)
		half := (n + 1) / 2
		for i := range n - half {
			a[i] += a[i+half]
		}
	}},

	{"scan_block", nil, func(c *call) {
		copy(i32(c, 1), i32(c, 0)[:c.int(3)])
		sums := i32(c, 2)
		for b := range sums {
			sums[b] = 0
		}
		b := 0
		eachSegment(i32(c, 1)[:c.int(3)], c.threads(), func(s []int32) {
			sums[b] = prefix(s, 0)
			b++
		})
	}},
	{"scan_add", nil, func(c *call) {
		before, b := int32(0), 0
		eachSegment(i32(c, 0)[:c.int(2)], 128, func(s []int32) {
			for i := range s {
				s[i] += before
			}
			before += i32(c, 1)[b]
			b++
		})
	}},
	{"scan_blelloch", nil, func(c *call) {
		eachSegment(i32(c, 0)[:c.int(1)], 256, func(s []int32) {
			before := int32(0)
			for i, x := range s {
				s[i] = before
				before += x
			}
		})
	}},
	{"scan_warp", nil, func(c *call) {
		copy(i32(c, 1), i32(c, 0)[:c.int(2)])
		eachSegment(i32(c, 1)[:c.int(2)], 32, func(s []int32) { prefix(s, 0) })
	}},
	{"scan_chained", nil, func(c *call) {
		out, state := i32(c, 1)[:c.int(3)], i32(c, 2)
		copy(out, i32(c, 0))
		prefix(out, 0)
		state[0] = int32(c.blocks())
		for b := range c.blocks() {
			state[2+2*b] = 1
			if n := min(len(out), 128*(b+1)); n > 0 {
				state[3+2*b] = out[n-1]
			}
		}
	}},
	{"scan_segments", nil, func(c *call) {
		in, head, out := i32(c, 0), buf[uint8](c, 1), i32(c, 2)
		for i := range c.int(3) {
			out[i] = in[i]
			if i > 0 && head[i]&7 != 0 {
				out[i] += out[i-1]
			}
		}
	}},
	{"scan_rows_max", nil, func(c *call) {
		cols := c.int(2)
		eachSegment(i32(c, 0)[:c.int(1)*cols], cols, func(s []int32) {
			for i := 1; i < len(s); i++ {
				s[i] = max(s[i], s[i-1])
			}
		})
	}},
	{"scan_step", nil, func(c *call) {
		in, out, d := i32(c, 0), i32(c, 1), c.int(3)
		for i := range c.int(2) {
			out[i] = in[i]
			if i >= d {
				out[i] += in[i-d]
			}
		}
	}},

	{"bitonic_block", nil, func(c *call) { eachSegment(i32(c, 0)[:c.int(1)], 256, slices.Sort) }},
	{"odd_even_sort", nil, func(c *call) { slices.Sort(i32(c, 0)[:c.int(1)]) }},
	{"odd_even_step", nil, func(c *call) {
		for a := i32(c, 0)[:c.int(1)][min(c.int(2), c.int(1)):]; len(a) >= 2; a = a[2:] {
			slices.Sort(a[:2])
		}
	}},
	{"radix_count", nil, func(c *call) {
		for i, k := range buf[uint32](c, 0)[:c.int(2)] {
			i32(c, 1)[int(k>>c.int(3)&15)*c.blocks()+i/256]++
		}
	}},
	{"radix_block", nil, func(c *call) {
		eachSegment(buf[uint32](c, 0)[:c.int(1)], 256, func(s []uint32) {
			slices.SortStableFunc(s, func(a, b uint32) int { return cmp.Compare(a>>c.int(2)&15, b>>c.int(2)&15) })
		})
	}},
	{"scatter", nil, func(c *call) {
		for i, to := range i32(c, 1)[:c.int(3)] {
			i32(c, 2)[to] = i32(c, 0)[i]
		}
	}},
	{"merge_lists", nil, func(c *call) {
		out := i32(c, 2)
		n := copy(out, i32(c, 0)[:c.int(3)])
		n += copy(out[n:], i32(c, 1)[:c.int(4)])
		slices.Sort(out[:n])
	}},
	{"rank_sort", nil, func(c *call) {
		copy(i32(c, 1), i32(c, 0)[:c.int(2)])
		slices.Sort(i32(c, 1)[:c.int(2)])
	}},
	{"insertion_rows", nil, func(c *call) {
		rows, cols := c.int(2), c.int(3)
		type pair struct {
			key   float32
			value int32
		}
		for r := range rows {
			keys, values := f32(c, 0)[r*cols:][:cols], i32(c, 1)[r*cols:][:cols]
			var row []pair
			for i := range keys {
				row = append(row, pair{keys[i], values[i]})
			}
			slices.SortStableFunc(row, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
			for i, p := range row {
				keys[i], values[i] = p.key, p.value
			}
		}
	}},

	{"hist_global", nil, countInto},
	{"hist_match", nil, countInto},
	{"hist_by_bin", nil, countInto},
	{"hist_shared", nil, func(c *call) {
		for _, x := range buf[uint32](c, 0)[:c.int(2)] {
			i32(c, 1)[x%uint32(c.int(3))]++
		}
	}},
	{"hist_private", nil, func(c *call) {
		for i, x := range buf[uint8](c, 0)[:c.int(2)] {
			i32(c, 1)[i/512*16+int(x>>4)]++
		}
	}},
	{"hist_merge", nil, func(c *call) {
		count := c.int(3)
		for i, x := range i32(c, 0)[:c.int(2)*count] {
			i32(c, 1)[i%count] += x
		}
	}},
	{"hist_cumulate", nil, func(c *call) { prefix(i32(c, 0)[:c.int(1)], 0) }},

	{"bfs_level", nil, func(c *call) {
		depth, level := i32(c, 2), int32(c.int(4))
		eachEdge(c, c.int(5), func(v, to, _ int) {
			if depth[v] == level && depth[to] < 0 {
				depth[to] = level + 1
				i32(c, 3)[0] = 1
			}
		})
	}},
	{"bfs_bottom_up", nil, func(c *call) {
		depth, out, level, n := i32(c, 2), i32(c, 3), int32(c.int(4)), c.int(5)
		copy(out, depth[:n])
		eachEdge(c, n, func(v, to, _ int) {
			if depth[v] > level && depth[to] == level {
				out[v] = level + 1
			}
		})
	}},
	{"relax", nil, func(c *call) {
		dist, next, n := i32(c, 3), i32(c, 4), c.int(5)
		for v := range n {
			next[v] = min(next[v], dist[v])
		}
		eachEdge(c, n, func(v, to, e int) { next[to] = min(next[to], dist[v]+i32(c, 2)[e]) })
	}},
	{"rank_pull", floats{3}, func(c *call) {
		share, rank, damping, n := f32(c, 2), f32(c, 3), c.float(4), c.int(5)
		for v := range n {
			rank[v] = float32((1 - damping) / float64(n))
		}
		eachEdge(c, n, func(v, to, _ int) { rank[v] += float32(damping) * share[to] })
	}},
	{"hook", nil, func(c *call) {
		label, parent := i32(c, 2), i32(c, 3)
		eachEdge(c, c.int(5), func(v, to, _ int) {
			if a, b := label[v], label[to]; a > b {
				parent[a] = min(parent[a], b)
				i32(c, 4)[0] = 1
			}
		})
	}},
	{"compress", nil, func(c *call) {
		parent := i32(c, 0)
		for v := range c.int(1) { // parents come before
			parent[v] = parent[parent[v]]
		}
	}},
	{"triangles", nil, func(c *call) {
		n := c.int(3)
		edge := map[[2]int]bool{}
		eachEdge(c, n, func(v, to, _ int) { edge[[2]int{v, to}] = true })
		for v := range n {
			for u := v + 1; u < n; u++ {
				for w := u + 1; edge[[2]int{v, u}] && w < n; w++ {
					if edge[[2]int{v, w}] && edge[[2]int{u, w}] {
						buf[uint64](c, 2)[0]++
					}
				}
			}
		}
	}},
	{"degrees", nil, func(c *call) {
		for _, v := range i32(c, 0)[:2*c.int(2)] {
			i32(c, 1)[v]++
		}
	}},

	{"csr_scalar", floats{4}, func(c *call) {
		eachEdge(c, c.int(5), func(r, col, e int) { f32(c, 4)[r] += f32(c, 2)[e] * f32(c, 3)[col] })
	}},
	{"csr_vector", floats{4}, func(c *call) {
		y, n := f32(c, 4), c.int(7)
		for r := range n {
			y[r] *= float32(c.float(6))
		}
		eachEdge(c, n, func(r, col, e int) { y[r] += float32(c.float(5)) * f32(c, 2)[e] * f32(c, 3)[col] })
	}},
	{"ellpack", floats{3}, func(c *call) {
		n, width := c.int(4), c.int(5)
		for i := range n * width {
			f32(c, 3)[i%n] += f32(c, 1)[i] * f32(c, 2)[i32(c, 0)[i]]
		}
	}},
	{"coo_int", nil, func(c *call) {
		for e := range c.int(5) {
			i32(c, 4)[i32(c, 0)[e]] += i32(c, 2)[e] * i32(c, 3)[i32(c, 1)[e]]
		}
	}},
	{"spmm", floats{4}, func(c *call) {
		k := c.int(5)
		eachEdge(c, int(c.l.Grid[1]), func(r, col, e int) {
			for j := range k {
				f32(c, 4)[r*k+j] += f32(c, 2)[e] * f32(c, 3)[col*k+j]
			}
		})
	}},
	{"csr_to_coo", nil, func(c *call) {
		rows := i32(c, 0)
		for r := range c.int(2) {
			for e := rows[r]; e < rows[r+1]; e++ {
				i32(c, 1)[e] = int32(r)
			}
		}
	}},

	{"matmul", floats{2}, func(c *call) { product(f32(c, 0), f32(c, 1), f32(c, 2), c.int(3), c.int(4), c.int(5)) }},
	{"matmul_tiled", nil, func(c *call) { product(i32(c, 0), i32(c, 1), i32(c, 2), c.int(3), c.int(4), c.int(5)) }},
	{"matmul_registers", floats{2}, func(c *call) {
		a, out, n, k := slices.Clone(f32(c, 0)), f32(c, 2), c.int(3), c.int(4)
		for i := range a {
			a[i] *= float32(c.float(5))
		}
		for i := range out {
			out[i] *= float32(c.float(6))
		}
		product(a, f32(c, 1), out, len(out)/n, n, k)
	}},
	{"transpose", nil, func(c *call) { transpose(i32(c, 0), i32(c, 1), c.int(2), c.int(3)) }},
	{"transpose_tiled", nil, func(c *call) { transpose(i32(c, 0), i32(c, 1), c.int(2), c.int(3)) }},
	{"transpose_inplace", nil, func(c *call) { transpose(slices.Clone(i32(c, 0)), i32(c, 0), c.int(1), c.int(1)) }},
	{"transpose_tiles_inplace", nil, func(c *call) {
		transpose(slices.Clone(i32(c, 0)), i32(c, 0), c.int(1), c.int(1))
	}},
	{"gemv", floats{2}, func(c *call) { product(f32(c, 0), f32(c, 1), f32(c, 2), c.int(3), 1, c.int(4)) }},
	{"syrk", floats{1}, func(c *call) {
		a, out, n, k := f32(c, 0), f32(c, 1), c.int(2), c.int(3)
		for y := range n {
			for x := range y + 1 {
				product(a[y*k:], a[x*k:], out[y*n+x:], 1, 1, k)
			}
		}
	}},
	{"cholesky", floats{0}, func(c *call) {
		n := c.int(1)
		eachSegment(f32(c, 0)[:3*n*n], n*n, func(a []float32) {
			for r := range n {
				a[r*n+r] += float32(2 * n)
				for col := range r + 1 {
					x := float64(a[r*n+col])
					for k := range col {
						x -= float64(a[r*n+k]) * float64(a[col*n+k])
					}
					if r == col {
						a[r*n+r] = float32(math.Sqrt(x))
					} else {
						a[r*n+col] = float32(x / float64(a[col*n+col]))
					}
				}
			}
		})
	}},
	{"axpy", floats{2}, func(c *call) {
		x, y := f32(c, 1), f32(c, 2)
		for i := range c.int(3) {
			y[i] += float32(c.float(0)) * x[i]
		}
	}},

	{"smith_waterman", nil, func(c *call) {
		n := c.int(3)
		for p := range c.blocks() {
			a, b := i32(c, 0)[p*n:][:n], i32(c, 1)[p*n:][:n]
			i32(c, 2)[p] = int32(align(a, b))
		}
	}},
	{"edit_distance", nil, func(c *call) {
		n := c.int(3)
		a, b := i32(c, 0)[:n], i32(c, 1)[:n]
		row := make([]int32, n+1)
		for j := range row {
			row[j] = int32(j)
		}
		for i := range n {
			corner := row[0]
			row[0] = int32(i + 1)
			for j := range n {
				x := min(row[j], row[j+1]) + 1
				if a[i] == b[j] {
					x = min(x, corner)
				} else {
					x = min(x, corner+1)
				}
				corner, row[j+1] = row[j+1], x
			}
		}
		i32(c, 2)[0] = row[n]
	}},
	{"knapsack_row", nil, func(c *call) {
		before, after, w := i32(c, 0), i32(c, 1), c.int(3)
		for x := range c.int(2) + 1 {
			after[x] = before[x]
			if x >= w {
				after[x] = max(after[x], before[x-w]+int32(c.int(4)))
			}
		}
	}},
	{"knapsack_block", nil, func(c *call) {
		best := i32(c, 2)
		for k := range c.int(4) {
			for x := c.int(3); x >= int(i32(c, 0)[k]); x-- {
				best[x] = max(best[x], best[x-int(i32(c, 0)[k])]+i32(c, 1)[k])
			}
		}
	}},
	{"floyd", nil, func(c *call) {
		d, n, k := i32(c, 0), c.int(1), c.int(2)
		for i := range n * n {
			d[i] = min(d[i], d[i/n*n+k]+d[k*n+i%n])
		}
	}},
	{"path_rows", nil, func(c *call) {
		cost, h, w := i32(c, 0), c.int(1), c.int(2)
		for i := w; i < h*w; i++ {
			x := i % w
			cost[i] += slices.Min(cost[i-w-min(x, 1) : i-w+min(2, w-x)])
		}
	}},

	{"integrate", floats{0, 1}, func(c *call) {
		p, v, f, dt := f32(c, 0), f32(c, 1), f32(c, 2), float32(c.float(3))
		for i := range 3 * c.int(4) {
			v[i] = float32(math.FMA(float64(dt), float64(f[i]), float64(v[i])))
			p[i/3*4+i%3] += dt * v[i]
		}
	}},
	{"forces_tiled", floats{1}, forces},
	{"forces", floats{1}, forces},

	{"advance", nil, func(c *call) {
		for i, s := range buf[uint32](c, 0)[:c.int(1)] {
			for range i {
				s = s*1664525 + 1013904223
			}
			buf[uint32](c, 0)[i] = s
		}
	}},

	{"table_direct", nil, func(c *call) {
		for _, k := range i32(c, 0)[:c.int(2)] {
			i32(c, 1)[k] = k * 7
		}
	}},
	{"hash_strings", nil, func(c *call) {
		start := i32(c, 1)
		for i := range c.int(3) {
			h := fnv.New64a()
			h.Write(buf[uint8](c, 0)[start[i]:start[i+1]])
			buf[uint64](c, 2)[i] = h.Sum64()
		}
	}},
	{"crc_rows", nil, func(c *call) {
		rows, n := c.int(2), c.int(3)
		for r := range rows {
			buf[uint32](c, 1)[r] = crc32.ChecksumIEEE(buf[uint8](c, 0)[r*n:][:n])
		}
	}},

	{"convolve", nil, func(c *call) {
		in, kernel, out, w, h, k := i32(c, 0), i32(c, 1), i32(c, 2), c.int(3), c.int(4), c.int(5)
		for i := range w * h * k * k {
			at, j := i/(k*k), i%(k*k)
			x, y := at%w+j%k-k/2, at/w+j/k-k/2
			if x >= 0 && y >= 0 && x < w && y < h {
				out[at] += kernel[j] * in[y*w+x]
			}
		}
	}},
	{"box_rows", nil, func(c *call) {
		in, out, w, h, r := buf[uint8](c, 0), i32(c, 1), c.int(2), c.int(3), c.int(4)
		for i := range w * h {
			for x := max(0, i%w-r); x <= min(w-1, i%w+r); x++ {
				out[i] += int32(in[i/w*w+x])
			}
		}
	}},
	{"box_columns", nil, func(c *call) {
		a, w, h := i32(c, 0), c.int(1), c.int(2)
		old := slices.Clone(a)
		for i := range w * h {
			if i >= w {
				a[i] += old[i-w]
			}
			if i+w < w*h {
				a[i] += old[i+w]
			}
		}
	}},
	{"median3", nil, func(c *call) {
		in, out, w, h := buf[uint8](c, 0), buf[uint8](c, 1), c.int(2), c.int(3)
		for i := range w * h {
			var v []uint8
			for k := range 9 {
				x, y := min(max(i%w+k%3-1, 0), w-1), min(max(i/w+k/3-1, 0), h-1)
				v = append(v, in[y*w+x])
			}
			slices.Sort(v)
			out[i] = v[4]
		}
	}},
	{"quarter_turn", nil, func(c *call) {
		a, n := i32(c, 0), c.int(1)
		old := slices.Clone(a)
		for i := range n * n {
			a[i%n*n+n-1-i/n] = old[i]
		}
	}},
	{"area_strip", nil, func(c *call) {
		a, w, h := i32(c, 0), 64*c.int(1), c.int(2)
		for i := range w * h {
			row := int32(0)
			if i >= w {
				row = a[i-w]
				if i%64 > 0 {
					row -= a[i-w-1]
				}
			}
			if i%64 > 0 {
				row += a[i-1]
			}
			a[i] += row
		}
	}},

	{"softmax", floats{1}, func(c *call) {
		in, out, cols := f32(c, 0), f32(c, 1), c.int(2)
		for r := range c.blocks() {
			softmax(in[r*cols:][:cols], out[r*cols:])
		}
	}},
	{"layernorm", floats{3}, func(c *call) {
		cols := c.int(5)
		for r := range c.blocks() {
			in, out := f32(c, 0)[r*cols:][:cols], f32(c, 3)[r*cols:]
			var mean, variance float64
			for _, x := range in {
				mean += float64(x) / float64(cols)
			}
			for _, x := range in {
				variance += (float64(x) - mean) * (float64(x) - mean) / float64(cols)
			}
			for i, x := range in {
				out[i] = float32((float64(x)-mean)/math.Sqrt(variance+c.float(4)))*f32(c, 1)[i] + f32(c, 2)[i]
			}
		}
	}},
	{"attention", floats{3}, func(c *call) {
		keys, d := c.int(4), c.int(5)
		for q := range c.blocks() {
			attend(f32(c, 0)[q*d:][:d], f32(c, 1), f32(c, 2), f32(c, 3)[q*d:], keys)
		}
	}},
	{"attention_online", floats{3}, func(c *call) {
		for q := range c.int(4) {
			attend(f32(c, 0)[q*32:][:32], f32(c, 1), f32(c, 2), f32(c, 3)[q*32:], q+1)
		}
	}},
	{"im2col", nil, func(c *call) {
		in, out, w, h, k := f32(c, 0), f32(c, 1), c.int(3), c.int(4), c.int(5)
		at := 0
		for f := range c.int(2) * k * k {
			for y := range h - k + 1 {
				for x := range w - k + 1 {
					out[at] = in[(f/(k*k)*h+y+f/k%k)*w+x+f%k]
					at++
				}
			}
		}
	}},
	{"concat", nil, func(c *call) {
		a, b, out, na, nb := f32(c, 0), f32(c, 1), f32(c, 2), c.int(3), c.int(4)
		for r := range int(c.l.Grid[1]) {
			n := copy(out, a[r*na:][:na])
			n += copy(out[n:], b[r*nb:][:nb])
			out = out[n:]
		}
	}},
	{"flip", nil, func(c *call) {
		out := i32(c, 1)[:c.int(2)]
		copy(out, i32(c, 0))
		slices.Reverse(out)
	}},
	{"greedy", nil, func(c *call) {
		cols := c.int(2)
		for r := range c.blocks() {
			row := f32(c, 0)[r*cols:][:cols]
			i32(c, 1)[r] = int32(slices.Index(row, slices.Max(row)))
		}
	}},

	{"cross_entropy", floats{2, 3}, func(c *call) {
		in, out, rows, cols := f32(c, 0), f32(c, 3), c.int(4), c.int(5)
		for r := range rows {
			t := i32(c, 1)[r]
			softmax(in[r*cols:][:cols], out[r*cols:])
			f32(c, 2)[r] = float32(-math.Log(float64(out[r*cols+int(t)])))
			for i := range cols {
				x := out[r*cols+i]
				if int32(i) == t {
					x--
				}
				out[r*cols+i] = x / float32(rows)
			}
		}
	}},
	{"dropout_mask", nil, func(c *call) {
		x := f32(c, 0)
		for i, m := range buf[uint8](c, 1)[:c.int(3)] {
			x[i] *= float32(c.float(2)) * float32(m&1)
			if m&1 == 0 {
				x[i] = 0
			}
		}
	}},
	{"embedding_backward_rows", floats{2}, func(c *call) {
		grad, token, table, n, d := f32(c, 0), i32(c, 1), f32(c, 2), c.int(3), c.int(4)
		for i := range n * d {
			table[int(token[i/d])*d+i%d] += grad[i]
		}
	}},

	{"compact_block", nil, func(c *call) {
		in, out, n := i32(c, 0), i32(c, 1), 0
		for _, x := range in[:c.int(3)] {
			if x > 0 {
				out[n] = x
				n++
			}
		}
		i32(c, 2)[0] = int32(n)
	}},
	{"partition_block", nil, func(c *call) {
		eachSegment(i32(c, 0)[:c.int(2)], 128, func(s []int32) {
			slices.SortStableFunc(s, func(a, b int32) int {
				low := func(x int32) int {
					if x < int32(c.int(1)) {
						return 0
					}
					return 1
				}
				return low(a) - low(b)
			})
		})
	}},
	{"run_lengths", nil, func(c *call) {
		in, first := i32(c, 0), 0
		for i := range c.int(2) {
			if in[i] != in[first] {
				first = i
			}
			i32(c, 1)[first]++
		}
	}},
	{"to_decimal", nil, func(c *call) {
		for i, x := range buf[uint32](c, 0)[:c.int(2)] {
			copy(buf[byte](c, 1)[11*i:], fmt.Sprintf("%10d\n", x))
		}
	}},
	{"pack_bits", nil, func(c *call) {
		for i, x := range buf[uint8](c, 0)[:c.int(2)] {
			buf[uint32](c, 1)[i/32] |= uint32(x&1) << (i % 32)
		}
	}},
	{"delta_encode", nil, func(c *call) {
		eachSegment(i32(c, 0)[:c.int(1)], 128, func(s []int32) {
			for i := len(s) - 1; i > 0; i-- {
				s[i] -= s[i-1]
			}
		})
	}},

	{"xor_stream", nil, func(c *call) {
		for i := range c.int(3) {
			i32(c, 2)[i] = i32(c, 0)[i] ^ i32(c, 1)[i]
		}
	}},
	{"multiply_mod", nil, func(c *call) {
		const p = 1<<61 - 1
		a := buf[uint64](c, 0)
		for i := range c.int(2) {
			hi, lo := bits.Mul64(a[i]&p, uint64(c.int(1)))
			_, a[i] = bits.Div64(hi, lo, p)
		}
	}},

	{"fft128", floats{0}, func(c *call) {
		eachSegment(buf[complex64](c, 0), 128, func(a []complex64) {
			old := slices.Clone(a)
			for k := range a {
				var x complex128
				for j := range old {
					x += complex128(old[j]) * cmplx.Exp(complex(0, -2*math.Pi*float64(j*k%128)/128))
				}
				a[k] = complex64(x)
			}
		})
	}},
	{"hadamard", nil, func(c *call) {
		eachSegment(i32(c, 0)[:c.int(1)], 32, func(s []int32) {
			old := slices.Clone(s)
			for i := range s {
				s[i] = 0
				for j := range old {
					s[i] += old[j] * int32(1-2*(bits.OnesCount(uint(i&j))&1))
				}
			}
		})
	}},
	{"bit_reverse", nil, func(c *call) {
		n := c.int(2)
		for i := range 1 << n {
			i32(c, 1)[bits.Reverse32(uint32(i))>>1>>(31-n)] = i32(c, 0)[i]
		}
	}},

	{"imaginary_from_real", nil, func(c *call) {
		for i := range c.int(1) {
			f32(c, 0)[2*i+1] = f32(c, 0)[2*i] * 0.5
		}
	}},
	{"aos_to_soa", nil, func(c *call) { transpose(i32(c, 0), i32(c, 1), 3, c.int(2)) }},
	{"soa_to_aos", nil, func(c *call) { transpose(i32(c, 0), i32(c, 1), c.int(2), 3) }},
	{"table_increment", nil, func(c *call) {
		for _, p := range c.app.Buffers[c.l.Args[0].Patches[0].Buf].Init.Pointers {
			if p != nil {
				for i := range c.int(1) {
					deref[int32](c, *p)[i]++
				}
			}
		}
	}},
	{"ring_push", nil, func(c *call) {
		ring, head := i32(c, 1), i32(c, 2)
		for t := range c.threads() {
			ring[head[0]] = i32(c, 0)[t]
			head[0] = (head[0] + 1) % int32(c.int(3))
		}
	}},

	{"collatz", nil, func(c *call) {
		for i, x := range i32(c, 0)[:c.int(2)] {
			for x++; x != 1; i32(c, 1)[i]++ {
				if x%2 == 1 {
					x = 3*x + 1
				} else {
					x /= 2
				}
			}
		}
	}},
	{"recursion", nil, func(c *call) {
		// Ackermann's first three rows.
		for i := range c.int(1) {
			i32(c, 0)[i] = int32([]int{i/3 + 1, i/3 + 2, 2*(i/3) + 3}[i%3])
		}
	}},
	{"votes", nil, func(c *call) {
		in, out, n, t := i32(c, 0), i32(c, 1), c.int(2), c.threads()
		for b := range c.blocks() {
			count := 0
			for i := b * t; i < min(n, (b+1)*t); i++ {
				if in[i] > 0 {
					count++
				}
			}
			out[3*b+2] = int32(count)
			out[3*b+1] = int32(min(count, 1))
			out[3*b] = int32(count / t)
		}
	}},
	{"leave_early", nil, func(c *call) {
		in, out := i32(c, 0), i32(c, 1)
		for i := range c.int(2) {
			for _, x := range in[i&^31 : min(i|31, c.int(2)-1)+1] {
				out[i] += min(x, in[i]) // rounds that both see
			}
		}
	}},
	{"grid_barrier", nil, func(c *call) {
		a, out := i32(c, 1), i32(c, 2)
		i32(c, 0)[0] = int32(c.blocks())
		for i := range a {
			a[i]++
		}
		for i := range out {
			out[i] = a[(i+32)%len(a)]
		}
	}},
	{"in_turn", nil, func(c *call) {
		out := i32(c, 1)
		for b := range c.blocks() {
			out[b] = 1
			if b > 0 {
				out[b] += 3 * out[b-1]
			}
		}
		i32(c, 0)[0] = int32(c.blocks())
	}},
	{"locked_sum", nil, func(c *call) {
		n := c.blocks() * 32
		i32(c, 1)[0] = int32(n * (n - 1) / 2)
	}},
	{"scratch_block", nil, func(c *call) {
		t := c.threads()
		for i, x := range i32(c, 0) {
			i32(c, 1)[i] = 2 * x
			i32(c, 2)[i/t*t+t-1-i%t] = 2 * x
		}
	}},
	{"scratch_half", nil, func(c *call) {
		s := i32(c, 1)
		for i, x := range i32(c, 0) {
			if i%2 == 1 {
				s[i] = x
			}
		}
		old := slices.Clone(s)
		for i := range s {
			s[i] = old[i] + old[i&^63+63-i%64]
		}
	}},
	{"atomics_fixed_point", nil, func(c *call) {
		out := i32(c, 1)
		for _, x := range i32(c, 0)[:c.int(2)] {
			out[0] &= x | 0xff
			out[1] |= x & 0xff
			out[2] = int32(max(uint32(out[2]), uint32(x)))
			out[3] = min(out[3], x)
			out[4] = max(out[4], x)
		}
	}},
	{"atomics_counting", nil, func(c *call) {
		out, n := i32(c, 1), int32(c.int(2))
		for _, x := range i32(c, 0)[:n] {
			out[0] ^= x
			out[1] -= x
		}
		out[2] = n % 7
		out[3] = (7 - n%7) % 7
	}},
	{"producer_consumer", nil, func(c *call) {
		in, out := i32(c, 0), i32(c, 1)
		for i := range in {
			out[i] = 3 * in[i&^31+31-i%32]
		}
	}},
	{"local_array", nil, func(c *call) {
		for i, x := range buf[uint32](c, 0)[:c.int(2)] {
			var seen [16]int32
			for ; x != 0 || sum(seen[:]) < 8; x >>= 4 {
				seen[x&15]++
			}
			best := slices.Index(seen[:], slices.Max(seen[:]))
			i32(c, 1)[i] = int32(best)*16 + seen[best]
		}
	}},

	{"cluster_sum", nil, func(c *call) {
		size := max(int(c.l.Cluster[0]), 1)
		for i, x := range i32(c, 0)[:c.int(2)] {
			i32(c, 1)[i/64%4/size] += x
		}
	}},
	{"cluster_ring", nil, func(c *call) {
		in, out, size, rounds := i32(c, 0), i32(c, 1), int(c.l.Cluster[0]), c.int(2)
		for i := range in {
			b := i / 32
			from := b/size*size + (b+rounds)%size
			out[i] = in[from*32+i%32] + int32(rounds)
		}
	}},
	{"cluster_histogram", nil, func(c *call) {
		size := max(int(c.l.Cluster[0]), 1)
		for i, x := range i32(c, 0)[:c.int(2)] {
			i32(c, 1)[i/64%4/size*64+int(x)]++
		}
	}},
	{"async_stages", nil, func(c *call) {
		in, out := slices.Clone(i32(c, 0)), i32(c, 1)
		for i := range 2 * c.int(2) {
			out[i] = 2 * in[i&^31+31-i%32]
		}
	}},
	{"bulk_row", nil, func(c *call) {
		for i, x := range i32(c, 0) {
			i32(c, 1)[i] = x + int32(i%256)
		}
	}},
	{"bulk_back", nil, func(c *call) {
		for i := range i32(c, 0) {
			i32(c, 0)[i] ^= 0xff
		}
	}},
	{"bulk_add", nil, func(c *call) {
		for i, x := range i32(c, 0) {
			i32(c, 1)[i%64] += x
		}
	}},
	{"release_acquire", nil, func(c *call) {
		for b := range c.blocks() {
			i32(c, 0)[b], i32(c, 1)[b] = 1, 5
		}
	}},
	{"tensor_tile", floats{2}, func(c *call) {
		a, b, out := buf[uint16](c, 0), buf[uint16](c, 1), f32(c, 2)
		for i := range out {
			tile, row, col := i/128, i%128/8, i%8
			for k := range 16 {
				out[i] += float32(half(a[tile*256+row*16+k]) * half(b[tile*128+col*16+k]))
			}
		}
	}},
	{"turn_8x8", nil, func(c *call) {
		in, out := buf[uint16](c, 0), buf[uint16](c, 1)
		for i, x := range in {
			out[i&^63+i%8*8+i%64/8] = x
		}
	}},

	{"shift_up_serial", nil, func(c *call) {
		a, n, by := i32(c, 0), c.int(1), c.int(2)
		copy(a[by:], slices.Clone(a[:n]))
	}},
	{"until_equal", nil, func(c *call) {
		n, step := c.int(2), c.int(3)
		for i := 0; i < 32*n; i += step {
			i32(c, 1)[i] = i32(c, 0)[i]
		}
	}},
	{"below_zero", nil, func(c *call) { copy(i32(c, 1), i32(c, 0)) }},
	{"exchange_lanes", nil, func(c *call) {
		old := slices.Clone(i32(c, 0))
		for i, x := range old {
			i32(c, 0)[i^c.int(1)] = x
		}
	}},
	{"ping_pong", nil, func(c *call) {
		eachSegment(i32(c, 0), 64, func(s []int32) {
			for r := range c.int(1) {
				from, to := s[r%2*32:][:32], s[(r+1)%2*32:]
				for i, x := range from {
					to[31-i] = x + 1
				}
			}
		})
	}},
	{"indices_within", nil, func(c *call) {
		a := i32(c, 0)
		for i := range c.int(1) {
			if to := a[i]; to >= 0 {
				a[to] = ^a[to]
			}
		}
	}},
	{"counter_reset_last", nil, func(c *call) {
		for _, x := range i32(c, 0)[:c.int(3)] {
			for b := range c.blocks() {
				if x > 0 {
					i32(c, 2)[b]++
				}
			}
		}
	}},
	{"pointers_in_local", nil, func(c *call) {
		for i, x := range buf[uint32](c, 0)[:c.int(4)] {
			i32(c, 1+int(x%3))[i] = int32(i)
		}
	}},
	{"add_by_each", nil, func(c *call) {
		y := int32(c.l.Grid[1])
		for i := range i32(c, 0) {
			i32(c, 0)[i] += y * (y + 1) / 2
		}
	}},
	{"recursive_fill", nil, func(c *call) {
		for i := range 8 * c.int(1) {
			i32(c, 0)[i] = int32(i%c.int(1) + 1)
		}
	}},

	{"matrix_tiles", floats{2}, func(c *call) {
		a, b, out := buf[uint16](c, 0), buf[uint16](c, 1), f32(c, 2)
		for i := range out {
			tile, row, col := i&^255, i%256/16, i%16
			for k := range 16 {
				out[i] += float32(half(a[tile+row*16+k]) * half(b[tile+k*16+col]))
			}
		}
	}},
	{"matrix_tiles_added", floats{2}, func(c *call) {
		a, b, out := buf[uint16](c, 0), buf[uint16](c, 1), f32(c, 2)
		for i := range out {
			tile, row, col := i&^255, i%256/16, i%16
			for k := range 16 {
				out[i] += float32(half(a[tile+row*16+k]) * half(b[tile+col*16+k]))
			}
		}
	}},
	{"bulk_through", nil, func(c *call) { copy(i32(c, 1)[:64*c.blocks()], i32(c, 0)) }},
	{"bulk_extremes", nil, func(c *call) {
		least, most := buf[uint32](c, 1), buf[uint32](c, 2)
		for i, x := range buf[uint32](c, 0) {
			least[i%64], most[i%64] = min(least[i%64], x), max(most[i%64], x)
		}
	}},
	{"async_zero_fill", nil, func(c *call) { copy(i32(c, 1), i32(c, 0)[:c.int(2)]) }},
	{"shared_or_global", nil, func(c *call) {
		for b := range i32(c, 0) {
			i32(c, 0)[b] += 64
		}
	}},
	{"swap_16", nil, func(c *call) {
		for i := 0; i < c.int(1); i += 2 {
			buf[uint16](c, 0)[i] = 7
		}
	}},

	{"broadcast_add", nil, func(c *call) {
		eachElement(c.l.Args[4].Bytes, func(out, a, b int) { f32(c, 1)[out/4] = f32(c, 2)[a/4] + f32(c, 3)[b/4] })
	}},
	{"copy_part", nil, func(c *call) {
		eachElement(c.l.Args[4].Bytes, func(out, in, _ int) { i32(c, 1)[out/4] = i32(c, 2)[in/4] })
	}},
	{"vectors_and_tail", nil, func(c *call) {
		for i, x := range f32(c, 1)[:c.int(0)] {
			f32(c, 2)[i] = x * x
		}
	}},
	{"many_tensors", nil, func(c *call) {
		p := c.l.Args[0].Patches // inputs, then outputs
		for k := range len(p) / 2 {
			in, out := deref[float32](c, p[k].Pointer), deref[float32](c, p[k+len(p)/2].Pointer)
			for i, x := range in {
				out[i] = x * float32(c.float(1))
			}
		}
	}},
	{"batched_product", floats{2}, func(c *call) {
		m, n, k := c.int(3), c.int(4), c.int(5)
		for z := range int(c.l.Grid[2]) {
			product(f32(c, 0)[z*c.int(6):], f32(c, 1)[z*c.int(7):], f32(c, 2)[z*c.int(8):], m, n, k)
		}
	}},
	{"blocked_scan", nil, func(c *call) {
		out := i32(c, 1)[:c.int(2)]
		copy(out, i32(c, 0))
		eachSegment(out, 128, func(s []int32) { prefix(s, 0) })
	}},
	{"take", nil, func(c *call) {
		size := int32(c.int(3))
		for i, k := range i32(c, 1)[:c.int(4)] {
			f32(c, 2)[i] = f32(c, 0)[(k+size)%size]
		}
	}},
}

type element interface{ ~int32 | ~uint32 | ~float32 }

func sum[T element](a []T) (s T) {
	for _, x := range a {
		s += x
	}
	return s
}

// prefix turns s into its prefix sums, on top of before, and returns the last.
func prefix(s []int32, before int32) int32 {
	for i := range s {
		before += s[i]
		s[i] = before
	}
	return before
}

// eachSegment calls f with every n elements of a, and with the rest.
func eachSegment[T any](a []T, n int, f func([]T)) {
	for s := range slices.Chunk(a, n) {
		f(s)
	}
}

// eachNeighbour calls f with the index of (x, y) and of what lies around it.
func eachNeighbour(x, y, w, h int, f func(i int)) {
	for b := max(0, y-1); b <= min(h-1, y+1); b++ {
		for a := max(0, x-1); a <= min(w-1, x+1); a++ {
			f(b*w + a)
		}
	}
}

// eachEdge calls f with row, column and number of every element of a matrix of n rows, whose offsets are
// argument 0 and whose columns are argument 1.
func eachEdge(c *call, n int, f func(row, col, e int)) {
	rows, cols := i32(c, 0), i32(c, 1)
	for r := range n {
		for e := rows[r]; e < rows[r+1]; e++ {
			f(r, int(cols[e]), int(e))
		}
	}
}

// countInto counts the elements of argument 0 into argument 1.
func countInto(c *call) {
	for _, x := range i32(c, 0)[:c.int(2)] {
		i32(c, 1)[x]++
	}
}

// product adds the product of an m by k and a k by n matrix to out.
func product[T element](a, b, out []T, m, n, k int) {
	for i := range m * n {
		for j := range k {
			out[i] += a[i/n*k+j] * b[j*n+i%n]
		}
	}
}

// transpose turns h rows of w elements into w rows of h.
func transpose(in, out []int32, w, h int) {
	for i := range w * h {
		out[i%w*h+i/w] = in[i]
	}
}

// align is the best local alignment of two strings: 3 for a match, -2 for a mismatch, -1 for a gap.
func align(a, b []int32) int {
	row, best := make([]int, len(b)+1), 0
	for i := range a {
		corner := 0
		for j := range b {
			x := corner - 2
			if a[i] == b[j] {
				x = corner + 3
			}
			corner = row[j+1]
			row[j+1] = max(0, x, row[j]-1, row[j+1]-1)
			best = max(best, row[j+1])
		}
	}
	return best
}

// forces is the pull of every body on every body.
func forces(c *call) {
	body, force, n := f32(c, 0), f32(c, 1), c.int(2)
	for i := range n {
		var f [3]float64
		for j := range n {
			var d [3]float64
			r2 := 0.01
			for k := range 3 {
				d[k] = float64(body[4*j+k]) - float64(body[4*i+k])
				r2 += d[k] * d[k]
			}
			for k := range 3 {
				f[k] += d[k] * math.Abs(float64(body[4*j+3])) / (r2 * math.Sqrt(r2))
			}
		}
		for k := range 3 {
			force[3*i+k] = float32(f[k])
		}
	}
}

// eachElement calls f with the offsets of every element of a struct Shape (tensors.cu): of the output and two inputs.
func eachElement(shape []byte, f func(out, a, b int)) {
	le := binary.LittleEndian
	dims := int(le.Uint32(shape))
	n := 1
	for d := range dims {
		n *= int(le.Uint32(shape[4+12*d:]))
	}
	for i := range n {
		var at [3]int
		rest := i
		for d := range dims {
			size := int(le.Uint32(shape[4+12*d:]))
			for k := range at {
				at[k] += rest % size * int(le.Uint64(shape[56+8*(4*k+d):]))
			}
			rest /= size
		}
		f(at[0], at[1], at[2])
	}
}

// half is the value of a normal half-precision number, or zero.
func half(x uint16) float64 {
	if x&0x7fff == 0 {
		return 0
	}
	f := math.Ldexp(float64(x&0x3ff|0x400), int(x>>10&0x1f)-25)
	if x>>15 == 1 {
		return -f
	}
	return f
}

// softmax may work in place.
func softmax(in, out []float32) {
	var total float64
	for _, x := range in {
		total += math.Exp(float64(x))
	}
	for i, x := range in {
		out[i] = float32(math.Exp(float64(x)) / total)
	}
}

// attend is attention of one query over n keys.
func attend(q, k, v, out []float32, n int) {
	score := make([]float32, n)
	for j := range score {
		var s float64
		for i := range q {
			s += float64(q[i]) * float64(k[j*len(q)+i])
		}
		score[j] = float32(s / math.Sqrt(float64(len(q))))
	}
	softmax(score, score)
	for i := range q {
		var x float64
		for j := range score {
			x += float64(score[j]) * float64(v[j*len(q)+i])
		}
		out[i] = float32(x)
	}
}
