//go:build cgo && metalemu

package metal

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/metal/emu"
	"github.com/minfer/minfer/graph"
)

const story = "../../testdata/storyteller-q4_0.gguf"

func openStory(t testing.TB, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.Open(story, append([]minfer.Option{minfer.WithBackends("metal")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// under sets the emulation's peculiarities for a test.
func under(t testing.TB, s emu.Settings) {
	emu.Set(s)
	t.Cleanup(func() { emu.Set(emu.Settings{}) })
}

// TestUnavailable: a machine that cannot run the kernels is told why, and given another device.
func TestUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		settings emu.Settings
		want     string
	}{
		"no device":     {emu.Settings{Absent: true}, "no Metal device"},
		"other memory":  {emu.Settings{Discrete: true}, "M1 or later"},
		"older than M1": {emu.Settings{Family: 1006}, "M1 or later"},
	} {
		t.Run(name, func(t *testing.T) {
			under(t, c.settings)
			_, err := backend.Open("metal", backend.Config{})
			if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want ErrUnavailable with %q", err, c.want)
			}
		})
	}
	if _, err := backend.Open("metal:1", backend.Config{}); err == nil {
		t.Error("there are two devices")
	}
}

// TestSourceErrors: a source that does not compile is refused with the compiler's text, and a kernel that is missing when a node wants it.
func TestSourceErrors(t *testing.T) {
	_, err := openWith(backend.Config{}, kernelSource()+"\ninline void more() { absent(); }\n")
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error is %v, want the compiler's", err)
	}
	under(t, emu.Settings{MaxThreads: 64})
	m := openStory(t)
	defer m.Close()
	if _, err := evaluate(m, 3); err == nil || !strings.Contains(err.Error(), "threads in a threadgroup") {
		t.Errorf("error is %v, want one about threads", err)
	}
}

func evaluate(m *minfer.Model, tokens ...minfer.Token) ([]float32, error) {
	s, err := m.NewSession(minfer.WithContext(64))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	logits, err := s.Eval(context.Background(), tokens)
	return append([]float32(nil), logits...), err
}

// TestOneCommandBuffer: a step is one command buffer that is waited for once, for a prompt and for a token.
func TestOneCommandBuffer(t *testing.T) {
	m := openStory(t)
	defer m.Close()
	s, err := m.NewSession(minfer.WithContext(64))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, tokens := range [][]minfer.Token{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {3}, {4}} {
		before := emu.Count()
		if _, err := s.Eval(context.Background(), tokens); err != nil {
			t.Fatal(err)
		}
		after := emu.Count()
		if n, w := after.Commits-before.Commits, after.Waits-before.Waits; n != 1 || w != 1 {
			t.Errorf("%d tokens took %d command buffers and %d waits, want one of each", len(tokens), n, w)
		}
	}
}

// TestWeightsInPlace: the mapped file is what the device computes from, in one buffer or in as many as their length takes.
func TestWeightsInPlace(t *testing.T) {
	var want []float32
	for _, c := range []struct{ limit, least, most int }{{0, 1, 1}, {1 << 20, 2, 4}} {
		under(t, emu.Settings{MaxBuffer: c.limit})
		before := emu.Count().InPlace
		m := openStory(t)
		if n := emu.Count().InPlace - before; n < c.least || n > c.most {
			t.Errorf("with buffers of at most %d bytes the weights take %d, want %d to %d", c.limit, n, c.least, c.most)
		}
		got, err := evaluate(m, 5, 9, 2)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	under(t, emu.Settings{MaxBuffer: 64 << 10})
	if m, err := minfer.Open(story, minfer.WithBackends("metal")); err == nil {
		m.Close()
		t.Error("a tensor longer than any buffer was accepted")
	} else if !strings.Contains(err.Error(), "token_embd.weight") {
		t.Errorf("error is %v, want one that names the tensor", err)
	}
}

// TestFailedCommands: what fails on the device names the nodes and kernels of its command buffer, with the device's text, and the
// device works on.
func TestFailedCommands(t *testing.T) {
	m := openStory(t)
	defer m.Close()
	want, err := evaluate(m, 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		settings emu.Settings
		located  bool // the failure comes again
	}{
		{emu.Settings{FailAfter: 1}, false},
		{emu.Settings{FailAfter: 30}, false},
		{emu.Settings{FailKernel: "attend_f16_64"}, true},
		{emu.Settings{FailKernel: "swiglu"}, true},
	} {
		under(t, c.settings)
		_, err := evaluate(m, 1, 2, 3)
		var failed *CommandError
		switch {
		case !errors.As(err, &failed) || !strings.Contains(failed.Text, "told to fail"):
			t.Errorf("%+v: error is %v, want a CommandError", c.settings, err)
		case c.located && (failed.First != failed.Last || len(failed.Kernels) != 1 || failed.Kernels[0] != c.settings.FailKernel):
			t.Errorf("%+v: error is %v, want the node and kernel", c.settings, err)
		case !c.located && (failed.First == failed.Last || len(failed.Kernels) < 2):
			t.Errorf("%+v: error is %v, want all nodes", c.settings, err)
		}
		emu.Set(emu.Settings{})
		got, err := evaluate(m, 1, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("after a failure, logit %d is %v, want %v", i, got[i], want[i])
			}
		}
	}
}

// TestSavedSessions: a session that was saved on one device goes on where it was on the other, and saved there again, it is the same bytes.
func TestSavedSessions(t *testing.T) {
	ctx := context.Background()
	prompt := make([]minfer.Token, 37) // more than two blocks, as what is left over is not saved
	for i := range prompt {
		prompt[i] = minfer.Token(i + 1)
	}
	for _, kv := range []graph.DType{graph.F16, graph.F32} {
		devices := [...]string{"metal", "cpu"}
		var models [len(devices)]*minfer.Model
		var saved [len(devices)][]byte
		var next [len(devices)][]float32
		var story [len(devices)][]minfer.Token
		for i, device := range devices {
			models[i] = openStory(t, minfer.WithBackends(device), minfer.WithKVType(kv))
			defer models[i].Close()
			s, err := models[i].NewSession(minfer.WithContext(64))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Eval(ctx, prompt); err != nil {
				t.Fatal(err)
			}
			saved[i] = savedBytes(t, s)
			next[i], story[i] = goOn(t, s)
		}
		for i, from := range devices {
			for j, to := range devices {
				restored, err := models[j].Restore(bytes.NewReader(saved[i]), minfer.WithContext(64))
				if err != nil {
					t.Fatalf("%v, from %s to %s: %v", kv, from, to, err)
				}
				defer restored.Close()
				if !bytes.Equal(savedBytes(t, restored), saved[i]) {
					t.Errorf("%v, from %s to %s: saved again, the session is other bytes", kv, from, to)
				}
				got, tokens := goOn(t, restored)
				if d := distance(got, next[i]); i == j && !slices.Equal(got, next[i]) || !(d < 1e-2) {
					t.Errorf("%v, from %s to %s: the session goes on with logits at a distance of %.2g", kv, from, to, d)
				}
				if !slices.Equal(tokens, story[i]) {
					t.Errorf("%v, from %s to %s: the session goes on with %v, without saving with %v", kv, from, to, tokens, story[i])
				}
			}
		}
	}
}

// goOn returns the logits after one more token, and the likeliest tokens from there on.
func goOn(t testing.TB, s *minfer.Session) (first []float32, tokens []minfer.Token) {
	t.Helper()
	tokens = []minfer.Token{6}
	for range 8 {
		logits, err := s.Eval(context.Background(), tokens[len(tokens)-1:])
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = slices.Clone(logits)
		}
		best := 0
		for i, l := range logits {
			if l > logits[best] {
				best = i
			}
		}
		tokens = append(tokens, minfer.Token(best))
	}
	return first, tokens
}

func savedBytes(t testing.TB, s *minfer.Session) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNothingIsLeft: closing gives up every buffer.
func TestNothingIsLeft(t *testing.T) {
	before := emu.Count().Objects
	m := openStory(t)
	if _, err := evaluate(m, 1, 2, 3, 4, 5, 6, 7, 8, 9); err != nil {
		t.Fatal(err)
	}
	if emu.Count().Objects == before {
		t.Error("the model has no buffers")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if n := emu.Count().Objects - before; n != 0 {
		t.Errorf("%d buffers are alive after Close", n)
	}
}
