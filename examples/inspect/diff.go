package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// writeDiff runs a prompt through two models, or through one in two ways, and writes where their
// values part, node by node.
func (s *settings) writeDiff(ctx context.Context, w io.Writer) error {
	first, err := s.record(ctx, 0, s.backends, &recording{})
	if err != nil {
		return err
	}
	against := s.backends
	if s.against != "" {
		against = s.against
	}
	second, err := s.record(ctx, 1, against, &recording{tokens: first.tokens, vocab: first.vocab})
	if err != nil {
		return err
	}
	return s.report(w, first, second)
}

// recording is an observer that keeps all values of a pass.
type recording struct {
	trace.Nothing
	values map[string][]float32 // by node
	names  []string             // of the nodes, as they ran
	ops    map[string]string
	reader trace.Reader

	tokens []minfer.Token
	vocab  int
	next   []trace.Candidate // after the prompt
}

func (r *recording) After(s *minfer.Step) error {
	x, err := r.reader.Value(s)
	if err != nil || x == nil {
		return err
	}
	n := s.Node()
	r.names = append(r.names, n.Name)
	r.ops[n.Name] = n.Op.Kind().String()
	r.values[n.Name] = append([]float32(nil), x...)
	return nil
}

// record runs the prompt in one pass of run 0 or 1. Without tokens they are the model's own for it.
func (s *settings) record(ctx context.Context, run int, backends string, r *recording) (_ *recording, err error) {
	r.values, r.ops = make(map[string][]float32), make(map[string]string)
	var options []minfer.Option
	if s.unfused == "both" || s.unfused == []string{"first", "second"}[run] {
		options = append(options, minfer.WithFusion(graph.Fusion{}))
	}
	model, err := s.open(s.paths[run], backends, options...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	if r.tokens == nil {
		r.vocab = model.Info().Vocab
		if r.tokens, err = model.Tokenizer().Encode(s.prompt, minfer.EncodeOptions{AddSpecial: true}); err != nil {
			return nil, err
		}
		if len(r.tokens) == 0 {
			return nil, errors.New("the prompt has no tokens")
		}
	} else if model.Info().Vocab != r.vocab {
		return nil, fmt.Errorf("%s has %d tokens in its vocabulary and %s has %d, so no prompt is the same for both", s.paths[1], model.Info().Vocab, s.paths[0], r.vocab)
	}
	session, err := model.NewSession(minfer.WithContext(min(model.Info().ContextLength, len(r.tokens)+1)), minfer.WithBatch(len(r.tokens)))
	if err != nil {
		return nil, err
	}
	defer model.Observe(r)()
	logits, err := session.Eval(ctx, r.tokens)
	if err != nil {
		return nil, err
	}
	r.next = trace.Likeliest(logits, 1, func(t minfer.Token) string { return string(model.Tokenizer().TokenBytes(t)) })
	return r, nil
}

// distance is how far two values of a node are apart.
type distance struct {
	differing int     // elements that are not equal
	relative  float64 // root of the sum of squares of the differences, over that of the first value
	most      float64 // the largest difference, at:
	at        int
	finite    bool
}

func measure(a, b []float32) distance {
	d := distance{finite: true}
	var squares, whole float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		if a[i] == b[i] || x != x && y != y {
			whole += x * x
			continue
		}
		d.differing++
		diff := math.Abs(x - y)
		if math.IsNaN(diff) || math.IsInf(diff, 0) {
			d.finite = false
			diff = math.Inf(1)
		}
		if diff > d.most {
			d.most, d.at = diff, i
		}
		squares += diff * diff
		whole += x * x
	}
	if squares > 0 {
		d.relative = math.Sqrt(squares / whole)
	}
	return d
}

func (d *distance) beyond(bound float64) bool { return !d.finite || !(d.relative <= bound) }

func (s *settings) report(w io.Writer, a, b *recording) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "node\toperation\tdiffering\trelative\tlargest\n")
	first, compared, missing := "", 0, 0
	var apart distance
	for _, name := range a.names {
		x, y := a.values[name], b.values[name]
		if y == nil || len(x) != len(y) {
			missing++
			continue
		}
		compared++
		d := measure(x, y)
		mark := ""
		if d.beyond(s.bound) && first == "" {
			first, apart, mark = name, d, "\t<- the first beyond the bound"
		}
		if s.all || mark != "" || streamEnd(name) {
			fmt.Fprintf(t, "%s\t%s\t%d of %d\t%.3g\t%.3g%s\n", name, a.ops[name], d.differing, len(x), d.relative, d.most, mark)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n%d tokens, %d nodes compared", len(a.tokens), compared)
	if missing > 0 {
		fmt.Fprintf(&out, ", %d of the first run that the second has not, or in another shape", missing)
	}
	if compared == 0 {
		return errors.New("the runs have no nodes in common")
	}
	if first == "" {
		fmt.Fprintf(&out, "\nNo node is further apart than %g.\n", s.bound)
	} else {
		fmt.Fprintf(&out, "\nThe first node further apart than %g is %s (%s): by %.3g of its length; element %d is %g and %g.\n",
			s.bound, first, a.ops[first], apart.relative, apart.at, a.values[first][apart.at], b.values[first][apart.at])
	}
	for i, r := range []*recording{a, b} {
		if len(r.next) > 0 {
			fmt.Fprintf(&out, "%s: the likeliest token next is %q, with %.3g\n", s.paths[i], r.next[0].Text, r.next[0].Prob)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// streamEnd says whether a node is worth a line in a short report: sums of the residual stream, and
// what is in no layer.
func streamEnd(name string) bool {
	return strings.HasSuffix(name, "_residual") || !strings.HasPrefix(name, "blk.")
}
