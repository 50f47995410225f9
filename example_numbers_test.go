package minfer_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"math"
	"os"
	"strings"

	"github.com/minfer/minfer"
)

// Answers that repeat what is there already take fewer passes, and are the same.
func ExampleWithPromptLookup() {
	m, s := exampleModel()
	defer m.Close()
	chat := s.Chat()
	for range chat.Say(context.Background(), "Tell me a story about a brave fox.", minfer.Temperature(0), minfer.MaxTokens(40)) {
	}
	for piece, err := range chat.Say(context.Background(), "Count to 12.", minfer.Temperature(0), minfer.WithPromptLookup(8)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	u := s.Usage()
	fmt.Println()
	fmt.Println(u.Accepted <= u.Drafted)
	// Output:
	// One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.
	// true
}

// A smaller model of the same family guesses. Here it is the same one, which is always right.
func ExampleWithDraft() {
	m, s := exampleModel()
	defer m.Close()
	draft, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for piece, err := range s.Chat().Say(context.Background(), "Count to 12.", minfer.Temperature(0), minfer.WithDraft(draft, 8)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	fmt.Println()
	fmt.Println("most were guessed:", 2*s.Usage().Accepted > s.Usage().Generated)
	// Output:
	// One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.
	// most were guessed: true
}

func ExampleModel_Embed() {
	m, _ := exampleModel()
	defer m.Close()
	v, err := m.Embed(context.Background(), []string{"one, two, three", "One, two, three.", "The brave fox went home."}, minfer.WithPooling(minfer.PoolMean))
	if err != nil {
		log.Fatal(err)
	}
	cosine := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	fmt.Println(len(v), "vectors of", len(v[0]), "numbers")
	fmt.Println("numbers are nearer to numbers:", cosine(v[0], v[1]) > cosine(v[0], v[2]))
	// Output:
	// 3 vectors of 256 numbers
	// numbers are nearer to numbers: true
}

func ExampleEstimate() {
	memory, err := minfer.Estimate("testdata/storyteller-q4_0.gguf", 1024, 0, minfer.WithBackends("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	cpu := memory.Devices[0]
	fmt.Println(cpu.Device, "keys and values:", cpu.KV, "bytes")
	fmt.Println("all fits into 16 MB:", memory.Total() < 16<<20)
	// Output:
	// cpu keys and values: 2097152 bytes
	// all fits into 16 MB: true
}

func ExampleModel_Placement() {
	m, _ := exampleModel()
	defer m.Close()
	placement, err := m.Placement()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range placement {
		fmt.Println(d.Device, "has layers", d.Layers, "and", d.Tensors, "tensors; a prompt begins with", d.Prefill[0])
	}
	// Output: cpu has layers [0 1 2 3] and 46 tensors; a prompt begins with {Embed 1}
}

func ExampleWithLogger() {
	plain := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "took", "bytes":
			return slog.Attr{} // what differs from run to run
		}
		return a
	}})
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"), minfer.WithLogger(slog.New(plain)))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	// Output:
	// level=INFO msg="model opened" name=Storyteller architecture=qwen3 parameters=2755328 layers=4 context=1024 devices=cpu
	// level=INFO msg=device device=cpu layers=0-3 tensors=46
}

// The perplexity of a text, for which the model tells how likely it finds every token.
func ExampleSession_Score() {
	m, s := exampleModel()
	defer m.Close()
	perplexity := func(text string) float64 {
		tokens, err := m.Tokenizer().Encode(text, minfer.EncodeOptions{})
		if err != nil {
			log.Fatal(err)
		}
		if err := s.Rewind(0); err != nil {
			log.Fatal(err)
		}
		scores, err := s.Score(context.Background(), tokens)
		if err != nil {
			log.Fatal(err)
		}
		sum := 0.0
		for _, p := range scores[1:] {
			sum += float64(p)
		}
		return math.Exp(-sum / float64(len(scores)-1))
	}
	fmt.Println(perplexity("One, two, three, four, five.") < perplexity("Five two, four. three one,"))
	// Output: true
}

func ExampleTopLogProbs() {
	m, s := exampleModel()
	defer m.Close()
	for piece, err := range s.Chat().Say(context.Background(), "Count to 12.", minfer.Temperature(0), minfer.TopLogProbs(2), minfer.MaxTokens(1)) {
		if err != nil {
			log.Fatal(err)
		}
		for _, top := range piece.Top {
			fmt.Println(top.Token == piece.Token, top.LogProb <= 0)
		}
	}
	// Output:
	// true true
	// false true
}

func ExampleOnPromptProgress() {
	m, _ := exampleModel()
	defer m.Close()
	s, err := m.NewSession(minfer.WithBatch(16))
	if err != nil {
		log.Fatal(err)
	}
	prompt := strings.Repeat("word ", 40)
	for _, err := range s.Generate(context.Background(), prompt, minfer.MaxTokens(1), minfer.OnPromptProgress(func(done, total int) {
		if done == 0 || done == total {
			fmt.Println(done*100/total, "%")
		}
	})) {
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 %
	// 100 %
}

func ExampleModel_CountTokens() {
	m, _ := exampleModel()
	defer m.Close()
	n, err := m.CountTokens(context.Background(), "Tell me a story about a brave fox.")
	if err != nil {
		log.Fatal(err)
	}
	chat, err := m.CountChatTokens(context.Background(), []minfer.Message{{Role: "user", Content: "Tell me a story about a brave fox."}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n < chat)
	// Output: true
}

// The first layers stay on the preferred device, and the others go to the next. Where the CPU is
// the only one, all of them are on it.
func ExampleWithDeviceLayers() {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"), minfer.WithDeviceLayers(3))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	placement, err := m.Placement()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range placement {
		fmt.Println(d.Device, d.Layers)
	}
	// Output: cpu [0 1 2 3]
}
