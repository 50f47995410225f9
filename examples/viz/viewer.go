package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
)

// viewer is what the page talks to: the models that can be run, and two runs side by side.
type viewer struct {
	settings *settings
	models   []*model // what can be run; the first is the one that is looked at
	runs     [2]*log  // what the page shows
	limits   *watch
	cut      error // where the trace that is shown at the start is none any more

	mu   sync.Mutex
	stop context.CancelFunc // of the run under way; nil if there is none
	done chan struct{}      // closed when that has ended
	work sync.WaitGroup
}

// model is a way to run a model, opened when it is first run.
type model struct {
	title string
	open  func() (*minfer.Model, error)
	m     *minfer.Model // guarded by being the one run under way
}

func newViewer(s *settings) (*viewer, error) {
	v := &viewer{settings: s, runs: [2]*log{newLog(), newLog()}, limits: &watch{}}
	title := "storyteller"
	if s.model != "" {
		title = nameOf(s.model)
	}
	v.add(title, s.model, s.backends)
	v.add("unfused", s.model, s.backends, minfer.WithFusion(graph.Fusion{}))
	if s.against != "" {
		v.add(nameOf(s.against), s.against, s.backends)
	}
	if s.againstBackends != "" {
		v.add("on "+s.againstBackends, s.model, s.againstBackends)
	}
	if _, err := v.models[0].opened(); err != nil {
		return nil, err
	}
	if s.open != "" {
		if v.cut = v.load(s.open); len(v.runs[0].all()) == 0 {
			return nil, errors.Join(v.cut, v.close())
		}
	}
	return v, nil
}

func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".gguf") }

func (v *viewer) add(title, path, backends string, more ...minfer.Option) {
	v.models = append(v.models, &model{title: title, open: func() (*minfer.Model, error) {
		if path == "" {
			return minfer.OpenBytes(storyteller.Model, options(backends, more...)...)
		}
		return minfer.Open(path, options(backends, more...)...)
	}})
}

func (m *model) opened() (_ *minfer.Model, err error) {
	if m.m == nil {
		m.m, err = m.open()
	}
	return m.m, err
}

// load shows a trace that was kept: of one that ends or breaks midway, what comes before.
func (v *viewer) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = v.runs[0].read(f)
	return errors.Join(err, f.Close())
}

// begin makes this the run under way, and ends the one before.
func (v *viewer) begin() (ctx context.Context, end func()) {
	for {
		v.mu.Lock()
		if v.stop == nil {
			break
		}
		v.stop()
		done := v.done
		v.mu.Unlock()
		<-done
	}
	defer v.mu.Unlock()
	ctx, v.stop = context.WithCancel(context.Background())
	v.done = make(chan struct{})
	v.work.Add(1)
	cancel, done := v.stop, v.done
	return ctx, func() {
		cancel()
		v.mu.Lock()
		v.stop = nil
		v.mu.Unlock()
		close(done)
		v.work.Done()
	}
}

// halt ends the run under way.
func (v *viewer) halt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stop != nil {
		v.stop()
	}
}

func (v *viewer) close() error {
	v.halt()
	v.work.Wait()
	var errs []error
	for _, m := range v.models {
		if m.m != nil {
			errs = append(errs, m.m.Close())
		}
	}
	return errors.Join(errs...)
}

// request is a run that the page asks for.
type request struct {
	Slot        int     `json:"slot"`  // 0 for the first of two runs, 1 for the second
	Model       int     `json:"model"` // of viewer.models
	Prompt      string  `json:"prompt"`
	Chat        bool    `json:"chat"` // the prompt is a message of a conversation
	Tokens      int     `json:"tokens"`
	Temperature float32 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	Attention   bool    `json:"attention"`
	Lens        bool    `json:"lens"`
	// Along has the run follow the tokens of the first one instead of choosing its own.
	Along bool `json:"along"`
}

func (r *request) check(v *viewer) error {
	switch {
	case r.Slot < 0 || r.Slot > 1:
		return fmt.Errorf("slot %d: want 0 or 1", r.Slot)
	case r.Model < 0 || r.Model >= len(v.models):
		return fmt.Errorf("model %d: want 0 to %d", r.Model, len(v.models)-1)
	case r.Tokens < 1:
		return fmt.Errorf("%d tokens: want 1 or more", r.Tokens)
	case r.Along && r.Slot != 1:
		return errors.New("only the second run can follow the first")
	}
	return nil
}
