//go:build cuda && cudaemu

package driver

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/cu"
)

// turnPTX declares the kernel of emu/mistakes.cu as a compiler would.
const turnPTX = `.version 6.3
.target sm_75
.visible .entry turn(
	.param .u64 turn_param_0,
	.param .u64 turn_param_1,
	.param .u32 turn_param_2,
	.param .u32 turn_param_3
)
{
	ret;
}
`

// mistakes lists what a process of its own does wrong, and a word of what has to come of it.
var mistakes = []struct {
	name                string
	kernel              int    // of emu/mistakes.cu
	ptx                 string // if it is not right
	impatient, homeless bool
	found               string // "" for wrong numbers
}{
	{name: "barrier missing after a write", kernel: 1},
	{name: "barrier missing before another write", kernel: 2},
	{name: "barrier after an early return", kernel: 3, found: "barrier divergence"},
	{name: "half a warp at a shuffle", kernel: 4, found: "warp divergence"},
	{name: "write past a buffer", kernel: 5, found: "SIGSEGV"},
	{name: "write past shared memory", kernel: 6, found: "SIGSEGV"},
	{name: "last element not written", kernel: 7},
	{name: "wrong lane", kernel: 8},
	{name: "signature changed", ptx: strings.Replace(turnPTX, ".u32 turn_param_3", ".u64 turn_param_3", 1), found: "InvalidPtx"},
	{name: "kernel of another build", ptx: strings.ReplaceAll(turnPTX, "turn", "twist"), found: "InvalidPtx"},
	{name: "newer architecture", ptx: strings.Replace(turnPTX, "sm_75", "sm_90", 1), found: "NoBinaryForGpu"},
	{name: "no wait before reading", impatient: true},
	{name: "call on a thread without the context", homeless: true, found: "InvalidContext"},
}

// TestMistakes makes each mistake under several orders of threads, and wants it found in one of
// them; the program without mistakes has to pass in all.
func TestMistakes(t *testing.T) {
	orders := []string{"fwd", "rev", "rand:1", "rand:2", "rand:3"}
	for _, order := range orders {
		if out, err := child(t, -1, order); err != nil {
			t.Errorf("no mistake, order %s: %v\n%s", order, err, out)
		}
	}
	for i, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var all strings.Builder
			for _, order := range orders {
				out, err := child(t, i, order)
				if err != nil && strings.Contains(out, m.found) {
					return
				}
				fmt.Fprintf(&all, "%s: %v %s\n", order, err, out)
			}
			t.Errorf("not found (%q) in any order:\n%s", m.found, all.String())
		})
	}
}

const childVariable = "MINFER_CUDA_MISTAKE"

func child(t *testing.T, mistake int, order string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childVariable, mistake), "GPUEMU_ORDER="+order, "GOTRACEBACK=none")
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestMain(m *testing.M) {
	if v := os.Getenv(childVariable); v != "" {
		mistake := 0
		if _, err := fmt.Sscan(v, &mistake); err != nil {
			panic(err)
		}
		if err := turn(mistake); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// turn turns 64 values round on the device.
func turn(mistake int) error {
	m := mistakes[0]
	m.kernel = 0
	if mistake >= 0 {
		m = mistakes[mistake]
	}
	if m.ptx == "" {
		m.ptx = turnPTX
	}
	runtime.LockOSThread()
	dev, err := cu.GetDevice(0)
	if err != nil {
		return err
	}
	ctx, err := dev.RetainPrimaryCtx()
	if err != nil {
		return err
	}
	if m.homeless {
		_, err := cu.MemAlloc(256)
		return err
	}
	if err := cu.SetCurrentContext(ctx); err != nil {
		return err
	}
	module, err := cu.LoadData(m.ptx)
	if err != nil {
		return err
	}
	fn, err := module.Function("turn")
	if err != nil {
		return err
	}
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return err
	}
	const n = 64
	host, err := AllocHost(4 * n)
	if err != nil {
		return err
	}
	values := unsafe.Slice((*float32)(host), n)
	x, err := cu.MemAlloc(4 * n)
	if err != nil {
		return err
	}
	y, err := cu.MemAlloc(4 * n)
	if err != nil {
		return err
	}
	for i := range values {
		values[i] = float32(i)
	}
	if err := cu.MemcpyHtoD(x, host, 4*n); err != nil {
		return err
	}
	for i := range values {
		values[i] = float32(math.NaN())
	}
	launch := Op{Kind: Launch, Fn: FunctionHandle(fn), Grid: [3]uint32{1, 1, 1}, Block: n, Shared: 4 * n}
	launch.Ptr(uint64(y)).Ptr(uint64(x)).Int(n).Int(m.kernel)
	back := Op{Kind: ToHost}
	back.Ptr(uint64(uintptr(host))).Ptr(uint64(y)).Ptr(4 * n)
	if _, err := Run(s, []Op{launch, back}); err != nil {
		return err
	}
	if !m.impatient {
		if err := s.Synchronize(); err != nil {
			return err
		}
	}
	for i, v := range values {
		if v != float32(n-1-i) {
			return fmt.Errorf("value %d is %v, want %v", i, v, n-1-i)
		}
	}
	return nil
}
