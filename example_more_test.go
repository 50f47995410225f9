package minfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

// say returns the answer to a message.
func say(chat *minfer.Chat, message string, opts ...minfer.GenerateOption) string {
	var text strings.Builder
	for piece, err := range chat.Say(context.Background(), message, append(opts, minfer.Temperature(0))...) {
		if err != nil {
			log.Fatal(err)
		}
		text.WriteString(piece.Text)
	}
	return text.String()
}

// What options change is speed and memory. The answer stays the same, to the last bit of its logits;
// keys and values in F32 and weights that are rounded are the exceptions.
func ExampleOption() {
	logits := func(opts ...minfer.Option) []float32 {
		m, err := minfer.Open("testdata/storyteller-q4_0.gguf", append(opts, minfer.WithBackends("cpu"))...)
		if err != nil {
			log.Fatal(err)
		}
		defer m.Close()
		s, err := m.NewSession()
		if err != nil {
			log.Fatal(err)
		}
		row, err := s.Eval(context.Background(), []minfer.Token{1, 2, 3})
		if err != nil {
			log.Fatal(err)
		}
		return append([]float32(nil), row...)
	}
	var loaded int64
	var splits bytes.Buffer
	plain := logits()
	for _, o := range []struct {
		name   string
		option minfer.Option
	}{
		{"plain Go", minfer.WithInstructions("generic")},
		{"one thread", minfer.WithThreads(1)},
		{"no fused operations", minfer.WithFusion(graph.Fusion{})},
		{"the file read, not mapped", minfer.WithoutMmap()},
		{"weights where they lie in the file", minfer.WithWeightsInPlace()},
		{"a look at the progress", minfer.WithProgress(func(p minfer.Progress) { loaded = p.Done })},
		{"a look at the graphs", minfer.WithGraphTrace(&splits)},
		{"marks for Go's profiler", minfer.WithProfiling()},
		{"another template", minfer.WithChatTemplate("{{ messages }}")},
		{"keys and values in F32", minfer.WithKVType(graph.F32)},
		{"floats rounded, of which there are none", minfer.WithRoundedFloats()},
	} {
		fmt.Printf("%s: %t\n", o.name, sameRow(logits(o.option), plain) == nil)
	}
	fmt.Println(loaded > 1e6, strings.Contains(splits.String(), "cpu"))
	// Output:
	// plain Go: true
	// one thread: true
	// no fused operations: true
	// the file read, not mapped: true
	// weights where they lie in the file: true
	// a look at the progress: true
	// a look at the graphs: true
	// marks for Go's profiler: true
	// another template: true
	// keys and values in F32: false
	// floats rounded, of which there are none: true
	// true true
}

// A conversation can be changed at any place, and goes on from there.
func ExampleChat_SetMessages() {
	m, s := exampleModel()
	defer m.Close()
	chat := s.Chat(minfer.System("Be brief."))
	say(chat, "What is 3 + 4?")
	for range chat.Regenerate(context.Background(), minfer.Temperature(0.8), minfer.Seed(3)) { // another answer
	}
	messages := chat.Messages()
	messages[1].Content = "What is 1 + 2?"
	chat.SetMessages(messages[:2])
	for piece := range chat.Reply(context.Background(), minfer.Temperature(0)) {
		fmt.Print(piece.Text)
	}
	fmt.Println()
	fmt.Println(chat.Session() == s, s.Usage().Cached > 0)
	chat.SetSystem("")
	chat.Clear()
	fmt.Println(len(chat.Messages()))
	// Output:
	// 1 plus 2 is 3.
	// true true
	// 0
}

// A conversation that outgrows its context goes on without its beginning, and says so.
func ExampleDropOldest() {
	m, _ := exampleModel()
	defer m.Close()
	s, err := m.NewSession(minfer.WithContext(80))
	if err != nil {
		log.Fatal(err)
	}
	chat := s.Chat(minfer.DropOldest(20, func(dropped []minfer.Message) {
		fmt.Printf("(%q and %d more messages are forgotten)\n", dropped[0].Content, len(dropped)-1)
	}))
	for _, question := range []string{"What is 3 + 4?", "What colour is the sky?", "Who are you?", "What is 1 + 2?"} {
		fmt.Println(say(chat, question, minfer.MaxTokens(12)))
	}
	// Output:
	// 3 plus 4 is 6.
	// The sky is blue.
	// ("What is 3 + 4?" and 3 more messages are forgotten)
	// I am a storyteller, a very small language model. I
	// 1 plus 2 is 3.
}

// A conversation is left, and taken up where it was, by another process perhaps.
func ExampleModel_RestoreChatFile() {
	folder, err := os.MkdirTemp("", "chat")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	m, s := exampleModel()
	defer m.Close()
	chat := s.Chat()
	say(chat, "Hello")
	file := filepath.Join(folder, "chat")
	if err := chat.SaveFile(file); err != nil {
		log.Fatal(err)
	}

	restored, err := m.RestoreChatFile(file, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(say(restored, "What is 3 + 4?"), restored.Session().Usage().Cached > 0)
	// Output: 3 plus 4 is 7. true
}

func ExampleModel_RestoreChat() {
	m, s := exampleModel()
	defer m.Close()
	var saved bytes.Buffer
	if err := s.Chat(minfer.System("Be brief.")).Save(&saved); err != nil {
		log.Fatal(err)
	}
	chat, err := m.RestoreChat(&saved, []minfer.SessionOption{minfer.WithContext(256)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(chat.Messages()[0].Content, chat.Session().Context())
	// Output: Be brief. 256
}

// Everything about how tokens are chosen, and the probabilities of those that were.
func ExampleWithSampling() {
	m, s := exampleModel()
	defer m.Close()
	p := minfer.DefaultSampling()
	p.Temperature = 0.7
	p.Penalties.Repeat = 1.1
	probable, n := 0, 0
	for piece, err := range s.Generate(context.Background(), "Once upon a time", minfer.WithSampling(p), minfer.TopK(40), minfer.TopP(0.9),
		minfer.MinP(0.05), minfer.Seed(1), minfer.LogProbs(), minfer.MaxTokens(20), minfer.PastEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		if n++; piece.LogProb > -3 {
			probable++
		}
	}
	fmt.Println(n, "tokens, most of them probable:", probable > 10)
	// Output: 20 tokens, most of them probable: true
}

// How probable a text is, and what would have been in the place of each token.
func ExampleSession_ScoreTop() {
	m, s := exampleModel()
	defer m.Close()
	tokens, err := m.Tokenizer().Encode("One, two, three, five", minfer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	logProbs, top, err := s.ScoreTop(context.Background(), tokens, 1)
	if err != nil {
		log.Fatal(err)
	}
	last := len(tokens) - 1
	fmt.Printf("%q is improbable: %t\n", m.Tokenizer().TokenBytes(tokens[last]), logProbs[last] < -3)
	fmt.Printf("%q would be better\n", m.Tokenizer().TokenBytes(top[last][0].Token))
	// Output:
	// " five" is improbable: true
	// " four" would be better
}

// A program that makes the calls of tools by itself. The arguments are held to the schema.
func ExampleHoldToolCalls() {
	m, s := exampleModel()
	defer m.Close()
	type numbers struct {
		A    int    `json:"a"`
		B    int    `json:"b"`
		Unit string `json:"unit" enum:"km"`
	}
	add := minfer.NewTool("add", "Add two lengths.", func(context.Context, numbers) (int, error) { return 0, nil })
	definitions, err := json.Marshal([]json.RawMessage{add.Definition()})
	if err != nil {
		log.Fatal(err)
	}
	prompt, err := m.RenderChat(context.Background(), []minfer.Message{{Role: "user", Content: "What is 120 plus 345?"}}, minfer.Tools(definitions))
	if err != nil {
		log.Fatal(err)
	}
	parser := minfer.NewToolParser(m.ToolFormat(), []string{add.Name()})
	hold := minfer.HoldToolCalls(definitions, prompt.Text, "")
	for piece, err := range s.GenerateTokens(context.Background(), prompt.Tokens, hold, minfer.Temperature(0), minfer.MaxTokens(60)) {
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range parser.Push(piece.Text) {
			if e.Kind == minfer.ToolArguments {
				fmt.Print(e.Text)
			}
		}
	}
	// Output: {"a": 120, "b": 345, "unit": "km"}
}

// Models from a server of one's own, through a client of one's own.
func ExampleWithOllamaBase() {
	asked := func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.URL.Path)
		http.NotFound(w, r)
	}
	server := httptest.NewServer(http.HandlerFunc(asked))
	defer server.Close()
	folder, err := os.MkdirTemp("", "models")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	options := []minfer.FetchOption{
		minfer.WithCacheDir(folder), minfer.WithHTTPClient(server.Client()), minfer.WithHuggingFaceBase(server.URL),
		minfer.WithHuggingFaceToken("secret"), minfer.WithOllamaBase(server.URL), minfer.WithRefresh(),
	}
	for _, ref := range []string{"ollama:story:1b", "hf:owner/repository:model.gguf"} {
		if _, err := minfer.Fetch(context.Background(), ref, options...); err == nil {
			log.Fatal("it should not be there")
		}
	}
	// Output:
	// /v2/library/story/manifests/1b
	// /owner/repository/resolve/main/model.gguf
}

// Vectors of tokens, as the model has them.
func ExampleModel_EmbedTokens() {
	m, _ := exampleModel()
	defer m.Close()
	v, err := m.EmbedTokens(context.Background(), [][]minfer.Token{{1, 2, 3}}, minfer.WithoutNormalization())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(v), "vector of", len(v[0]), "numbers")
	// Output: 1 vector of 256 numbers
}

// The tokenizer of a file whose weights are not needed, or cannot be used.
func ExampleNewTokenizer() {
	f, err := gguf.Open("testdata/storyteller-q4_0.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := minfer.NewTokenizer(f)
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := t.Encode("The brave fox", minfer.EncodeOptions{})
	fmt.Println(len(tokens), err)
	// Output: 3 <nil>
}

// A template may have settings of its own.
func ExampleTemplateVariables() {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithChatTemplate("{% if enable_thinking %}Think: {% endif %}{{ messages[0].content }}"))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	p, err := m.RenderChat(context.Background(), []minfer.Message{{Role: "user", Content: "Hello"}}, minfer.TemplateVariables(json.RawMessage(`{"enable_thinking": true}`)))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Text)
	fmt.Println(m.ChatTemplate()[:20])
	// Output:
	// Think: Hello
	// {% if enable_thinkin
}

// Sessions that share a cache share its memory and its graphs.
func ExampleWithGraphs() {
	m, _ := exampleModel()
	defer m.Close()
	cache, err := m.NewGraphCache(512, minfer.WithGraphs(4))
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	for range 3 {
		s, err := m.NewSession(minfer.WithCache(cache))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := s.Eval(context.Background(), []minfer.Token{1, 2, 3}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Model() == m, s.Cache() == cache)
	}
	fmt.Println(cache.Stats().Graphs <= 4, cache.Stats().Reused > 0)
	// Output:
	// true true
	// true true
	// true true
	// true true
}
