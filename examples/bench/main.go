// Bench measures how fast a model reads prompts and generates, and how well it predicts a
// text:
//
//	bench -m MODEL.gguf                    512 tokens read, 64 generated, at an empty context
//	bench -m MODEL.gguf -d 0,2048 -t 1,2   generation after 2048 tokens too, on 1 and 2 threads
//	bench -m MODEL.gguf -open              from the start of a process to its first token
//	bench -m MODEL.gguf -ppl FILE          the perplexity of a text
//
// Every figure is measured -r times in turn with the others, so that all of them see the
// same moods of the machine, and the median is printed with the extremes, and with what it
// is of the roof: what the machine can do at most, measured in the same rounds. -against runs
// llama.cpp in turn too, -profile says where the time goes. README.md has more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/devices" // GPUs, by tag
	"github.com/minfer/minfer/examples/storyteller"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return // the flags were listed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are what the command line asks for.
type settings struct {
	model    string
	prompt   int
	generate int
	depths   []int
	threads  []int
	rounds   int
	backends string
	text     string // file whose perplexity is wanted
	versus   string // command to run once a round of opening
	against  string // command of another program to measure in turn
	output   string // form of the table
	profiled bool   // say where the time goes
	cpu      string // file for a CPU profile
	inPlace  bool   // compute from the weights where they lie
	rounded  bool   // compute with float weights rounded to Q8_0
	opening  bool   // measure opening
	openOnce bool   // be the process in which it is measured
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{depths: []int{0}, threads: []int{0}, output: "table"}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.model, "m", "", "model `file`; without it the embedded storyteller")
	f.IntVar(&s.prompt, "p", 512, "`tokens` of the prompt; 0 leaves prompts out")
	f.IntVar(&s.generate, "n", 64, "`tokens` to generate; 0 leaves generation out")
	f.Func("d", "`depths`: tokens in the context before generation, separated by commas (default 0)", numbers(&s.depths))
	f.Func("t", "`threads`, separated by commas; 0 is one per processor (default 0)", numbers(&s.threads))
	f.IntVar(&s.rounds, "r", 4, "`rounds`")
	f.StringVar(&s.backends, "backends", "", "devices by `name`, separated by commas")
	f.StringVar(&s.text, "ppl", "", "print the perplexity of the text in `file`")
	f.StringVar(&s.versus, "vs", "", "with -open: `command` to run once a round; its output is shown")
	f.StringVar(&s.against, "against", "", "measure `command` in turn: llama-bench, or what README.md says")
	f.StringVar(&s.output, "o", s.output, "`form` of the results: table, csv or json")
	f.BoolVar(&s.profiled, "profile", false, "print what each operation takes of a prompt and of a generated token")
	f.StringVar(&s.cpu, "cpuprofile", "", "write a CPU profile to `file`, with labels for phases and operations")
	f.BoolVar(&s.inPlace, "in-place", false, "compute from the weights in the file, without a copy of them")
	f.BoolVar(&s.rounded, "rounded", false, "compute with float weights rounded to Q8_0")
	f.BoolVar(&s.opening, "open", false, "measure the way to the first token, in processes of their own")
	f.BoolVar(&s.openOnce, "open-once", false, "be such a process, and print the moments as JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 || s.prompt < 0 || s.generate < 0 || s.rounds < 1 {
		return nil, fmt.Errorf("want no arguments beside flags, -p and -n of 0 or more, -r of 1 or more")
	}
	if writers[s.output] == nil {
		return nil, fmt.Errorf("-o %q, want table, csv or json", s.output)
	}
	if s.against != "" && s.model == "" {
		return nil, fmt.Errorf("-against measures another program with a file: name it with -m")
	}
	return s, nil
}

func numbers(dst *[]int) func(string) error {
	return func(list string) error {
		*dst = nil
		for _, field := range strings.Split(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || n < 0 {
				return fmt.Errorf("%q is no list of numbers from 0 on", list)
			}
			*dst = append(*dst, n)
		}
		return nil
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	switch {
	case s.text != "":
		return perplexity(s, stdout)
	case s.openOnce:
		return s.tellOpening(stdout)
	case s.opening:
		return measureOpen(s, stdout)
	}
	return s.profileCPU(func() error { return measure(s, stdout, stderr) })
}

// profileCPU has do run with a CPU profile, if one is wanted.
func (s *settings) profileCPU(do func() error) error {
	if s.cpu == "" {
		return do()
	}
	f, err := os.Create(s.cpu)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

func (s *settings) open(threads int, opts ...minfer.Option) (*minfer.Model, error) {
	opts = append(opts, minfer.WithThreads(threads))
	if s.inPlace {
		opts = append(opts, minfer.WithWeightsInPlace())
	}
	if s.rounded {
		opts = append(opts, minfer.WithRoundedFloats())
	}
	if s.cpu != "" {
		opts = append(opts, minfer.WithProfiling())
	}
	if s.backends != "" {
		opts = append(opts, minfer.WithBackends(strings.Split(s.backends, ",")...))
	}
	if s.model == "" {
		return minfer.OpenBytes(storyteller.Model, opts...)
	}
	return minfer.Open(s.model, opts...)
}

// The kinds of figures.
const (
	prompt     = "prompt"
	generation = "generation"
)

// figure is one row of the table: something that is measured once a round.
type figure struct {
	kind    string
	tokens  int // read or generated
	depth   int
	threads int
	work    work // of a pass
	passes  float64
	measure func() (took time.Duration, err error)

	// One value per round:
	rates     []float64 // tokens per second
	fractions []float64 // of the roof
	others    []float64 // tokens per second of the other program
	ratios    []float64 // to it
}

func measure(s *settings, stdout, stderr io.Writer) error {
	var figures []*figure
	var profiles []*profile
	log := stdout
	if s.output != "table" {
		log = stderr // what is printed shall be nothing but the results
	}
	for _, threads := range s.threads {
		begun := time.Now()
		m, err := s.open(threads)
		if err != nil {
			return err
		}
		defer m.Close()
		if len(figures) == 0 {
			describe(log, m, time.Since(begun))
		}
		list, err := s.figures(m, threads)
		if err != nil {
			return err
		}
		figures = append(figures, list...)
		if s.profiled {
			p := newProfile(m)
			defer m.Observe(p)()
			profiles = append(profiles, p)
		}
	}
	if err := s.measureAll(figures, log); err != nil {
		return err
	}
	rows := make([]row, len(figures))
	for i, f := range figures {
		rows[i] = f.row(s.model)
	}
	if err := writers[s.output](stdout, rows); err != nil {
		return err
	}
	for i, p := range profiles {
		fmt.Fprintf(log, "\nWith %s:\n", strings.TrimPrefix(threadsSuffix(s.threads[i]), ", "))
		p.write(log)
	}
	return nil
}

// measureAll measures all figures, -r times in turn.
func (s *settings) measureAll(figures []*figure, log io.Writer) error {
	limits, err := newMachine()
	if err != nil {
		return err
	}
	defer limits.close()
	roofs := make(map[int][]roof)
	for range s.rounds {
		for _, f := range figures {
			r := limits.measure(f.threads)
			roofs[f.threads] = append(roofs[f.threads], r)
			if err := s.measureOnce(f, r); err != nil {
				return fmt.Errorf("%s of %d tokens at %d: %w", f.kind, f.tokens, f.depth, err)
			}
		}
	}
	for _, threads := range slices.Sorted(maps.Keys(roofs)) {
		fmt.Fprintf(log, "the machine, %s: %v\n", threadCount(threads), medianRoof(roofs[threads]))
	}
	return nil
}

func (s *settings) measureOnce(f *figure, r roof) error {
	took, err := f.measure()
	if err != nil {
		return err
	}
	rate := float64(f.tokens) / took.Seconds()
	f.rates = append(f.rates, rate)
	f.fractions = append(f.fractions, f.work.fraction(r, f.passes/took.Seconds()))
	if s.against == "" {
		return nil
	}
	other, err := s.otherRate(f)
	if err != nil {
		return err
	}
	f.others, f.ratios = append(f.others, other), append(f.ratios, rate/other)
	return nil
}

func describe(w io.Writer, m *minfer.Model, opened time.Duration) {
	info := m.Info()
	fmt.Fprintf(w, "%s, %s, %.0f M parameters, %.1f MiB, on %s; opened in %v\n", info.Name, info.Architecture,
		float64(info.Parameters)/1e6, float64(info.Bytes)/(1<<20), strings.Join(info.Devices, ","), opened.Round(time.Millisecond))
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// figures lists what is measured on a model: each has a session of its own.
func (s *settings) figures(m *minfer.Model, threads int) ([]*figure, error) {
	var list []*figure
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	if s.prompt > 0 {
		session, err := m.NewSession(minfer.WithContext(s.prompt), minfer.WithBatch(s.prompt))
		if err != nil {
			return nil, err
		}
		w, err := workOf(m, s.prompt, 0)
		if err != nil {
			return nil, err
		}
		list = append(list, &figure{kind: prompt, tokens: s.prompt, threads: threads, work: w, passes: 1,
			measure: func() (time.Duration, error) { return readPrompt(session, s.prompt) }})
	}
	for _, depth := range s.depths {
		if s.generate == 0 {
			break
		}
		session, err := m.NewSession(minfer.WithContext(depth + s.generate + 1))
		if err != nil {
			return nil, err
		}
		w, err := workOf(m, 1, depth+s.generate/2)
		if err != nil {
			return nil, err
		}
		list = append(list, &figure{kind: generation, tokens: s.generate, depth: depth, threads: threads, work: w, passes: float64(s.generate),
			measure: func() (time.Duration, error) { return generate(session, depth, s.generate) }})
	}
	return list, nil
}

// text returns n tokens. Speed does not depend on which.
func text(m *minfer.Model, n int) []minfer.Token {
	tokens := make([]minfer.Token, n)
	for i := range tokens {
		tokens[i] = minfer.Token((i*7 + 11) % m.Info().Vocab)
	}
	return tokens
}

// readPrompt measures a prompt of n tokens that has just been read before, as llama-bench does: what
// was not read for some seconds, while another program was measured, comes from memory at half the speed.
func readPrompt(s *minfer.Session, n int) (took time.Duration, err error) {
	tokens := text(s.Model(), n)
	for range 2 {
		if err := s.Rewind(0); err != nil {
			return 0, err
		}
		begun := time.Now()
		if _, err := s.Eval(context.Background(), tokens); err != nil {
			return 0, err
		}
		took = time.Since(begun)
	}
	return took, nil
}

// generate measures n steps of one token each, after depth+1 tokens.
func generate(s *minfer.Session, depth, n int) (time.Duration, error) {
	tokens := text(s.Model(), depth+n+1)
	if err := s.Rewind(min(s.Len(), depth+1)); err != nil {
		return 0, err
	}
	if have := s.Len(); have < depth+1 {
		if _, err := s.Eval(context.Background(), tokens[have:depth+1]); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	for i := depth + 1; i < len(tokens); i++ {
		if _, err := s.Eval(context.Background(), tokens[i:i+1]); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// perplexity prints exp of the mean negative log-likelihood of a text's tokens, each
// predicted from what comes before it in the same window: windows of the context follow one
// another, and the first half of each only serves as what comes before.
func perplexity(s *settings, stdout io.Writer) error {
	content, err := os.ReadFile(s.text)
	if err != nil {
		return err
	}
	m, err := s.open(s.threads[0])
	if err != nil {
		return err
	}
	defer m.Close()
	tokens, err := m.Tokenizer().Encode(string(content), minfer.EncodeOptions{AddSpecial: true})
	if err != nil {
		return err
	}
	window := min(m.Info().ContextLength, 512)
	var sum float64
	var count int
	for from := 0; from+1 < len(tokens); from += window / 2 {
		to := min(from+window, len(tokens))
		judged := from + window/2
		if from == 0 {
			judged = 1
		}
		loss, n, err := windowLoss(m, tokens[from:to], judged-from)
		if err != nil {
			return err
		}
		sum, count = sum+loss, count+n
		if to == len(tokens) {
			break
		}
	}
	if count == 0 {
		return fmt.Errorf("%s has %d tokens, too few to predict any", s.text, len(tokens))
	}
	fmt.Fprintf(stdout, "perplexity %.4f over %d tokens, in windows of %d\n", math.Exp(sum/float64(count)), count, window)
	return nil
}

// windowLoss returns the summed negative log-likelihood of the tokens from judged on.
func windowLoss(m *minfer.Model, tokens []minfer.Token, judged int) (loss float64, n int, err error) {
	session, err := m.NewSession(minfer.WithContext(len(tokens)))
	if err != nil {
		return 0, 0, err
	}
	defer session.Close()
	logProbs, err := session.Score(context.Background(), tokens)
	if err != nil {
		return 0, 0, err
	}
	for _, l := range logProbs[max(judged, 1):] {
		loss -= float64(l)
		n++
	}
	return loss, n, nil
}
