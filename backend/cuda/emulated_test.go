//go:build cuda && cudaemu

package cuda

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
)

// TestOneLaunch counts the launches of the steps of a session: in the steady state there is
// one for each.
func TestOneLaunch(t *testing.T) {
	m := openModel(t, storyteller())
	want := evalAll(t, newSession(t, m), someTokens)
	vocab := len(want) / len(someTokens)
	s := newSession(t, m, minfer.WithContext(64))
	if _, err := s.Eval(context.Background(), someTokens[:3]); err != nil {
		t.Fatal(err)
	}
	step := func(i int) int {
		t.Helper()
		before := driver.Launches()
		row, err := s.Eval(context.Background(), someTokens[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprintf("step %d", i), row, want[i*vocab:(i+1)*vocab])
		return driver.Launches() - before
	}
	if n := step(3); n < 10 {
		t.Errorf("the first step made %d launches, and should have gone node by node", n)
	}
	step(4) // as many: the first has had memory grow
	step(5) // recorded
	for i := 6; i < 12; i++ {
		if n := step(i); n != 1 {
			t.Errorf("step %d made %d launches, want 1", i, n)
		}
	}
	// A long prompt in another session needs more room, and what was recorded is made again.
	long := append(append([]minfer.Token(nil), someTokens...), someTokens...)
	if _, err := newSession(t, m, minfer.WithContext(64)).Eval(context.Background(), long); err != nil {
		t.Fatal(err)
	}
	step(12)
	step(13)
	step(14)
	for i := 15; i < 20; i++ {
		if n := step(i); n != 1 {
			t.Errorf("step %d, after memory has moved, made %d launches, want 1", i, n)
		}
	}
}

// TestAnswerOneLaunch does so for an answer, whose tokens are chosen from the greatest logits: the
// same ones as from all of them.
func TestAnswerOneLaunch(t *testing.T) {
	m := openModel(t, storyteller())
	for name, opts := range map[string][]minfer.GenerateOption{
		"greedy": {minfer.Temperature(0)}, "sampled": {minfer.Temperature(1), minfer.TopK(20)},
		"all logits": {minfer.Temperature(1), minfer.TopK(20), minfer.LogProbs()},
	} {
		var tokens []minfer.Token
		before, steps := 0, 0
		for p, err := range newSession(t, m).GenerateTokens(t.Context(), someTokens, append(opts, minfer.MaxTokens(20), minfer.PastEnd())...) {
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, p.Token)
			if n := driver.Launches() - before; len(tokens) > 8 {
				if steps++; n != 1 {
					t.Errorf("%s: token %d took %d launches, want 1", name, len(tokens), n)
				}
			}
			before = driver.Launches()
		}
		if steps == 0 {
			t.Errorf("%s: no steps", name)
		}
		if name == "sampled" {
			opts = append(opts, minfer.LogProbs())
			var all []minfer.Token
			for p, err := range newSession(t, m).GenerateTokens(t.Context(), someTokens, append(opts, minfer.MaxTokens(20), minfer.PastEnd())...) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, p.Token)
			}
			if fmt.Sprint(all) != fmt.Sprint(tokens) {
				t.Errorf("from the greatest logits %v, from all %v", tokens, all)
			}
		}
	}
}

// again runs tests of this program in a process of its own, since the emulated driver reads its
// settings once, and some mistakes end the process.
func again(t *testing.T, run string, env ...string) ([]byte, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "-test.run", run, "-test.short", "-test.failfast")
	c.Env = append(os.Environ(), append(env, "MINFER_CUDA_AGAIN=1")...)
	return c.CombinedOutput()
}

func inner(t *testing.T) bool {
	t.Helper()
	return os.Getenv("MINFER_CUDA_AGAIN") != ""
}

// TestOrders runs the tests with other orders of threads, streams that run at once, and the
// oldest architecture.
func TestOrders(t *testing.T) {
	if inner(t) || testing.Short() {
		t.Skip("it runs the other tests")
	}
	tests := "^(TestConformance|TestReplay|TestBits)$/^(Rows|TopK|MatMulBatch|Attention|AttentionSpans|Fused|KV|WrongCalls)?$"
	for _, env := range [][]string{
		{"GPUEMU_ORDER=rev", "GPUEMU_STREAMS=eager"},
		{"GPUEMU_ORDER=rand:1", "GPUEMU_CC=75"},
		{"GPUEMU_ORDER=rand:2", "GPUEMU_CC=86"},
	} {
		t.Run(strings.Join(env, ","), func(t *testing.T) {
			t.Parallel()
			if out, err := again(t, tests, env...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestDroppedBarriers leaves out each barrier of the kernels in turn, and each wait for copies, and wants a test to fail for it.
func TestDroppedBarriers(t *testing.T) {
	if inner(t) || testing.Short() {
		t.Skip("it runs the other tests")
	}
	tests := map[string]string{
		"attention.cu": "^TestConformance$/^(Attention|AttentionSpans)$/(F32|two)",
		"flash.cu":     "^(TestConformance|TestAttentionInfinite)$/^AttentionBatch$/F16/heads=6",
		"rows.cu":      "^TestConformance$/^Rows$",
		"top.cu":       "^TestConformance$/^TopK$",
		"floats.cu":    "^TestOrderOfSums$/^F32",
		"halves.cu":    "^TestOrderOfSums$/^F16",
		"matmul.cu":    "^(TestConformance|TestOrderOfSums)$/^(Fused|Q4_K)$/(FFN|tokens)",
		"tensor.cu":    "^TestOrderOfSums$/^Q4_K",
	}
	for file, run := range tests {
		if out, err := again(t, run, "GPUEMU_ORDER=rand:3"); err != nil {
			t.Errorf("%s: the tests fail with all barriers in place: %v\n%s", file, err, out)
		}
		for _, line := range barriers(t, file) {
			t.Run(fmt.Sprintf("%s:%d", file, line), func(t *testing.T) {
				t.Parallel()
				for _, order := range []string{"rand:3", "rand:4", "rev", "fwd"} {
					for _, cc := range []string{"80", "75"} { // some kernels are for one of them only
						if _, err := again(t, run, fmt.Sprintf("GPUEMU_DROP=%s:%d", file, line), "GPUEMU_ORDER="+order, "GPUEMU_CC="+cc); err != nil {
							return
						}
					}
				}
				t.Error("no test fails without the barrier")
			})
		}
	}
}

// barriers lists the lines with a barrier or a wait for copies.
func barriers(t *testing.T, file string) (lines []int) {
	t.Helper()
	f, err := os.Open(filepath.Join("internal", "driver", "kernels", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		if line := s.Text(); strings.Contains(line, "block_sync()") || strings.Contains(line, "cp_async_wait()") {
			lines = append(lines, n)
		}
	}
	if err := s.Err(); err != nil || len(lines) == 0 {
		t.Fatalf("no barriers in %s: %v", file, err)
	}
	return lines
}
