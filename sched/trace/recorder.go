package trace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// Limits say how much of each value is recorded, so that a trace stays small. Inputs are recorded
// as tokens and positions only, and key and value regions not at all. Less than 0 is 0, and more than there is is all.
type Limits struct {
	Rows      int `json:"rows"`      // of a value, so many last rows are sampled
	Columns   int `json:"columns"`   // of a row, at most so many elements, evenly spaced
	Bins      int `json:"bins"`      // of histograms; 0 for none
	Top       int `json:"top"`       // likeliest tokens that are listed
	TopRows   int `json:"topRows"`   // of a pass, so many last rows have their likeliest tokens listed
	Attention int `json:"attention"` // of a pass, so many last rows have what they attend to recorded; 0 for none
	Passes    int `json:"passes"`    // passes that are recorded; 0 for all
}

// DefaultLimits are those of a recorder that is given none. A decode step of a model of 24 layers
// then takes some 140 KB.
func DefaultLimits() Limits {
	return Limits{Rows: 1, Columns: 32, Bins: 16, Top: 10, TopRows: 4}
}

// Option changes what a recorder keeps.
type Option func(*settings)

type settings struct {
	limits Limits
	only   func(*graph.Node) bool
	sample func(*graph.Node) (rows, columns int)
	chrome bool
}

// WithLimits replaces the limits.
func WithLimits(l Limits) Option { return func(s *settings) { s.limits = l } }

// Only records the nodes that want says yes to; others are neither timed nor read.
func Only(want func(*graph.Node) bool) Option { return func(s *settings) { s.only = want } }

// Sampling has size say for each node how many last rows are sampled, and how many elements of
// each, instead of Limits.Rows and Limits.Columns. It is asked anew in every pass.
func Sampling(size func(*graph.Node) (rows, columns int)) Option {
	return func(s *settings) { s.sample = size }
}

// Chrome has NewRecorder write trace events: see ChromeWriter.
func Chrome() Option { return func(s *settings) { s.chrome = true } }

// Recorder is an Observer that keeps a trace.
type Recorder struct {
	settings
	text func(int32) string
	sink Sink
	end  func() error
	at   time.Time // when the trace began

	mu     sync.Mutex
	err    error // of the sink; sticks
	closed bool
	graphs map[uint64]bool
	passes int
	full   bool // all passes that are wanted are recorded, and another has begun

	// Of the pass under way; nil when it is not recorded.
	of     *Pass
	record *PassRecord
	begun  time.Time // the node
	values Reader
}

// NewRecorder returns a recorder of a model that writes a trace to w. Text is what a token
// stands for. Close ends the trace; a pass that is under way goes on without it.
func NewRecorder(w io.Writer, m Model, text func(int32) string, opts ...Option) (*Recorder, error) {
	r := newRecorder(m, text, opts)
	if r.chrome {
		c := NewChromeWriter(w)
		r.sink, r.end = c, c.Close
	} else {
		r.sink = NewWriter(w)
	}
	return r, r.head(m)
}

// NewRecorderTo returns a recorder that hands records to a sink as they come. They are the sink's
// to keep, but must not be changed.
func NewRecorderTo(s Sink, m Model, text func(int32) string, opts ...Option) (*Recorder, error) {
	r := newRecorder(m, text, opts)
	r.sink = s
	return r, r.head(m)
}

func newRecorder(m Model, text func(int32) string, opts []Option) *Recorder {
	r := &Recorder{text: text, end: func() error { return nil }, at: time.Now(), graphs: make(map[uint64]bool)}
	r.limits = DefaultLimits()
	for _, o := range opts {
		o(&r.settings)
	}
	if r.sample == nil {
		r.sample = func(*graph.Node) (int, int) { return r.limits.Rows, r.limits.Columns }
	}
	return r
}

func (r *Recorder) head(m Model) error {
	return r.sink.Put(&Header{Format: Format, Version: Version, Model: m, Limits: r.limits, Began: r.at.Format(time.RFC3339Nano)})
}

// Close ends the trace. It does not close the writer below.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return errors.Join(r.err, r.end())
}

// put drops records once the recorder is closed, which may be in the middle of a pass: its end is wanted, and no fault.
func (r *Recorder) put(record Record) error {
	if r.closed {
		return nil
	}
	if r.err == nil {
		r.err = r.sink.Put(record)
	}
	return r.err
}

func (r *Recorder) since(t time.Time) int64 { return t.Sub(r.at).Nanoseconds() }

// BeginPass writes the graph if it is new.
func (r *Recorder) BeginPass(_ context.Context, p *Pass) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.record = nil, nil
	r.full = r.limits.Passes > 0 && r.passes >= r.limits.Passes
	if r.full || r.closed {
		return nil
	}
	r.passes++
	g := p.Graph()
	if !r.graphs[g.UID] {
		r.graphs[g.UID] = true
		raw, err := p.Program.Schedule().MarshalJSON()
		if err != nil {
			return err
		}
		if err := r.put(&Graph{UID: g.UID, Schedule: p.Program.Schedule(), Raw: raw, Captured: p.Program.Captured()}); err != nil {
			return err
		}
	}
	r.of = p
	r.record = &PassRecord{
		Pass: p.Number, Graph: g.UID, Phase: g.Params.Phase.String(), Start: r.since(time.Now()),
		Tokens: slices.Clone(p.Tokens), Positions: slices.Clone(p.Positions), Sessions: slices.Clone(p.Sessions),
	}
	for row, t := range p.Tokens {
		text := r.text(t)
		r.record.Texts = append(r.record.Texts, text)
		if b := partial(text); b != nil {
			if r.record.Bytes == nil {
				r.record.Bytes = make(map[int][]byte)
			}
			r.record.Bytes[row] = b
		}
	}
	return r.err
}

func (r *Recorder) wants(n *graph.Node) bool { return r.record != nil && (r.only == nil || r.only(n)) }

// Before notes the time.
func (r *Recorder) Before(s *sched.Step) {
	if r.wants(s.Node()) {
		r.begun = time.Now()
	}
}

// After waits for the value, and describes it.
func (r *Recorder) After(s *sched.Step) error {
	node := s.Node()
	if !r.wants(node) {
		return nil
	}
	if err := s.Wait(); err != nil {
		return err
	}
	took := time.Since(r.begun)
	n := Node{
		Node: int(node.ID), Device: s.Device(), Start: r.since(r.begun), Time: took.Nanoseconds(), Bytes: s.Bytes(),
		MultiplyAdds: graph.MultiplyAdds(node, r.pairs(node.Op)),
	}
	x, err := r.values.Value(s)
	if err != nil {
		return err
	}
	if x != nil {
		n.Stats = Describe(x)
		n.Histogram = histogram(x, n.Stats, r.limits.Bins)
		rows, columns := r.sample(node)
		n.Sample = sampleOf(x, node.Shape[0], rows, columns)
		if g := s.Graph(); node.ID == g.Outputs[0] && g.Params.Result == graph.Logits {
			r.logits(x, node.Shape[0])
		}
	}
	if _, attends := node.Op.(graph.Attention); attends && r.limits.Attention > 0 {
		n.Attention = r.attention(s)
	}
	r.record.Nodes = append(r.record.Nodes, n)
	return nil
}

// pairs counts the positions that the rows of the pass attend to.
func (r *Recorder) pairs(op graph.Op) (n int) {
	a, ok := op.(graph.Attention)
	if !ok {
		return 0
	}
	for row, p := range r.of.Positions {
		keys := int(p) + 1
		if a.Mode == graph.Full {
			keys = len(r.of.Keys(row))
		}
		if a.Window > 0 {
			keys = min(keys, a.Window)
		}
		n += keys
	}
	return n
}

// logits lists the likeliest tokens after the last rows of the output.
func (r *Recorder) logits(x []float32, vocab int) {
	rows := r.of.Outputs
	for i := max(0, len(rows)-max(0, r.limits.TopRows)); i < len(rows); i++ {
		row := rows[i]
		r.record.Logits = append(r.record.Logits, Logits{
			Session: r.of.Sessions[row], Position: int(r.of.Positions[row]),
			Top: Likeliest(x[i*vocab:(i+1)*vocab], r.limits.Top, r.text),
		})
	}
}

// Likeliest returns the n tokens of the largest logits, of equals the lower token first, with
// their probabilities. NaN is never among them.
func Likeliest(logits []float32, n int, text func(int32) string) []Candidate {
	if n = min(n, len(logits)); n <= 0 {
		return nil
	}
	top := make([]Candidate, 0, n+1)
	greatest := float32(math.Inf(-1))
	for t, x := range logits {
		if x != x || len(top) == n && x <= float32(top[n-1].Logit) {
			continue
		}
		greatest = max(greatest, x)
		at, _ := slices.BinarySearchFunc(top, Candidate{Token: int32(t), Logit: Number(x)}, func(a, b Candidate) int {
			return cmp.Or(cmp.Compare(b.Logit, a.Logit), cmp.Compare(a.Token, b.Token))
		})
		top = slices.Insert(top, at, Candidate{Token: int32(t), Logit: Number(x)})
		top = top[:min(n, len(top))]
	}
	sum := 0.0
	for _, x := range logits {
		if x == x {
			sum += math.Exp(float64(x - greatest))
		}
	}
	for i := range top {
		top[i].Text = text(top[i].Token)
		top[i].Bytes = partial(top[i].Text)
		top[i].Prob = Number(math.Exp(float64(float32(top[i].Logit)-greatest)) / sum)
	}
	return top
}

// attention records what the last rows of the last sequence attend to.
func (r *Recorder) attention(s *sched.Step) *Attention {
	p := r.of
	last := len(p.Tokens) - 1
	first := last
	for first > 0 && last-first+1 < r.limits.Attention && p.Sessions[first-1] == p.Sessions[last] {
		first--
	}
	op := s.Node().Op.(graph.Attention)
	cells := p.Keys(last)
	all := make([]float32, len(p.Tokens)*op.Heads*len(cells))
	if err := s.AttentionWeights(cells, all); err != nil {
		return &Attention{Heads: op.Heads, Unavailable: err.Error()}
	}
	all = all[first*op.Heads*len(cells):]
	a := &Attention{Heads: op.Heads, Rows: last - first + 1, Keys: len(cells), Weights: make([]byte, len(all))}
	for i, w := range all {
		if w > 0 { // and no NaN
			a.Weights[i] = uint8(math.Round(255 * float64(min(w, 1))))
		}
	}
	return a
}

// EndPass writes the record.
func (r *Recorder) EndPass(_ *Pass, failure error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record == nil {
		return nil
	}
	r.record.Time = r.since(time.Now()) - r.record.Start
	if failure != nil {
		r.record.Error = failure.Error()
	}
	record := r.record
	r.of, r.record = nil, nil
	return r.put(record)
}

// Chose writes the choice. What goes wrong is told with the next pass.
func (r *Recorder) Chose(c Choice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.full {
		_ = r.put(&ChoiceRecord{Choice: c, Bytes: partial(c.Text), At: r.since(time.Now())})
	}
}
