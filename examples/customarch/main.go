// Customarch adds a model architecture to minfer from outside: package parallel defines
// it, and importing that package is all it takes. The program writes a small model of
// this architecture, with weights made by hand so that its answers can be predicted,
// runs it, and prints its graph.
//
//	go run ./examples/customarch
//	go run ./examples/customarch -o pattern.gguf "to be or to"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/customarch/parallel" // registers the architecture
	"github.com/minfer/minfer/graph"
)

func main() {
	out := flag.String("o", "", "write the model to this file, too")
	flag.Parse()
	if err := run(os.Stdout, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "customarch:", err)
		os.Exit(1)
	}
}

// defaults are prompts that show what the model does: it continues what repeats, and
// anything else by the alphabet.
var defaults = []string{"abc", "minfer mi", "acegac"}

func run(w io.Writer, path string, prompts []string) (err error) {
	file, err := writePattern()
	if err != nil {
		return err
	}
	if path != "" {
		if err := os.WriteFile(path, file, 0o666); err != nil {
			return err
		}
	}
	// Without fusion, the graph that is printed reads like the definition.
	m, err := minfer.OpenBytes(file, minfer.WithBackends("cpu"), minfer.WithFusion(graph.Fusion{}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	g, err := m.Graph(graph.Params{Tokens: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "A model of the architecture %q in %d bytes. Its graph for one token:\n\n%v\n", m.Info().Architecture, len(file), g)
	if len(prompts) == 0 {
		prompts = defaults
	}
	for _, p := range prompts {
		answer, err := continued(m, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%q goes on with %s\n", p, answer)
	}
	return nil
}

func continued(m *minfer.Model, prompt string) (string, error) {
	s, err := m.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close() // frees the session's part of the cache, which cannot fail
	text := ""
	var finish minfer.FinishReason
	for piece, err := range s.Generate(context.Background(), prompt, minfer.Temperature(0), minfer.MaxTokens(26)) {
		if err != nil {
			return "", err
		}
		text += piece.Text
		finish = piece.Finish
	}
	return fmt.Sprintf("%q (%v)", text, finish), nil
}
