package emu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kernelSource is the source of the device's kernels.
func kernelSource(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"common", "elements", "rows", "top", "formats", "matmul", "attention"} {
		text, err := os.ReadFile(filepath.Join("..", "kernels", name+".metal"))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// needs skips a test where a program is not installed, unless everything has to be.
func needs(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("MINFER_REQUIRE_METALEMU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// TestStrict checks the kernels, and that the check finds what Metal's compiler would.
func TestStrict(t *testing.T) {
	needs(t, "clang-14")
	source := kernelSource(t)
	if err := Check(source); err != nil {
		t.Fatal(err)
	}
	for _, mistake := range []struct{ name, old, new, want string }{
		{"memory of no kind", "device const uchar *b = row + i * 34;", "thread const uchar *b = row + i * 34;", "cannot initialize"},
		{"a device pointer for threadgroup memory", "= strands_tree(strands[j]);", "= group_sum(0.0f, y, 0, 0, 1);", "no matching function"},
		{"double precision", "float total_m = -INFINITY, total_l = 0.0f, total", "double total_m = -INFINITY, total_l = 0.0f, total", "double_is_not_in_MSL"},
		{"a constant written", "const float scale = norm_scale(row", "const float scale = 0.0f;\n  scale = norm_scale(row", "const"},
		{"a function that Metal lacks", "precise::tanh(", "precise::tanhf(", "no member named 'tanhf'"},
		{"an argument of another type", "lane_sum(v);\n  threadgroup_barrier", "lane_sum(shared);\n  threadgroup_barrier", "no matching function"},
		{"an output that is constant", "device float *out [[buffer(2)]],\n                     constant ElementArgs", "device const float *out [[buffer(2)]],\n                     constant ElementArgs", "read-only"},
		{"a struct copied out of device memory", "const uint first_row = row_tiles[group.x].first", "const RowTile copied = row_tiles[group.x];\n  const uint first_row = row_tiles[group.x].first", "no matching constructor"},
		{"a matrix of another type", "simdgroup_matrix<T, 8, 8> r[Tiles]", "simdgroup_matrix<char, 8, 8> r[Tiles]", "no matching function"},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			spoilt := strings.Replace(source, mistake.old, mistake.new, 1)
			if spoilt == source {
				t.Fatalf("the kernels have no %q", mistake.old)
			}
			if err := Check(spoilt); err == nil || !strings.Contains(err.Error(), mistake.want) {
				t.Errorf("the check says %v, want %q", err, mistake.want)
			}
		})
	}
}

// TestTranslateRefuses: what the emulator does not know, it does not guess.
func TestTranslateRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"kernel void f(device float *x) {}", "1 parameters and 0 attributes"},
		{"kernel void f(device float *x [[texture(0)]]) {}", "unknown attribute [[texture]]"},
		{"kernel void f(device float *x [[buffer(31)]]) {}", "[[buffer(31)]]"},
		{`template [[host_name("g")]] kernel decltype(f<int>) f<int>;`, "no template of a kernel"},
	} {
		if _, err := Translate(c.source); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.source, err, c.want)
		}
	}
}

// TestCompileErrors: the compiler's messages name lines of the source.
func TestCompileErrors(t *testing.T) {
	needs(t, "g++")
	_, err := Compile("#include <metal_stdlib>\n\nkernel void f(device float *x [[buffer(0)]]) { x[0] = y; }\n")
	if err == nil || !strings.Contains(err.Error(), "kernels.metal:3") {
		t.Errorf("error is %v, want one about line 3", err)
	}
}
