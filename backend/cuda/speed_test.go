//go:build cuda

package cuda

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/gguf"
	"gorgonia.org/cu"
)

var (
	speed    = flag.Bool("speed", false, "measure speed (see check.sh)")
	rehearse = flag.Bool("rehearse", false, "measure models of a few small layers, to try the measuring itself")
)

// shape is the size of a model.
type shape struct {
	name                    string
	layers, d, ffn          int
	heads, kvHeads, headDim int
	vocab                   int
}

var shapes = []shape{
	{"0.5B", 24, 896, 4864, 14, 2, 64, 151936},
	{"7B", 32, 4096, 11008, 32, 32, 128, 32000},
}

var smallShape = shape{"small", 2, 256, 512, 4, 2, 64, 512}

// macs is the number of multiplications by weights for a token, its logits apart.
func (s shape) macs() float64 {
	wide, narrow := s.heads*s.headDim, s.kvHeads*s.headDim
	return float64(s.layers) * float64(s.d*(2*wide+2*narrow)+3*s.d*s.ffn)
}

// write makes a file of random weights. All tensors share bytes: speed does not depend on them.
func (s shape) write(path string, typ gguf.Type) error {
	block, scaleAt := 34, uint16(0x1400)
	if typ == gguf.TypeQ4_0 {
		block, scaleAt = 18, 0x2400
	}
	largest := max(s.vocab, s.ffn) * s.d / 32 * block
	slab := make([]byte, largest)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= len(slab); i += 8 {
		binary.LittleEndian.PutUint64(slab[i:], r.Uint64())
	}
	for i := 0; i < len(slab); i += block {
		binary.LittleEndian.PutUint16(slab[i:], scaleAt)
	}
	ones := make([]byte, 0, 4*s.d)
	for range s.d {
		ones = binary.LittleEndian.AppendUint32(ones, 0x3f800000)
	}
	w := gguf.NewWriter()
	w.SetString("general.architecture", "llama")
	for key, n := range map[string]int{
		"block_count": s.layers, "context_length": 4096, "embedding_length": s.d, "feed_forward_length": s.ffn,
		"attention.head_count": s.heads, "attention.head_count_kv": s.kvHeads,
		"attention.key_length": s.headDim, "attention.value_length": s.headDim, "rope.dimension_count": s.headDim,
	} {
		w.SetUint32("llama."+key, uint32(n))
	}
	w.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-6)
	texts, types := make([]string, s.vocab), make([]int32, s.vocab)
	for i := range texts {
		texts[i], types[i] = fmt.Sprintf("t%d", i), 1
	}
	w.SetString("tokenizer.ggml.model", "llama")
	w.SetStrings("tokenizer.ggml.tokens", texts)
	w.SetFloat32s("tokenizer.ggml.scores", make([]float32, s.vocab))
	w.SetInt32s("tokenizer.ggml.token_type", types)
	w.SetBool("tokenizer.ggml.add_bos_token", false)
	w.SetUint32("tokenizer.ggml.bos_token_id", 0)
	w.SetUint32("tokenizer.ggml.eos_token_id", 1)
	matrix := func(name string, in, out int) {
		if err := w.AddTensor(name, typ, []uint64{uint64(in), uint64(out)}, slab[:in*out/32*block]); err != nil {
			w.Set("", err) // keeps the first error
		}
	}
	vector := func(name string) {
		if err := w.AddTensor(name, gguf.TypeF32, []uint64{uint64(s.d)}, ones); err != nil {
			w.Set("", err)
		}
	}
	matrix("token_embd.weight", s.d, s.vocab)
	vector("output_norm.weight")
	wide, narrow := s.heads*s.headDim, s.kvHeads*s.headDim
	for i := range s.layers {
		b := fmt.Sprintf("blk.%d.", i)
		vector(b + "attn_norm.weight")
		matrix(b+"attn_q.weight", s.d, wide)
		matrix(b+"attn_k.weight", s.d, narrow)
		matrix(b+"attn_v.weight", s.d, narrow)
		matrix(b+"attn_output.weight", wide, s.d)
		vector(b + "ffn_norm.weight")
		matrix(b+"ffn_gate.weight", s.d, s.ffn)
		matrix(b+"ffn_up.weight", s.d, s.ffn)
		matrix(b+"ffn_down.weight", s.ffn, s.d)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buffered := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.WriteTo(buffered); err != nil {
		return err
	}
	return buffered.Flush()
}

// roofs measures what the GPU can do: bytes read and multiplications of tensor cores per second.
func roofs(t *testing.T, bytes, rounds int) (read, tensor float64) {
	d := openTest(t)
	defer d.Close()
	measure := func(f func()) float64 {
		best := 0.0
		for range 5 {
			start := time.Now()
			f()
			if err := d.wait(); err != nil {
				t.Fatal(err)
			}
			if r := 1 / time.Since(start).Seconds(); r > best {
				best = r
			}
		}
		return best
	}
	var readKernel, tensorKernel *kernel
	var memory block
	err := d.do(func() (err error) {
		if readKernel, err = d.kernels.load("roofs", "roof_read"); err != nil {
			return err
		}
		if tensorKernel, err = d.kernels.load("roofs", "roof_tensor"); err != nil {
			return err
		}
		memory, err = newBlock(bytes)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.do(func() error { return freeBlock(memory) }); err != nil {
			t.Error(err)
		}
	}()
	d.fill(memory)
	const passes = 8
	read = passes * float64(bytes) * measure(func() {
		for range passes {
			d.launch(readKernel, 8*d.sms, 1, 1, 256, 0).Ptr(memory.ptr).Ptr(memory.ptr).Ptr(uint64(bytes / 16))
		}
	})
	blocks := 8 * d.sms
	tensor = float64(blocks) * 8 * 8 * float64(rounds) * 16 * 8 * 32 * measure(func() {
		d.launch(tensorKernel, blocks, 1, 1, 256, 0).Ptr(memory.ptr).Int(rounds)
	})
	return read, tensor
}

// watched has the devices that were opened as "cuda-watched", to switch replay off.
var watched []*device

func init() {
	backend.Register(backend.Entry{
		Name: "cuda-watched", ID: 4999, Priority: 40, Available: available, Capabilities: &capabilities,
		Open: func(c backend.Config) (backend.Backend, error) {
			b, err := open(c)
			if err == nil {
				watched = append(watched, b.(*device))
			}
			return b, err
		},
	})
}

// TestSpeed measures prompts and generation against what the GPU can do. check.sh runs it.
func TestSpeed(t *testing.T) {
	if !*speed {
		t.Skip("it measures speed: -speed")
	}
	if err := available(); err != nil {
		t.Skip(err)
	}
	list, prompt, steps, bytes, rounds := shapes, 512, 64, 2<<30, 1<<14
	if *rehearse {
		list, prompt, steps, bytes, rounds = []shape{smallShape}, 32, 5, 1<<20, 4
	}
	gpu, err := cu.GetDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	name, err := gpu.Name()
	if err != nil {
		t.Fatal(err)
	}
	read, tensor := roofs(t, bytes, rounds)
	fmt.Printf("%s, driver %d, %s: reads %.0f GB/s, int8 tensor cores %.1f T multiplications/s\n", name, cu.Version(), runtime.Version(), read/1e9, tensor/1e12)
	fmt.Printf("%-6s %-5s | %22s | %26s | %26s\n", "model", "type", "prompt", "generation", "without replay")
	for _, s := range list {
		for _, typ := range []gguf.Type{gguf.TypeQ4_0, gguf.TypeQ8_0} {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := s.write(path, typ); err != nil {
				t.Fatal(err)
			}
			s.measure(t, path, typ.String(), prompt, steps, read, tensor)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (s shape) measure(t *testing.T, path, typ string, prompt, steps int, read, tensor float64) {
	watched = nil
	m, err := minfer.Open(path, minfer.WithBackends("cuda-watched", "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := context.Background()
	tokens := make([]minfer.Token, prompt)
	for i := range tokens {
		tokens[i] = minfer.Token(i % s.vocab)
	}
	best := time.Duration(1 << 62)
	var session *minfer.Session
	for range 3 {
		if session != nil {
			session.Close()
		}
		session = newSession(t, m, minfer.WithContext(1024), minfer.WithBatch(prompt))
		start := time.Now()
		if _, err := session.Eval(ctx, tokens); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	pp := float64(prompt) / best.Seconds()
	generate := func() float64 {
		const first = 4 // until it is recorded
		n, start := 0, time.Now()
		for _, err := range session.GenerateTokens(ctx, tokens[:1], minfer.Temperature(0), minfer.PastEnd(), minfer.MaxTokens(first+steps)) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == first {
				start = time.Now()
			}
		}
		return float64(steps) / time.Since(start).Seconds()
	}
	replayed := generate()
	watched[0].Capture(true)
	plain := generate()
	weights := float64(watched[0].PoolStats().WeightBytes)
	fmt.Printf("%-6s %-5s | %8.0f tok/s, %4.1f %% | %7.1f tok/s, %4.0f GB/s %3.0f %% | %7.1f tok/s, %4.0f GB/s %3.0f %%\n", s.name, typ,
		pp, 100*pp*s.macs()/tensor, replayed, replayed*weights/1e9, 100*replayed*weights/read, plain, plain*weights/1e9, 100*plain*weights/read)
}
