package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/customarch/parallel"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

func TestOutput(t *testing.T) {
	golden, err := os.ReadFile("testdata/output.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(string(golden), "\r\n", "\n")
	var got bytes.Buffer
	if err := run(&got, "", nil); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("the output differs from testdata/output.txt:\n%s", got.String())
	}
}

func TestWrittenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pattern.gguf")
	var out bytes.Buffer
	if err := run(&out, path, []string{"xy"}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\"xy\" goes on with \"z\" (turn)\n") {
		t.Errorf("the output is %s", out.String())
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, file(t)) {
		t.Error("writing the model again gives other bytes")
	}
	m, err := minfer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func file(t *testing.T) []byte {
	t.Helper()
	b, err := writePattern()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t *testing.T, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.OpenBytes(file(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

const characters = "abcdefghijklmnopqrstuvwxyz .,!"

// TestAlphabet checks what the feed-forward parts know: the first half of the alphabet
// lies in one block, the second in the other.
func TestAlphabet(t *testing.T) {
	m := open(t)
	for _, i := range []int{0, 11, 12, 13, 14, 24, 25} {
		got, err := continued(m, characters[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%q (turn)", characters[i+1:26]); got != want {
			t.Errorf("%q goes on with %s, want %s", characters[i], got, want)
		}
	}
}

// TestRepetition checks what attention does: a text that has begun to repeat itself goes
// on doing so. Its characters differ, so that there is one thing to continue with.
func TestRepetition(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		period := []byte(characters)
		r.Shuffle(len(period), func(i, j int) { period[i], period[j] = period[j], period[i] })
		period = period[:2+r.IntN(20)]
		text := strings.Repeat(string(period), 4)
		n := len(period) + 1 + r.IntN(len(period))
		got, err := continued(m, text[:n])
		if err != nil {
			t.Fatal(err)
		}
		endless := strings.Repeat(string(period), 30)
		if want := fmt.Sprintf("%q (length)", endless[n:n+26]); got != want {
			t.Errorf("%q goes on with %s, want %s", text[:n], got, want)
		}
	}
}

// TestSameBits checks that an architecture from outside gets what the library promises:
// logits do not depend on chunks, threads, fusion, forks.
func TestSameBits(t *testing.T) {
	ctx := context.Background()
	prompt, err := open(t).Tokenizer().Encode("some text, some te", minfer.EncodeOptions{AddSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	var want []float32
	same := func(what string, got []float32) {
		t.Helper()
		if want == nil {
			want = append(want, got...)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: logit %d is %v, was %v", what, i, got[i], want[i])
			}
		}
	}
	for _, threads := range []int{1, 3} {
		for _, f := range []graph.Fusion{{}, {QKV: true}, {QKVBiasRopeStore: true}} {
			m := open(t, minfer.WithBackends("cpu"), minfer.WithThreads(threads), minfer.WithFusion(f))
			for _, chunk := range []int{1, 2, 7, len(prompt)} {
				s, err := m.NewSession(minfer.WithBatch(chunk))
				if err != nil {
					t.Fatal(err)
				}
				logits, err := s.Eval(ctx, prompt)
				if err != nil {
					t.Fatal(err)
				}
				same(fmt.Sprintf("%d threads, fusion %+v, chunks of %d", threads, f, chunk), logits)
				if err := s.Rewind(5); err != nil {
					t.Fatal(err)
				}
				fork, err := s.Fork()
				if err != nil {
					t.Fatal(err)
				}
				if logits, err = fork.Eval(ctx, prompt[5:]); err != nil {
					t.Fatal(err)
				}
				same("after Rewind and Fork", logits)
			}
		}
	}
}

// TestWrongFile checks that everything wrong with a file is reported at once.
func TestWrongFile(t *testing.T) {
	w := gguf.NewWriter()
	w.SetString("general.architecture", parallel.Name)
	setTokenizer(w)
	add(w, "token_embd.weight", newMatrix(embedding, vocab))
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	_, err := minfer.OpenBytes(b.Bytes())
	if !errors.Is(err, minfer.ErrInvalidModel) {
		t.Fatalf("the error is %v, want one of an invalid model", err)
	}
	for _, missing := range []string{"parallel.block_count", "parallel.context_length", "attn_norm.weight", "ffn_up.weight"} {
		if !strings.Contains(err.Error(), missing) {
			t.Errorf("the error does not name %s: %v", missing, err)
		}
	}
}

// TestFromOutside checks that the example takes no more than any module can.
func TestFromOutside(t *testing.T) {
	source, err := os.ReadFile("parallel/parallel.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n >= 200 {
		t.Errorf("the definition has %d lines, want fewer than 200", n)
	}
	for _, path := range []string{"parallel/parallel.go", "main.go", "pattern.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.Contains(i.Path.Value, "internal") {
				t.Errorf("%s imports %s", path, i.Path.Value)
			}
		}
	}
}
