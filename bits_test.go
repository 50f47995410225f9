package minfer_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
)

// The logits after a token are a function of the model and of the tokens before it. The
// tests here compare with ==.

const bitsLength = 37 // tokens: two whole blocks of cells and a part

// TestBitsOfChunks evaluates a prompt in pieces of different sizes.
func TestBitsOfChunks(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		tokens := someTokens(m, bitsLength, 0)
		want := evalAll(t, newSession(t, m), tokens)
		for _, chunk := range []int{1, 2, 7, 16, bitsLength} {
			t.Run(fmt.Sprint(chunk), func(t *testing.T) {
				wantRows(t, "by the session", evalAll(t, newSession(t, m, minfer.WithBatch(chunk)), tokens), want)
				s := newSession(t, m)
				for from := 0; from < len(tokens); from += chunk {
					to := min(from+chunk, len(tokens))
					wantRow(t, "by calls", eval(t, s, tokens[from:to]...), want[to-1])
				}
			})
		}
	}, "tiny-qwen3-f16", "tiny-qwen3-bf16")
}

// TestBitsOfSettings evaluates a prompt with other threads, fused operations and ways of
// opening the file.
func TestBitsOfSettings(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		tokens := someTokens(openModel(t, path), bitsLength, 1)
		for _, kv := range []graph.DType{graph.F16, graph.F32} {
			want := settingRows(t, openModel(t, path, minfer.WithKVType(kv)), tokens)
			for _, s := range append(settings, instructions()...) {
				t.Run(fmt.Sprintf("%v/%s", kv, s.name), func(t *testing.T) {
					m := openModel(t, path, append(s.opts, minfer.WithKVType(kv))...)
					wantRows(t, s.name, settingRows(t, m, tokens), want)
				})
			}
		}
	})
}

type setting struct {
	name string
	opts []minfer.Option
}

// instructions are a setting for each set of instructions that the machine has.
func instructions() (list []setting) {
	for _, t := range kernels.Tiers() {
		list = append(list, setting{"instructions=" + t.String(), []minfer.Option{minfer.WithInstructions(t.String())}})
	}
	return list
}

var settings = []setting{
	{"threads=1", []minfer.Option{minfer.WithThreads(1)}},
	{"threads=2", []minfer.Option{minfer.WithThreads(2)}},
	{"threads=3", []minfer.Option{minfer.WithThreads(3)}},
	{"threads=8", []minfer.Option{minfer.WithThreads(8)}},
	{"fusion=none", []minfer.Option{minfer.WithFusion(graph.Fusion{})}},
	{"fusion=swiglu", []minfer.Option{minfer.WithFusion(graph.Fusion{SwiGLU: true})}},
	{"fusion=qkv", []minfer.Option{minfer.WithFusion(graph.Fusion{QKV: true})}},
	{"fusion=qkvnorm", []minfer.Option{minfer.WithFusion(graph.Fusion{QKVNorm: true})}},
	{"fusion=store", []minfer.Option{minfer.WithFusion(graph.Fusion{QKVBiasRopeStore: true})}},
	{"fusion=ffn", []minfer.Option{minfer.WithFusion(graph.Fusion{FFN: true})}},
	{"fusion=ffn, down", []minfer.Option{minfer.WithFusion(graph.Fusion{FFN: true, FFNDown: true})}},
	{"weights=in place", []minfer.Option{minfer.WithWeightsInPlace()}},
	{"mmap=off", []minfer.Option{minfer.WithoutMmap()}},
}

// settingRows evaluates most of the tokens as a prompt and the rest one by one.
func settingRows(t *testing.T, m *minfer.Model, tokens []minfer.Token) [][]float32 {
	s := newSession(t, m)
	prompt := len(tokens) - 6
	rows := evalAll(t, s, tokens[:prompt])
	for _, token := range tokens[prompt:] {
		rows = append(rows, eval(t, s, token))
	}
	return rows
}

// TestBitsOfSources opens a model from a reader and from memory.
func TestBitsOfSources(t *testing.T) {
	data := readFile(t, storyteller)
	tokens := someTokens(openStoryteller(t), 20, 2)
	want := evalAll(t, newSession(t, openStoryteller(t)), tokens)
	for name, open := range map[string]func() (*minfer.Model, error){
		"bytes":     func() (*minfer.Model, error) { return minfer.OpenBytes(data) },
		"unaligned": func() (*minfer.Model, error) { return minfer.OpenBytes(append(make([]byte, 1), data...)[1:]) },
		"reader": func() (*minfer.Model, error) {
			return minfer.OpenReader(bytes.NewReader(data), int64(len(data)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			wantRows(t, name, evalAll(t, newSession(t, m), tokens), want)
		})
	}
}

// TestBitsOfSequences takes different ways to the same sequence: saved, forked, rewound,
// grown, and in cells that do not lie in a row.
func TestBitsOfSequences(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		tokens := someTokens(m, bitsLength, 3)
		other := someTokens(m, bitsLength, 4)
		want := evalAll(t, newSession(t, m), tokens)
		for _, at := range []int{1, 15, 16, 17, 32, bitsLength - 1} {
			t.Run(fmt.Sprint(at), func(t *testing.T) {
				s := newSession(t, m, minfer.WithContext(bitsLength+11))
				evalAll(t, s, tokens[:at])
				var saved bytes.Buffer
				if err := s.Save(&saved); err != nil {
					t.Fatal(err)
				}
				restored, err := m.Restore(&saved)
				if err != nil {
					t.Fatal(err)
				}
				defer restored.Close()
				wantRows(t, "restored", evalAll(t, restored, tokens[at:]), want[at:])

				f := fork(t, s)
				evalAll(t, s, other[:9]) // must not touch what the fork shares
				wantRows(t, "forked", evalAll(t, f, tokens[at:]), want[at:])
				rewind(t, s, at)
				wantRow(t, "rewound", eval(t, s), want[at-1])
				ff := fork(t, f)
				rewind(t, ff, at)
				wantRows(t, "rewound", evalAll(t, s, tokens[at:]), want[at:])
				wantRows(t, "rewound fork of a fork", evalAll(t, ff, tokens[at:]), want[at:])
				wantRow(t, "the first fork afterwards", eval(t, f), want[len(want)-1])
				if got := s.Cache().Stats(); got.Cells <= 48 {
					t.Errorf("%d cells; the forks were to make the cache grow", got.Cells)
				}
			})
		}
	})
}

func fork(t testing.TB, s *minfer.Session) *minfer.Session {
	t.Helper()
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func rewind(t testing.TB, s *minfer.Session, n int) {
	t.Helper()
	if err := s.Rewind(n); err != nil {
		t.Fatal(err)
	}
}

// TestBitsOfSharedCaches has sessions evaluate at the same time on one cache, with and
// without sharing forward passes.
func TestBitsOfSharedCaches(t *testing.T) {
	const sessions, rounds = 8, 3
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		want := make([][][]float32, sessions)
		for i := range want {
			want[i] = evalAll(t, newSession(t, m), someTokens(m, 20+i, 10+i))
		}
		for _, batching := range []bool{true, false} {
			t.Run(fmt.Sprintf("batching=%v", batching), func(t *testing.T) {
				cache := newCache(t, m, sessions*64, minfer.WithBatching(batching))
				var group sync.WaitGroup
				for i := range sessions {
					s := newSession(t, m, minfer.WithCache(cache))
					group.Go(func() {
						for round := range rounds {
							if err := replay(s, someTokens(m, 20+i, 10+i), want[i]); err != nil {
								t.Errorf("session %d, round %d: %v", i, round, err)
							}
						}
					})
				}
				group.Wait()
			})
		}
	})
}

// replay evaluates a prompt and then token by token, and compares with the rows.
func replay(s *minfer.Session, tokens []minfer.Token, want [][]float32) error {
	if err := s.Rewind(0); err != nil {
		return err
	}
	rows, err := s.EvalAll(context.Background(), tokens[:9])
	if err != nil {
		return err
	}
	for i := range tokens {
		if i >= 9 {
			row, err := s.Eval(context.Background(), tokens[i:i+1])
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if err := sameRow(rows[i], want[i]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func newCache(t testing.TB, m *minfer.Model, cells int, opts ...minfer.CacheOption) *minfer.GraphCache {
	t.Helper()
	c, err := m.NewGraphCache(cells, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
