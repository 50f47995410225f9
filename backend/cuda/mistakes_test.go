//go:build cuda && cudaemu

package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mistakes lists mistakes for each file of kernels, with the tests of which one has to find them. A mistake is what is right, which is
// an expression or, with a semicolon, a statement, and what takes its place; there may be several of both.
var mistakes = []struct {
	file, tests string
	list        [][]string
}{
	{"top.cu", "^TestConformance$/^TopK$", [][]string{
		{`(uint32_t)~index`, `(uint32_t)index`, `(int)~(uint32_t)keys[i]`, `(int)(uint32_t)keys[i]`}, // the last of equals
		{`0xffffffffu`, `0u`},
		{`as_uint(v + 0.f)`, `as_uint(v)`},
		{`keys[i + n] > keys[i]`, `keys[i + n] < keys[i]`},
		{`(a & size) == 0`, `true`},
		{`at < among`, `at < among - 1`},
		{`bid_y() * KEYS + i`, `bid_y() * (KEYS - 1) + i`},
		{`row * n + from + i`, `from + i`},
		{`kept = k`, `kept`},
	}},
	{"halves.h", "^(TestOrderOfSums|TestAttentionPrecision)$/^F16$", [][]string{
		{`F::pack(x - F::low(w), y - F::high(w))`, `0u`},
		{`268 - e`, `269 - e`},
		{`min_(254, (int)(most >> 23))`, `140`},
	}},
	{"halves.cu", "^TestOrderOfSums$/^F16$", [][]string{
		{`h.lo[i] = p.lo;`, `h.lo[i] = 0;`},
		{`row0[k + 1]`, `row8[k]`},
		{`h.hi[k + 1]`, `h.hi[k]`},
		{`ld_weights(w + 128 * j + 16)`, `ld_weights(w + 128 * j + 8)`},
		{`at + 128 * j + 8 * i`, `at + 128 * j + 8 * (i ^ 1)`},
		{`shfl(scale.down, 4 * token)`, `shfl(scale.down, token)`},
		{`at + i < a.n ? a.x[at + i] : 0.f`, `a.x[at + i]`},
		{`s < 4`, `s < 2`},
		{`bid_x() * (ROWS / 32) + (warp & 3)`, `bid_x() * (ROWS / 32) + (warp & 1)`},
	}},
	{"floats.cu", "^(TestOrderOfSums|TestConformance)$/^(F32|Embed)$", [][]string{
		{`part[(sb * NT + t) * 32 + lane] = sum[t];`, `part[(sb * NT + t) * 32 + (lane ^ 1)] = sum[t];`},
		{`(id >> 5) * nsb`, `(id >> 5)`},
		{`i * F::PER + k < n`, `true`},
	}},
	{"sums.h", "^TestOrderOfSums$/^F(32|16)$/^tokens=1$", [][]string{
		{`v += part[(sb * NT + t) * 32 + lane];`, `v += part[((nsb - 1 - sb) * NT + t) * 32 + lane];`}, // another order
		{`bias ? v + bias[row] : v`, `v`},
		{`row < rows`, `row < rows - 1`},
	}},
	{"tensor.cu", "^TestOrderOfSums$/^Q4_K$/tokens=70", [][]string{
		{`b_row + 16 * STRIDE + 32 * b`, `b_row + 8 * STRIDE + 32 * b`},
		{`a_row + 16 * i * STRIDE + 32 * b`, `a_row + 16 * i * STRIDE + 16 * b`},
		{`16 * (matrix >> 1)`, `16 * (matrix & 1)`},
		{`if (F::MIN) sum[i] = fma_(min[i >> 1], quants[i & 1], sum[i]);`, ``},
		{`scale[i >> 1] * d[i & 1]`, `scale[i & 1] * d[i >> 1]`},
		{`sb & 1 ? s->now.b : s->b`, `s->b`},
		{`at % bytes`, `at % bytes ^ 16`},
		{`2 * (tid_x() & 3)`, `2 * (tid_x() & 1)`},
	}},
	{"flash.cu", "^(TestAttentionPrecision|TestAttentionInfinite|TestConformance)$/^AttentionBatch$/F16", [][]string{
		{`at < see[i >> 1].start`, `at <= see[i >> 1].start`},
		{`at >= see[i >> 1].length`, `at > see[i >> 1].length`},
		{`from + POSITIONS <= tile.all.length`, `from + POSITIONS <= tile.any.length`},
		{`from >= tile.all.start`, `from >= tile.any.start`},
		{`tile.any.start / POSITIONS * POSITIONS`, `tile.any.start`},
		{`f[i >> 1].a`, `1.f`},
		{`f[r].a`, `1.f`},
		{`t.most[r] = f[r].most;`, ``},
		{`mma_f16(s[n], lo, key[n]);`, ``},
		{`mma_f16(o[n], w.lo[k], value[n]);`, ``},
		{`*(uint32_t *)&s->p[16 + row][at] = p.lo;`, `*(uint32_t *)&s->p[16 + row][at] = 0;`},
		{`mma_f16(s[n], hi, key[n]);`, `mma_f16(s[n], hi, key[n ^ 1]);`},
		{`q[8 * (matrix & 1) + j] + 8 * (matrix >> 1)`, `q[8 * (matrix >> 1) + j] + 8 * (matrix & 1)`},
		{`k_row + 8 * n * BYTES + 2 * d`, `k_row + 8 * n * BYTES + d`},
		{`v_row + 16 * k * BYTES + 16 * n`, `v_row + 8 * k * BYTES + 16 * n`},
		{`weigh(s[2 * k + (i >> 1)] + 2 * (i & 1), most.v[i & 1])`, `weigh(s[2 * k + (i & 1)] + 2 * (i >> 1), most.v[i & 1])`},
		{`weigh(scores[i >> 1] + 2 * (i & 1), most.v[i & 1])`, `weigh(scores[i >> 1] + 2 * (i & 1), most.v[i >> 1])`},
		{`*(u32x4 *)&to[j][d] = u32x4{0, 0, 0, 0};`, ``},
		{`if (s->infinite[0]) return false;`, ``},
		{`find_cells<D>(c, turn ^ 1, runs, from + POSITIONS, tile.any);`, `find_cells<D>(c, turn ^ 1, runs, from, tile.any);`},
		{`find_cells<D>(c, turn ^ 1, runs, from + step, v);`, `find_cells<D>(c, turn ^ 1, runs, from + POSITIONS, v);`},
		{`if (lane == 0) s->unit[row + r] = unit;`, `if (lane == 0) s->unit[row + (r ^ 1)] = unit;`},
		{`w < STEPS`, `w < STEPS - 1`},
		{`ldmatrix(w.hi[k], p_row + 32 * k);`, `ldmatrix(w.hi[k], p_row + 16 * k);`},
		{`gdim_x() - 1 - bid_x()`, `bid_x() ? 0 : gdim_x() - 1`},
	}},
	{"attending.h", "^TestConformance$/^(AttentionSpans|AttentionBatch)$/(F16|two)", [][]string{
		{`i < 2 * RUNS`, `false`},
		{`exp2_(most - top)`, `1.f`},
		{`position -= runs[2 * r + 1];`, ``},
		{`p < listed ? p + 1 : 0`, `p < listed ? p : 0`},
	}},
	{"attention.cu", "^TestConformance$/^(Attention|AttentionBatch)$/F32", [][]string{
		{`from + j < length[t]`, `from + j <= length[t]`},
		{`from + j >= start[t]`, `from + j > start[t]`},
		{`earliest / chunk * chunk`, `earliest`},
		{`fma_(out[row][i], w.a[row], o[row][i] * w.b[row])`, `fma_(out[row][i], 1.f, o[row][i] * w.b[row])`},
	}},
}

// mistakesProgram is all kernels with mistakes, as emu.cc has them without.
const mistakesProgram = `#pragma GCC optimize("fp-contract=off")
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#endif
#include <stdlib.h>
static int emu_mistake = atoi(getenv("MINFER_CUDA_MISTAKE"));
#include "kernels/attention.cu"
#include "kernels/top.cu"
#include "kernels/halves.h"
#include "kernels/sums.h"
namespace floats {
#include "kernels/floats.cu"
}
namespace halves {
#include "kernels/halves.cu"
}
namespace flash {
#include "kernels/flash.cu"
}
#define FORMAT Q4_K
#include "kernels/tensor.cu"
`

// TestMistakes puts each mistake into the kernels, and wants a test to find it.
func TestMistakes(t *testing.T) {
	if inner(t) || testing.Short() {
		t.Skip("it runs the other tests")
	}
	library := buildMistakes(t)
	n := 0
	for _, f := range mistakes {
		run := func(mistake int) error {
			out, err := again(t, f.tests, "GPUEMU_KERNELS="+library, fmt.Sprint("MINFER_CUDA_MISTAKE=", mistake))
			if mistake == 0 && err != nil {
				t.Errorf("%s: the tests fail without a mistake: %v\n%s", f.file, err, out)
			}
			return err
		}
		run(0)
		for _, m := range f.list {
			n++
			t.Run(fmt.Sprintf("%s/%s", f.file, m[0]), func(t *testing.T) {
				if run(n) == nil {
					t.Errorf("no test finds %q in the place of %q", m[1], m[0])
				}
			})
		}
	}
}

// buildMistakes makes a library of kernels in which the environment says which mistake is made.
func buildMistakes(t *testing.T) (path string) {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join("internal", "driver")
	if err := os.CopyFS(filepath.Join(dir, "kernels"), os.DirFS(filepath.Join(from, "kernels"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "emu"), os.DirFS(filepath.Join(from, "emu"))); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range mistakes {
		path := filepath.Join(dir, "kernels", f.file)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		for _, m := range f.list {
			n++
			for i := 0; i < len(m); i += 2 {
				if c := strings.Count(text, m[i]); c != 1 {
					t.Fatalf("%q stands %d times in %s, want once", m[i], c, f.file)
				}
				form := "(emu_mistake == %d ? (%s) : (%s))"
				if strings.HasSuffix(m[i], ";") {
					form = "if (emu_mistake == %d) { %s } else { %s }"
				}
				text = strings.Replace(text, m[i], fmt.Sprintf(form, n, m[i+1], m[i]), 1)
			}
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	source := filepath.Join(dir, "mistakes.cc")
	if err := os.WriteFile(source, []byte(mistakesProgram), 0o666); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "mistakes.so")
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	c := exec.CommandContext(t.Context(), compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-DGPU_EMU", "-w", "-o", path, source)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
