// Inspect shows what is in a GGUF file: metadata, tokenizer, tensors; or the graph of a forward
// pass exactly as it will run, with devices, fused operations, buffers and copies; or where two
// models, or two ways to run one, part from each other on a prompt, node by node:
//
//	inspect MODEL.gguf
//	inspect -dot -phase decode MODEL.gguf | dot -Tpng > decode.png
//	inspect -svg MODEL.gguf > memory.svg
//	inspect -diff MODEL-Q8_0.gguf MODEL-Q4_0.gguf "Once upon a time"
//
// The listing also works for files that this library cannot run, and says why it cannot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/devices" // GPUs, by tag
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program, and returns what it exits with.
func run(args []string, stdout, stderr io.Writer) int {
	s, err := parseSettings(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, usage())
		return 0
	}
	if err == nil && s.diff {
		err = s.writeDiff(context.Background(), stdout)
	} else if err == nil && s.form != nil {
		err = s.writeGraph(stdout)
	} else if err == nil {
		err = s.writeListing(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "inspect:", strings.TrimPrefix(err.Error(), "minfer: "))
		return 1
	}
	return 0
}

// settings are the command line.
type settings struct {
	path     string   // of the file, unless two are compared
	diff     bool     // compare
	paths    []string // the two
	prompt   string   // for both
	bound    float64
	against  string // devices of the second
	unfused  string // which of the two go without fused operations
	all      bool
	form     func(*minfer.Schedule, io.Writer) error // how to write the graph; nil for the listing
	forms    int
	phase    string
	tokens   int
	context  int
	kv       string
	backends string
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("inspect", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&s.all, "all", false, "show arrays and long strings whole, with -dot every layer, with -diff every node")
	f.BoolFunc("dot", "write the graph in the language of Graphviz; layers that are alike are drawn once, unless with -all", s.writeAs(func(g *minfer.Schedule, w io.Writer) error {
		if s.all {
			return g.WriteDOT(w, graph.EveryLayer())
		}
		return g.WriteDOT(w)
	}))
	f.BoolFunc("json", "write the graph as JSON", s.writeAs((*minfer.Schedule).WriteJSON))
	f.BoolFunc("text", "write the graph in its text form", s.writeAs(func(g *minfer.Schedule, w io.Writer) error {
		_, err := io.WriteString(w, g.String())
		return err
	}))
	f.BoolFunc("svg", "draw the memory of the graph", s.writeAs((*minfer.Schedule).WriteSVG))
	f.BoolVar(&s.diff, "diff", false, "run two models on a prompt and say where they part: -diff A.gguf B.gguf \"prompt\"")
	f.Float64Var(&s.bound, "bound", 1e-3, "with -diff: `distance` beyond which nodes count as apart, relative to their length")
	f.StringVar(&s.against, "against", "", "with -diff: devices of the second run, if others than those of the first, such as `cuda,cpu`")
	f.StringVar(&s.unfused, "unfused", "", "with -diff: `run` without fused operations: first, second or both")
	f.StringVar(&s.phase, "phase", "prefill", "`phase` of the graph: prefill, which reads a prompt, or decode, which generates a token; with -diff, whether the prompt is compared or its last token")
	f.IntVar(&s.tokens, "tokens", 16, "`number` of tokens that the prefill graph reads, 2 or more")
	f.IntVar(&s.context, "ctx", 0, "`tokens` that the cache of the graph holds; 0 is what a session has")
	f.StringVar(&s.kv, "kv", "f16", "`type` of the cache: f16 or f32")
	f.StringVar(&s.backends, "backends", "", "devices of the graph, the preferred first, such as `cuda,cpu`")
	return f
}

// writeAs is a flag that chooses a form.
func (s *settings) writeAs(form func(*minfer.Schedule, io.Writer) error) func(string) error {
	return func(string) error {
		s.form = form
		s.forms++
		return nil
	}
}

// parseSettings takes flags before and after the path.
func parseSettings(args []string) (*settings, error) {
	s := &settings{}
	f := s.flags()
	var paths []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			break
		}
		paths, args = append(paths, f.Arg(0)), f.Args()[1:]
	}
	switch {
	case s.diff && len(paths) == 3:
		s.paths, s.prompt = paths[:2], paths[2]
	case s.diff:
		return nil, fmt.Errorf("%d arguments given, -diff wants the paths of two GGUF files and a prompt", len(paths))
	case len(paths) == 1:
		s.path = paths[0]
	default:
		return nil, fmt.Errorf("%d files given, want the path of one GGUF file; -h lists the flags", len(paths))
	}
	switch {
	case s.diff && s.form != nil:
		return nil, errors.New("-diff shows no graph")
	case !(s.bound >= 0):
		return nil, fmt.Errorf("-bound %g: want 0 or more", s.bound)
	case !slices.Contains([]string{"", "first", "second", "both"}, s.unfused):
		return nil, fmt.Errorf("-unfused %s: want first, second or both", s.unfused)
	case s.forms > 1:
		return nil, errors.New("one of -dot, -json, -svg and -text is enough")
	case s.phase != "prefill" && s.phase != "decode":
		return nil, fmt.Errorf("-phase %s: want prefill or decode", s.phase)
	case s.tokens < 2:
		return nil, fmt.Errorf("-tokens %d: want 2 or more; -phase decode is one token", s.tokens)
	case s.context < 0:
		return nil, fmt.Errorf("-ctx %d: want 1 or more, or 0 for what a session has", s.context)
	case s.kv != "f16" && s.kv != "f32":
		return nil, fmt.Errorf("-kv %s: want f16 or f32", s.kv)
	}
	return s, nil
}

// usage is what -h prints.
func usage() string {
	var b strings.Builder
	b.WriteString("usage: inspect [flags] MODEL.gguf\n\n")
	f := (&settings{}).flags()
	f.SetOutput(&b)
	f.PrintDefaults()
	return b.String()
}

func (s *settings) writeListing(w io.Writer) error {
	f, err := gguf.Open(s.path)
	if err != nil {
		return err
	}
	return errors.Join(writeListing(w, f, s.path, s.all), f.Close())
}

// open opens a model on some devices, or on those that it prefers.
func (s *settings) open(path, backends string, more ...minfer.Option) (*minfer.Model, error) {
	options := append(more, minfer.WithKVType(graph.F16))
	if s.kv == "f32" {
		options = append(options, minfer.WithKVType(graph.F32))
	}
	if backends != "" {
		options = append(options, minfer.WithBackends(strings.Split(backends, ",")...))
	}
	return minfer.Open(path, options...)
}

func (s *settings) writeGraph(w io.Writer) error {
	model, err := s.open(s.path, s.backends)
	if err != nil {
		return err
	}
	defer model.Close()
	p := graph.Params{Tokens: s.tokens, Cells: s.context}
	if s.phase == "decode" {
		p.Tokens = 1
	}
	if p.Cells == 0 {
		p.Cells = min(minfer.DefaultContext, model.Info().ContextLength)
	}
	schedule, err := minfer.Explain(model, p)
	if err != nil {
		return err
	}
	return s.form(schedule, w)
}
