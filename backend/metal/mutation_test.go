//go:build cgo && metalemu

package metal

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	"github.com/minfer/minfer/backend/metal/emu"
)

// mistake is a change that makes the device wrong in a way that a programmer could, and the part of the conformance suite
// that has to find it.
type mistake struct {
	name     string
	file     string // one of kernels/, or of the package
	old, new string
	test     string // for -run; for kernels, below the conformance suite
	only     string // kernels that the test needs, as a regular expression; others are left out to save time
}

// kernelMistakes are in the kernels.
var kernelMistakes = []mistake{
	{"no barrier after a write to threadgroup memory", "common", "if (lane == 0) shared[sg] = v;\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  v = shared[0];\n  for (ushort i = 1; i < groups; i++) v +=",
		"if (lane == 0) shared[sg] = v;\n  v = shared[0];\n  for (ushort i = 1; i < groups; i++) v +=", "Rows/RMSNorm/577x", "norm"},
	{"no barrier before threadgroup memory is written again", "attention", "threadgroup_barrier(mem_flags::mem_threadgroup); // the values have been used", "", "AttentionBatch/F32/heads=[46]", "attend_f32_32|kv_store_f32|merge"},
	{"a barrier that some threads do not reach", "rows", "const float scale = norm_scale(row, a.n", "if (tid == 3) return;\n  const float scale = norm_scale(row, a.n", "Rows/RMSNorm/577x", "norm"},
	{"a collective that some lanes do not reach", "matmul", "  v = strands_sum(v);\n  if (lane % 8 == 0 && row < a.rows) y[token * a.rows + row] = a.biased ? v + bias[row] : v;\n}\n\n// matvec_gated",
		"  if (lane == 5) return;\n  v = strands_sum(v);\n  if (lane % 8 == 0 && row < a.rows) y[token * a.rows + row] = a.biased ? v + bias[row] : v;\n}\n\n// matvec_gated", "MatMul/Q4_0", "ma\\w+_q4_0|quantize"},
	{"a write beyond a buffer", "elements", "if (i < a.n) out[i]", "out[i]", "Elements/Add", "add"},
	{"a write beyond threadgroup memory", "matmul", "threadgroup half tokens[32 * slab_width];", "threadgroup half tokens[31 * slab_width];", "MatMulBatch/Q8_0", "ma\\w+_q8_0|quantize"},
	{"the last element is not written", "elements", "if (i < a.n) out[i]", "if (i + 1 < a.n) out[i]", "Elements/Add", "add"},
	{"the lane of another result", "matmul", "if (lane % 8 == 0 && row < a.rows) y[token * a.rows + row] = a.biased ? v + bias[row] : v;\n}\n\n// matvec_gated",
		"if (lane % 8 == 0 && row < a.rows) y[token * a.rows + (row ^ 1)] = a.biased ? v + bias[row] : v;\n}\n\n// matvec_gated", "MatMul/Q4_0", "ma\\w+_q4_0|quantize"},
	{"strands in another order", "matmul", "return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));", "return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];", "MatMulBatch/Q6_K", "ma\\w+_q6_k|quantize"},
	{"a minimum left out in one of two kernels", "matmul", "if (F::minima) v = fma(g == 0 ? sm.z : sm.w", "if (false) v = fma(g == 0 ? sm.z : sm.w", "MatMulBatch/Q4_K", "ma\\w+_q4_k|quantize"},
	{"a scale of the wrong group", "formats", "u.s = float2(d * scale(b + 96, 2 * part), d * scale(b + 96, 2 * part + 1));", "u.s = float2(d * scale(b + 96, 2 * part), d * scale(b + 96, 2 * part));", "MatMul/Q3_K", "ma\\w+_q3_k|quantize"},
	{"a product before its values are there", "matmul", "        threadgroup_barrier(mem_flags::mem_threadgroup);\n        multiply<float, 2>", "        multiply<float, 2>", "MatMulBatch/^F16$", "ma\\w+_f16"},
	{"strands added before they are there", "matmul", "  simdgroup_store(c, strands + sg * 64, 8);\n  threadgroup_barrier(mem_flags::mem_threadgroup);", "  simdgroup_store(c, strands + sg * 64, 8);", "MatMulBatch/F32", "ma\\w+_f32"},
	{"rows at the distance of another format", "matmul", "F::at(w + (ulong)row * a.row_bytes, from + lane)", "F::at(w + (ulong)row * a.in * 4, from + lane)", "MatMul/^F16$", "ma\\w+_f16"},
	{"the rest of a row left out", "matmul", "for (uint from = sg * 32; from < a.in; from += 256)", "for (uint from = sg * 32; from + 32 <= a.in; from += 256)", "MatMulBatch/F32", "ma\\w+_f32"},
	{"a matrix at the stride of another", "matmul", "simdgroup_load(t[i], tokens + 8 * i * stride + at, stride, ulong2(0, 0), true);", "simdgroup_load(t[i], tokens + 8 * i * stride + at, 8, ulong2(0, 0), true);", "MatMulBatch/Q8_0", "ma\\w+_q8_0|quantize"},
	{"dots read before they are there", "matmul", "dots + i / 2 * 8 * 16 + i % 2 * 8, 16);\n  simdgroup_barrier(mem_flags::mem_threadgroup);", "dots + i / 2 * 8 * 16 + i % 2 * 8, 16);", "MatMulBatch/Q8_0", "ma\\w+_q8_0|quantize"},
	{"the sums of another group", "matmul", "F::unit_groups == 1 ? meta_k.y : g == 0 ? meta_k.z : meta_k.w", "F::unit_groups == 1 ? meta_k.z : g == 0 ? meta_k.w : meta_k.z", "MatMul/Q2_K", "ma\\w+_q2_k|quantize"},
	{"the gate and what it is for exchanged", "matmul", "silu_of(g) * v", "silu_of(v) * g", "Fused/FFN/.Q8_0/tokens=1", "mat\\w+_q8_0|quantize|silu|mul|swiglu"},
	{"no barrier in a sort", "top", "    for (uint step = size / 2; step > 0; step >>= 1) {\n      threadgroup_barrier(mem_flags::mem_threadgroup);", "    for (uint step = size / 2; step > 0; step >>= 1) {", "TopK", "top_\\w+"},
	{"equal values in the order of their indices reversed", "top", "(ulong)order << 32 | ~index", "(ulong)order << 32 | index", "TopK", "top_\\w+"},
	{"the last candidate of a piece lost", "top", "parts[((ulong)group.x * a.pieces + group.y) * a.k + i] = keys[i];", "parts[((ulong)group.x * a.pieces + group.y) * a.k + i] = i + 1 < a.k || a.k == 1 ? keys[i] : 0;", "TopK", "top_\\w+"},
	{"values beyond those that count", "top", "keys[i] = at < a.among ?", "keys[i] = at < a.width ?", "TopK", "top_\\w+"},
	{"no barrier in the search for one", "top", "    for (uint n = top_keys / 2; n > 0; n >>= 1) {\n      threadgroup_barrier(mem_flags::mem_threadgroup);", "    for (uint n = top_keys / 2; n > 0; n >>= 1) {", "TopK", "top_\\w+"},
	{"negative values in the order of their bits", "top", "bits >> 31 ? ~bits : bits | 0x80000000u", "bits | 0x80000000u", "TopK", "top_\\w+"},
	{"NaN below all", "top", "const uint order = v != v ? 0xffffffffu :", "const uint order = v != v ? 0 :", "TopK", "top_\\w+"},
	{"keys that a later piece replaces", "top", "kept = a.k) {", "kept = 0) {", "TopK", "top_\\w+"},
	{"a softmax of unshifted scores", "rows", "s += precise::exp(row[i] - m);", "s += precise::exp(row[i]);", "Rows/Softmax", "softmax"},
	{"a maximum of some lanes", "common", "for (ushort m = 16; m > 0; m >>= 1) v = max(", "for (ushort m = 8; m > 0; m >>= 1) v = max(", "Rows/Softmax", "softmax"},
	{"features beyond the rotation not copied", "rows", "    y[pairs + j] = x[pairs + j];\n", "", "RoPE", "rope"},
	{"a row looked up by another token", "elements", "x[(ulong)ids[at.y] * a.width + at.x]", "x[(ulong)ids[0] * a.width + at.x]", "Shapes/GetRows", "get_rows"},
	{"keys stored to the cell of another token", "rows", "to = (ulong)cells[at.y] * a.width + at.x;", "to = (ulong)cells[0] * a.width + at.x;", "Attention/F16/heads=4$", "attend_f16_32|kv_store_f16|merge"},
	{"a head's features rotated before they are there", "rows", "biased ? x[from + i] + bias[head + i] : x[from + i];\n  threadgroup_barrier(mem_flags::mem_threadgroup);", "biased ? x[from + i] + bias[head + i] : x[from + i];", "Fused/.Q8_0/tokens=5/norm=false", "finish_f\\w+|mat\\w+_q8_0|quantize|kv_store_f\\w+|rope|norm|add|attend_f16_32|merge"},
	{"the norm of keys with the weights of queries", "rows", "device const float *w = key ? k_norm : q_norm;", "device const float *w = q_norm;", "Fused/.Q8_0/tokens=5/norm=true", "finish_f\\w+|mat\\w+_q8_0|quantize|kv_store_f\\w+|rope|norm|add|attend_f16_32|merge"},
	{"a scale of the wrong half in a table", "formats", "(i < 16 ? u.s.x : u.s.y)", "u.s.x", "Embed", "embed_\\w+"},
	{"the pairs of the other rotary style", "rows", "const uint i0 = halves ? j : 2 * j", "const uint i0 = !halves ? j : 2 * j", "RoPE", "rope"},
	{"causality off by one", "attention", "uint n = (uint)positions[token] + 1;", "uint n = (uint)positions[token] + 2;", "Attention/F16/heads=4$", "attend_f16_32|kv_store_f16|merge"},
	{"the maximum of the scores forgotten", "attention", "take);\n      total_m = most;", "take);", "Attention/F16/heads=4$", "attend_f16_32|kv_store_f16|merge"},
	{"a row's values not brought to its new maximum", "attention", "return fma(total, keep, o * take);", "return fma(total, 1.0f, o * take);", "Attention/F16/heads=4$", "attend_f16_32|kv_store_f16|merge"},
	{"the last position of a tile for all rows", "attention", "const float s = p >= range.x && p < range.y ? mine[i]", "const float s = p >= range.x && p < hi ? mine[i]", "AttentionBatch/F32/heads=[46]", "attend_f32_32|kv_store_f32|merge"},
	{"keys replaced by values before they are used", "attention", "    threadgroup_barrier(mem_flags::mem_threadgroup); // the keys have been used, and scores are there\n", "", "AttentionBatch/F32/heads=[46]", "attend_f32_32|kv_store_f32|merge"},
	{"weights used before they are there", "attention", "    threadgroup_barrier(mem_flags::mem_threadgroup); // values and weights are there\n", "", "AttentionBatch/F32/heads=[46]", "attend_f32_32|kv_store_f32|merge"},
	{"a tile merged that no position of the row is in", "attention", "range.x < min(range.y, base + width) && range.y > base;", "true;", "AttentionSpans/F32/window=9", "attend_f32_32|kv_store_f32|merge"},
	{"a piece of a row left out of the merge", "attention", "for (uint s = 0; s < slots; s++)", "for (uint s = 0; s + 1 < slots; s++)", "Attention/F16/heads=4$", "attend_f16_32|kv_store_f16|merge"},
	{"the window of another row", "attention", "const uint2 range = ranges[row];", "const uint2 range = ranges[sg * 8];", "AttentionSpans/F32/window=9", "attend_f32_32|kv_store_f32|merge"},
	{"the head of another group", "attention", "kv_at = (ulong)group.y * n", "kv_at = 0", "Attention/F32/heads=4$", "attend_f32_32|kv_store_f32|merge"},
	{"values that are not finite weighted by 0", "attention", "const bool finite = v - v == 0.0f;", "const bool finite = true;", "AttentionSpans/not_finite/F32", "attend_f32_32|kv_store_f32|merge"},
	{"values that are not finite added to all rows of a tile", "attention", "p = max(sees.x, base); p < min(sees.y, base + width)", "p = max(lo, base); p < min(hi, base + width)", "AttentionSpans/not_finite/F32", "attend_f32_32|kv_store_f32|merge"},
	{"cells counted from the first run alone", "attention", "if (!a.spans) return position;", "return position;", "AttentionSpans/F16/window=0", "attend_f16_32|kv_store_f16|merge"},
}

// hostMistakes are in the Go code.
var hostMistakes = []mistake{
	{name: "no barrier between dispatches", file: "commands.go", old: "if c.ordered(d) {", new: "if false && c.ordered(d) {", test: "TestConformance/usual/Fused"},
	{name: "reads are not waited for", file: "device.go", old: "if !d.queue.conflicts(r, write) {", new: "if true || !d.queue.conflicts(r, write) {", test: "TestConformance/usual/Elements/Add"},
	{name: "quantised activations outlive their source", file: "execute.go", old: "\t\te.acts.forget(r)\n", new: "\t\t_ = r\n", test: "TestGenerates"},
	{name: "host writes are not noticed", file: "device.go", old: "\td.acts.forget(r)\n", new: "", test: "TestConformance/usual/MatMul/Q8_0"},
	{name: "a buffer is not bound", file: "execute.go", old: "reads: []region{x, w}, writes", new: "reads: []region{x, w}[:1], writes", test: "TestConformance/usual/Rows/RMSNorm"},
	{name: "threadgroup memory without a length", file: "execute.go", old: "threads: rowThreads(width), shared: [2]int{groupFloats},\n\t\treads: []region{x, w}", new: "threads: rowThreads(width),\n\t\treads: []region{x, w}", test: "TestConformance/usual/Rows/RMSNorm"},
	{name: "memory is given up while commands use it", file: "device.go", old: "if len(d.memory.dropped) > 0 && d.queue.idle() {", new: "if len(d.memory.dropped) > 0 {", test: "TestOneCommandBuffer"},
}

// mistakeVar names the mistake that a child process makes.
const mistakeVar = "MINFER_METAL_MISTAKE"

// TestMistaken is the conformance suite with a mistake in the kernels, in a process of its own, since a mistake can end it.
func TestMistaken(t *testing.T) {
	name := os.Getenv(mistakeVar)
	if name == "" {
		t.Skip("a part of TestMistakes")
	}
	emu.Set(emu.Settings{Order: emu.Random, Seed: 7})
	for _, m := range kernelMistakes {
		if m.name != name {
			continue
		}
		source := m.spoilt(t)
		backendtest.Run(t, func(t *testing.T) backend.Backend {
			b, err := openWith(backend.Config{}, source)
			if err != nil {
				panic(err) // no failure of the test: the mistake has to be found when it runs
			}
			return b
		})
		return
	}
	t.Skip("a mistake of the Go code")
}

var hostName = regexp.MustCompile(`template \[\[host_name\("(\w+)"\)\]\].*\n`)

// spoilt is the source of the kernels with the mistake, and with the instances that the test needs.
func (m *mistake) spoilt(t *testing.T) string {
	t.Helper()
	source := kernelSource()
	if strings.Count(source, m.old) == 0 {
		t.Fatalf("the kernels have no %q", m.old)
	}
	source = strings.Replace(source, m.old, m.new, 1)
	only := regexp.MustCompile("^(" + m.only + ")$")
	return hostName.ReplaceAllStringFunc(source, func(line string) string {
		if only.MatchString(hostName.FindStringSubmatch(line)[1]) {
			return line
		}
		return "\n"
	})
}

// TestMistakes seeds mistakes, one at a time, and checks that the conformance suite finds each on the emulated device.
func TestMistakes(t *testing.T) {
	if os.Getenv(mistakeVar) != "" {
		t.Skip("a child process")
	}
	for _, m := range kernelMistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel() // what is tested is in another process
			m.spoilt(t)
			cmd := exec.Command(os.Args[0], "-test.run", "TestMistaken/"+m.test, "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), mistakeVar+"="+m.name)
			out, err := cmd.CombinedOutput()
			found(t, out, err)
		})
	}
	for _, m := range hostMistakes {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			cmd := exec.Command("./emu/env", "go", "test", "-tags", "metalemu", "-overlay", overlay, "-count=1", "-run", m.test, ".")
			out, err := cmd.CombinedOutput()
			found(t, out, err)
		})
	}
}

// found fails the test unless the suite failed, and not for want of anything to run.
func found(t *testing.T, out []byte, err error) {
	t.Helper()
	switch {
	case bytes.Contains(out, []byte("no tests to run")) || bytes.Contains(out, []byte("build failed")) || bytes.Contains(out, []byte("do not compile")) || bytes.Contains(out, []byte("there is no kernel")):
		t.Fatalf("the suite did not run: %s", out)
	case err == nil:
		t.Error("the suite passes")
	default:
		t.Log(firstReason(string(out)))
	}
}

// firstReason is the line of a test's output that says what is wrong.
func firstReason(out string) string {
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, ".go:") || strings.HasPrefix(line, "panic") || strings.HasPrefix(line, "fatal") || strings.Contains(line, "SIG") {
			return strings.TrimSpace(line)
		}
	}
	return out
}

// overlay writes the file with the mistake and what tells the go command to use it.
func (m *mistake) overlay(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := strings.Replace(string(text), m.old, m.new, 1)
	if spoilt == string(text) {
		t.Fatalf("%s has no %q", m.file, m.old)
	}
	dir := t.TempDir()
	replacement := filepath.Join(dir, m.file)
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	for path, b := range map[string][]byte{replacement: []byte(spoilt), overlay: list} {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
