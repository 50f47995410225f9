package main

import (
	"context"
	"sync"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// What a run records of each value, unless the page asks for more of it.
const (
	columns   = 24
	attention = 64 // last rows of a pass whose attention is recorded
)

// watch is the nodes whose values the page wants whole, or as much of them as a picture can show.
type watch struct {
	mu    sync.Mutex
	nodes map[string]bool
}

func (w *watch) set(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = make(map[string]bool)
	for _, n := range names {
		w.nodes[n] = true
	}
}

func (w *watch) sample(n *graph.Node) (rows, cols int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[n.Name] {
		return 32, 2048
	}
	return 1, columns
}

// generate runs a request to its end.
func (v *viewer) generate(ctx context.Context, r *request) error {
	out := v.runs[r.Slot]
	prompt, along := v.runs[0].tokens()
	out.reset()
	if r.Slot == 0 {
		v.runs[1].reset()
	}
	m, err := v.models[r.Model].opened()
	if err != nil {
		return err
	}
	s, err := m.NewSession(minfer.WithContext(min(v.settings.context, m.Info().ContextLength)))
	if err != nil {
		return err
	}
	defer s.Close()
	if !r.Along {
		if prompt, err = v.tokens(ctx, m, r); err != nil {
			return err
		}
	}
	limits := trace.Limits{Bins: 16, Top: 10, TopRows: 1}
	if r.Attention {
		limits.Attention = attention
	}
	text := func(t minfer.Token) string { return string(m.Tokenizer().TokenBytes(t)) }
	about := m.TraceModel()
	about.Name = v.models[r.Model].title
	recorder, err := trace.NewRecorderTo(out, about, text, trace.WithLimits(limits), trace.Sampling(v.limits.sample))
	if err != nil {
		return err
	}
	defer m.Observe(recorder)()
	look := func() error { return nil }
	if r.Lens {
		l := &lens{width: m.Info().Embedding}
		defer m.Observe(l)()
		look = func() error {
			said, err := l.record(ctx, m)
			if err != nil {
				return err
			}
			return out.Put(said)
		}
	}
	if r.Along {
		return follow(ctx, s, recorder, prompt, along, text, look)
	}
	for _, err := range s.GenerateTokens(ctx, prompt, minfer.MaxTokens(r.Tokens), minfer.Temperature(r.Temperature), minfer.Seed(r.Seed)) {
		if err == nil {
			err = look()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tokens are those of the prompt.
func (v *viewer) tokens(ctx context.Context, m *minfer.Model, r *request) ([]minfer.Token, error) {
	if r.Chat && m.ChatTemplate() != "" {
		p, err := m.RenderChat(ctx, []minfer.Message{{Role: "user", Content: r.Prompt}})
		if err != nil {
			return nil, err
		}
		return p.Tokens, nil
	}
	return m.Tokenizer().Encode(r.Prompt, minfer.EncodeOptions{AddSpecial: true})
}

// follow runs along given tokens, so that every step can be compared with one of another run.
func follow(ctx context.Context, s *minfer.Session, o minfer.Observer, prompt, along []minfer.Token, text func(minfer.Token) string, look func() error) error {
	next := prompt
	for _, t := range along {
		if _, err := s.Eval(ctx, next); err != nil {
			return err
		}
		o.Chose(minfer.Choice{Position: s.Len(), Token: t, Text: text(t)})
		if err := look(); err != nil {
			return err
		}
		next = []minfer.Token{t}
	}
	return nil
}
