package minfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

// A program that opens a model and streams an answer.
func Example() {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for piece, err := range s.Chat().Say(context.Background(), "Count to 12.", minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	// Output: One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.
}

// exampleModel opens the model of the examples, which are about something else.
func exampleModel() (*minfer.Model, *minfer.Session) {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	return m, s
}

func ExampleOpen() {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"), minfer.WithThreads(2))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	info := m.Info()
	fmt.Println(info.Name, info.Architecture, info.Vocab, info.ContextLength, info.Devices)
	// Output: Storyteller qwen3 1536 1024 [cpu]
}

// A file that is no model, and a device that this program was built without.
func ExampleOpen_errors() {
	_, err := minfer.Open("testdata/README.md")
	fmt.Println(errors.Is(err, minfer.ErrNotGGUF))
	_, err = minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cuda", "cpu"))
	fmt.Println(errors.Is(err, minfer.ErrBackendNotLinked))
	// Output:
	// true
	// true
}

// A model that is part of the program, as by go:embed.
func ExampleOpenBytes() {
	data, err := os.ReadFile("testdata/storyteller-q4_0.gguf")
	if err != nil {
		log.Fatal(err)
	}
	m, err := minfer.OpenBytes(data)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Info().Layers, "layers")
	// Output: 4 layers
}

func ExampleOpenReader() {
	data, err := os.ReadFile("testdata/storyteller-q4_0.gguf")
	if err != nil {
		log.Fatal(err)
	}
	m, err := minfer.OpenReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Info().Embedding, "features")
	// Output: 256 features
}

// Sessions hold as many tokens as they are made for.
func ExampleModel_NewSession() {
	m, _ := exampleModel()
	defer m.Close()
	s, err := m.NewSession(minfer.WithContext(8))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	_, err = s.Eval(context.Background(), make([]minfer.Token, 9))
	var full *minfer.ContextError
	if errors.As(err, &full) {
		fmt.Printf("%d tokens and %d more are over %d\n", full.Have, full.More, full.Context)
	}
	// Output: 0 tokens and 9 more are over 8
}

// A raw prompt that holds special tokens, which only a program's own prompts should.
func ExampleSession_Generate() {
	m, s := exampleModel()
	defer m.Close()
	prompt := "<|im_start|>user\nTell me a story about a brave fox.<|im_end|>\n<|im_start|>assistant\n"
	var last minfer.Piece
	for piece, err := range s.Generate(context.Background(), prompt, minfer.ParseSpecial(), minfer.Temperature(0), minfer.Stop("."), minfer.MaxTokens(50)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
		last = piece
	}
	fmt.Printf("\nended by: %v\n", last.Finish)
	u := s.Usage()
	fmt.Println(u.Prompt, "tokens of the prompt were evaluated,", u.Cached, "had been before")
	// Output:
	// There once was a brave fox who lived in a dark forest
	// ended by: stop
	// 22 tokens of the prompt were evaluated, 0 had been before
}

func ExampleSession_GenerateTokens() {
	m, s := exampleModel()
	defer m.Close()
	prompt, err := m.RenderChat(context.Background(), []minfer.Message{{Role: "user", Content: "What colour is the sky?"}})
	if err != nil {
		log.Fatal(err)
	}
	for piece, err := range s.GenerateTokens(context.Background(), prompt.Tokens, minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	// Output: The sky is blue.
}

// A conversation with a system message. Each turn evaluates what is new.
func ExampleSession_Chat() {
	m, s := exampleModel()
	defer m.Close()
	chat := s.Chat(minfer.System("Be brief."))
	for _, text := range []string{"Repeat: key fox Rome", "Count to 3."} {
		for piece, err := range chat.Say(context.Background(), text, minfer.Temperature(0)) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(piece.Text)
		}
		fmt.Println()
	}
	fmt.Println(len(chat.Messages()), "messages; part of the last prompt was cached:", s.Usage().Cached > 0)
	// Output:
	// Key fox Rome.
	// One, two, three.
	// 5 messages; part of the last prompt was cached: true
}

// A model that is offered a tool answers with a call of it.
func ExampleTools() {
	m, s := exampleModel()
	defer m.Close()
	tools := json.RawMessage(`[{"type": "function", "function": {"name": "get_weather", "description": "Get the weather",
		"parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]`)
	chat := s.Chat(minfer.Tools(tools))
	for piece, err := range chat.Say(context.Background(), "What is the weather in Lisbon?", minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	// Output:
	// <tool_call>
	// {"name": "get_weather", "arguments": {"city": "Lisbon"}}
	// </tool_call>
}

func ExampleModel_RenderChat() {
	m, _ := exampleModel()
	defer m.Close()
	p, err := m.RenderChat(context.Background(), []minfer.Message{{Role: "user", Content: "Hello"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n%d tokens\n", p.Text, len(p.Tokens))
	// Output:
	// "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
	// 14 tokens
}

func ExampleModel_Tokenizer() {
	m, _ := exampleModel()
	defer m.Close()
	tok := m.Tokenizer()
	tokens, err := tok.Encode("A brave fox.", minfer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tokens {
		fmt.Printf("%q ", tok.TokenBytes(t))
	}
	// Output: "A" " brave" " fox" "."
}

// Tokens in, logits out: generating by hand.
func ExampleSession_Eval() {
	m, s := exampleModel()
	defer m.Close()
	ctx := context.Background()
	prompt, err := m.RenderChat(ctx, []minfer.Message{{Role: "user", Content: "What colour is the sky?"}})
	if err != nil {
		log.Fatal(err)
	}
	settings := minfer.DefaultSampling()
	settings.Temperature = 0
	sampler, err := m.NewSampler(settings)
	if err != nil {
		log.Fatal(err)
	}
	var answer []minfer.Token
	next := prompt.Tokens
	for {
		logits, err := s.Eval(ctx, next)
		if err != nil {
			log.Fatal(err)
		}
		token, err := sampler.Sample(logits)
		if err != nil {
			log.Fatal(err)
		}
		if m.Tokenizer().IsEndOfGeneration(token.ID) {
			break
		}
		sampler.Accept(token.ID)
		answer = append(answer, token.ID)
		next = answer[len(answer)-1:]
	}
	fmt.Println(m.Tokenizer().Decode(answer, minfer.DecodeOptions{}))
	// Output: The sky is blue.
}

// The logits after every token of a text say how likely the text is.
func ExampleSession_EvalAll() {
	m, s := exampleModel()
	defer m.Close()
	tokens, err := m.Tokenizer().Encode("There once was a brave fox", minfer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	rows, err := s.EvalAll(context.Background(), tokens)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rows) == len(tokens), len(rows[0]))
	// Output: true 1536
}

// Two continuations of one beginning, which is evaluated once.
func ExampleSession_Fork() {
	m, s := exampleModel()
	defer m.Close()
	ctx := context.Background()
	if _, err := s.Eval(ctx, []minfer.Token{10, 11, 12}); err != nil {
		log.Fatal(err)
	}
	f, err := s.Fork()
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := s.Eval(ctx, []minfer.Token{20}); err != nil {
		log.Fatal(err)
	}
	if _, err := f.Eval(ctx, []minfer.Token{30}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Tokens(), f.Tokens())
	// Output: [10 11 12 20] [10 11 12 30]
}

func ExampleSession_Rewind() {
	m, s := exampleModel()
	defer m.Close()
	if _, err := s.Eval(context.Background(), []minfer.Token{10, 11, 12}); err != nil {
		log.Fatal(err)
	}
	if err := s.Rewind(1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Tokens())
	// Output: [10]
}

// A prompt that begins like the one before is evaluated from where it differs.
func ExampleSession_SetTokens() {
	m, s := exampleModel()
	defer m.Close()
	for _, tokens := range [][]minfer.Token{{1, 2, 3, 4, 5}, {1, 2, 3, 9}, {1, 2, 3, 9}} {
		kept, err := s.SetTokens(context.Background(), tokens)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("kept", kept, "of", len(tokens))
	}
	// Output:
	// kept 0 of 5
	// kept 3 of 4
	// kept 3 of 4
}

func ExampleSession_Save() {
	m, s := exampleModel()
	defer m.Close()
	if _, err := s.Eval(context.Background(), []minfer.Token{10, 11, 12}); err != nil {
		log.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(&saved); err != nil {
		log.Fatal(err)
	}
	restored, err := m.Restore(&saved)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	fmt.Println(restored.Tokens())
	// Output: [10 11 12]
}

func ExampleSession_SaveFile() {
	m, s := exampleModel()
	defer m.Close()
	dir, err := os.MkdirTemp("", "minfer")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "session")
	if err := s.SaveFile(path); err != nil {
		log.Fatal(err)
	}
	restored, err := m.RestoreFile(path)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	fmt.Println(restored.Len(), "tokens")
	// Output: 0 tokens
}

// A session that is saved by one model cannot be restored by another, or when damaged.
func ExampleModel_Restore() {
	m, _ := exampleModel()
	defer m.Close()
	_, err := m.Restore(strings.NewReader("something else"))
	fmt.Println(err)
	fmt.Println(errors.Is(err, minfer.ErrSnapshot))
	// Output:
	// minfer: saved session cannot be restored: it is no saved session
	// true
}

// Sessions that share a cache share its memory, and here their forward passes as well.
func ExampleModel_NewGraphCache() {
	m, _ := exampleModel()
	defer m.Close()
	cache, err := m.NewGraphCache(256, minfer.WithBatching(true))
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	for range 2 {
		s, err := m.NewSession(minfer.WithCache(cache))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := s.Eval(context.Background(), []minfer.Token{1, 2, 3}); err != nil {
			log.Fatal(err)
		}
	}
	stats := cache.Stats()
	fmt.Println(stats.FreeCells, "of", stats.Cells, "cells are free")
	// Output: 224 of 256 cells are free
}

func ExampleModel_NewSampler() {
	m, _ := exampleModel()
	defer m.Close()
	settings := minfer.DefaultSampling()
	settings.Temperature = -1
	_, err := m.NewSampler(settings)
	fmt.Println(errors.Is(err, minfer.ErrOption))
	// Output: true
}

// The graph of one token, as it runs.
func ExampleModel_Graph() {
	m, _ := exampleModel()
	defer m.Close()
	g, err := m.Graph(graph.Params{Tokens: 1, Outputs: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(g.Params.Phase, g.Nodes[g.Outputs[0]].Shape)
	// Output: decode [1536]
}
