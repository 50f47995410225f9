package trace

import (
	"context"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// Observer is told of every forward pass of a model, of every node in it, and of the tokens
// that are chosen. Embed [Nothing] to be told of some of that.
//
// Calls about passes come one after another, from whichever goroutine evaluates; Chose may come
// at the same time as those. A model waits for its observers, which must not use it: not
// evaluate, not close it, not stop observing.
type Observer interface {
	// BeginPass is called when the inputs are written and the first node is about to run. The
	// context is that of the call that evaluates, and the pass is the observer's to read
	// until EndPass returns. An error ends the evaluation.
	BeginPass(ctx context.Context, p *Pass) error
	// Before and After are called around every node.
	sched.Observer
	// EndPass is called after the last node, or with the error that ended the pass, also if it
	// was an observer's. Its own error ends the evaluation.
	EndPass(p *Pass, err error) error
	// Chose is called when a token is chosen to follow a sequence.
	Chose(c Choice)
}

// Pass is a forward pass under way.
type Pass struct {
	Number  uint64         // of the model's passes, from 1
	Program *sched.Program // the graph, its memory and splits; not to be executed or changed

	// By row of what is evaluated:
	Tokens    []int32
	Positions []int32
	Cells     []int32  // where keys and values of the row are written
	Sessions  []uint64 // which sequence the row belongs to, of the process's from 1

	Outputs []int32 // the rows that the graph's output is computed for, in its order

	// Keys returns the cells of the positions of a row's sequence, in order, from the first to the
	// last one that has been evaluated or is in this pass.
	Keys func(row int) []int32
}

// Graph returns the graph of the pass.
func (p *Pass) Graph() *graph.Graph { return p.Program.Graph() }

// Choice is a token that was chosen from the logits of a sequence.
type Choice struct {
	Session  uint64 `json:"session"`
	Position int    `json:"position"` // that the token takes: one more than the row whose logits it was chosen from
	Token    int32  `json:"token"`
	Text     string `json:"text"` // bytes that are no UTF-8 are replaced
}

// Nothing is an Observer that does nothing, to be embedded.
type Nothing struct{}

// BeginPass does nothing.
func (Nothing) BeginPass(context.Context, *Pass) error { return nil }

// Before does nothing.
func (Nothing) Before(*sched.Step) {}

// After does nothing.
func (Nothing) After(*sched.Step) error { return nil }

// EndPass does nothing.
func (Nothing) EndPass(*Pass, error) error { return nil }

// Chose does nothing.
func (Nothing) Chose(Choice) {}
