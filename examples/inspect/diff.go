package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
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
	graph  *graph.Graph
	values map[string][]float32 // by node
	reader trace.Reader

	tokens []minfer.Token
	texts  []string // of the tokens that are observed
	vocab  int
	next   []trace.Candidate // after the prompt
}

func (r *recording) After(s *minfer.Step) error {
	x, err := r.reader.Value(s)
	if err == nil && x != nil {
		r.values[s.Node().Name] = slices.Clone(x)
	}
	r.graph = s.Graph()
	return err
}

// record runs the prompt in one pass of run 0 or 1, or, to compare the graph of a decode step, all
// of it but the last token, which is then observed. Without tokens they are the model's own for the prompt.
func (s *settings) record(ctx context.Context, run int, backends string, r *recording) (_ *recording, err error) {
	r.values = make(map[string][]float32)
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
	observed := r.tokens
	if last := len(observed) - 1; s.phase == "decode" && last > 0 {
		if _, err := session.Eval(ctx, observed[:last]); err != nil {
			return nil, err
		}
		observed = observed[last:]
	}
	text := func(t minfer.Token) string { return string(model.Tokenizer().TokenBytes(t)) }
	for _, t := range observed {
		r.texts = append(r.texts, text(t))
	}
	defer model.Observe(r)()
	logits, err := session.Eval(ctx, observed)
	if err != nil {
		return nil, err
	}
	r.next = trace.Likeliest(logits, 1, text)
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

// comparison is a node that both runs have.
type comparison struct {
	distance
	node *graph.Node // of the first run
	// adds is what is in the distance and in none of the node's inputs: of errors that do not know of
	// each other, squares add up.
	adds float64
}

// compare measures all nodes that both runs have, in the order in which the first ran them, and
// counts those that the second lacks.
func compare(a, b *recording) (all []comparison, missing int) {
	apart := make([]float64, len(a.graph.Nodes)) // by node; what is not compared has that of its inputs
	for i := range a.graph.Nodes {
		n := &a.graph.Nodes[i]
		inputs := 0.0
		for _, source := range n.Sources() {
			inputs = max(inputs, apart[source])
		}
		apart[i] = inputs
		x, y := a.values[n.Name], b.values[n.Name]
		if x == nil {
			continue
		}
		if len(x) != len(y) {
			missing++
			continue
		}
		c := comparison{distance: measure(x, y), node: n}
		c.adds = math.Sqrt(max(0, c.relative*c.relative-inputs*inputs))
		apart[i] = c.relative
		all = append(all, c)
	}
	return all, missing
}

// firstLayer says whether a node is in no layer or in the first: then as good as all of the runs differs, as two
// quantisations do.
func firstLayer(all []comparison, i int) bool {
	layer := graph.LayerName(all[i].node.Name)
	at := slices.IndexFunc(all, func(c comparison) bool { return graph.LayerName(c.node.Name) != "" })
	return layer == "" && i < max(at, 1) || at >= 0 && layer == graph.LayerName(all[at].node.Name)
}

// suspects lists the nodes that read weights and add most to the distance, the first of them the
// likeliest to hide a fault when all nodes differ: that of one layer's weights stands out from what
// another quantisation adds everywhere.
func suspects(all []comparison) []comparison {
	list := slices.DeleteFunc(slices.Clone(all), func(c comparison) bool { return !(c.adds > 0) || len(graph.Weights(c.node.Op)) == 0 })
	slices.SortStableFunc(list, func(a, b comparison) int { return cmp.Compare(b.adds, a.adds) })
	return list[:min(3, len(list))]
}

// report writes the table, and what is to be seen in it.
func (s *settings) report(w io.Writer, a, b *recording) error {
	all, missing := compare(a, b)
	if len(all) == 0 {
		return errors.New("the runs have no nodes in common")
	}
	first := slices.IndexFunc(all, func(c comparison) bool { return c.differing > 0 })
	beyond := slices.IndexFunc(all, func(c comparison) bool { return c.beyond(s.bound) })

	out := bufio.NewWriter(w) // keeps its first error
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "node\toperation\tdiffering\trelative\tadded\tlargest")
	for i := range all {
		c := &all[i]
		if i == first || i == beyond || s.all || streamEnd(c.node.Name) {
			fmt.Fprintf(t, "%s\t%s\t%d of %d\t%.3g\t%.3g\t%.3g%s\n", c.node.Name, c.node.Op.Kind(), c.differing, len(a.values[c.node.Name]), c.relative, c.adds, c.most, marks(i, first, beyond))
		}
	}
	t.Flush()

	fmt.Fprintf(out, "\nNodes compared: %d, over tokens: %d", len(all), len(a.texts))
	if missing > 0 {
		fmt.Fprintf(out, "; %d of the first run the second has not, or in another shape", missing)
	}
	fmt.Fprintln(out, ".")
	if first < 0 {
		fmt.Fprintln(out, "All are equal, to the bit.")
	} else {
		fmt.Fprintf(out, "The first node that differs is %s", describe(&all[first], a, b))
	}
	switch {
	case beyond < 0:
		fmt.Fprintf(out, "No node is further apart than %g.\n", s.bound)
	case beyond == first:
		fmt.Fprintf(out, "It is also the first further apart than %g.\n", s.bound)
	default:
		fmt.Fprintf(out, "The first node further apart than %g is %s", s.bound, describe(&all[beyond], a, b))
	}
	if first >= 0 && firstLayer(all, first) {
		fmt.Fprintln(out, "Of the nodes that read weights, these add most to what their inputs differ by:")
		for _, c := range suspects(all) {
			fmt.Fprintf(out, "  %s: %.3g of its length; reads %s\n", c.node.Name, c.adds, weightsOf(c.node, b.graph.Lookup(c.node.Name)))
		}
	} else if first >= 0 {
		fmt.Fprintf(out, "The %d nodes before the first are equal to the bit: the fault is in it, or in what it reads.\n", first)
	}
	for i, r := range []*recording{a, b} {
		if len(r.next) > 0 {
			fmt.Fprintf(out, "%s: the likeliest token next is %q, with %.3g\n", s.paths[i], r.next[0].Text, r.next[0].Prob)
		}
	}
	return out.Flush()
}

// marks is the end of a row of the table.
func marks(i, first, beyond int) string {
	var says []string
	if i == first {
		says = append(says, "the first that differs")
	}
	if i == beyond {
		says = append(says, "the first beyond the bound")
	}
	if says == nil {
		return ""
	}
	return "\t<- " + strings.Join(says, ", ")
}

// describe says what a node is, how far it is apart and where most, and which weights it reads.
func describe(c *comparison, a, b *recording) string {
	name, width := c.node.Name, c.node.Shape[0]
	text := fmt.Sprintf("%s (%s): by %.3g of its length", name, c.node.Op.Kind(), c.relative)
	where := fmt.Sprintf("element %d", c.at)
	if row := c.at / width; len(a.values[name]) == width*len(a.texts) {
		where = fmt.Sprintf("feature %d of token %d, %q,", c.at%width, row, a.texts[row])
	}
	text += fmt.Sprintf(", most in %s which is %g and %g.\n", where, a.values[name][c.at], b.values[name][c.at])
	for _, n := range reads(a.graph, c.node) {
		if weights := weightsOf(n, b.graph.Lookup(n.Name)); weights != "" {
			text += fmt.Sprintf("  %s reads %s\n", n.Name, weights)
		}
	}
	return text
}

// weightsOf lists the weights of a node, with their types, and those of its twin in the second run if they
// are others.
func weightsOf(n, twin *graph.Node) string {
	others := make(map[string]string)
	if twin != nil {
		for _, w := range graph.Weights(twin.Op) {
			others[w.Name] = w.Type
		}
	}
	var list []string
	for _, w := range graph.Weights(n.Op) {
		text := strings.TrimSpace(w.Name + " " + w.Type)
		if other, ok := others[w.Name]; ok && other != w.Type {
			text += " (" + other + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// reads lists a node and, if it reads keys and values, the one that writes them, whose value is not
// compared.
func reads(g *graph.Graph, n *graph.Node) []*graph.Node {
	list := []*graph.Node{n}
	for _, id := range n.Sources() {
		if source := g.Node(id); source.Op.Kind() == graph.KindKVLoad {
			list = append(list, g.Node(source.Sources()[0]))
		}
	}
	return list
}

// streamEnd says whether a node is worth a line in a short report: sums of the residual stream, and
// what is in no layer.
func streamEnd(name string) bool {
	return strings.HasSuffix(name, "_residual") || !strings.HasPrefix(name, "blk.")
}
