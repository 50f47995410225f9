package reasoning_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer/internal/reasoning"
)

// split parts an answer that comes in pieces of size bytes.
func split(prompt, text string, size int) (thoughts, answer string) {
	s := reasoning.New(prompt)
	for i := 0; i < len(text); i += size {
		t, a := s.Push(text[i:min(i+size, len(text))])
		thoughts, answer = thoughts+t, answer+a
	}
	t, a := s.Finish()
	return thoughts + t, answer + a
}

var answers = []struct{ prompt, text, thoughts, answer string }{
	{"", "Hello.", "", "Hello."},
	{"", "", "", ""},
	{"", "<think>\nHm. So?\n</think>\n\nHello.\n", "Hm. So?", "Hello.\n"},
	{"", "\n<think>\n\n</think>\n\nHello.", "", "Hello."},
	{"", "<think>Hm </thin k> so", "Hm </thin k> so", ""},
	{"", "<thin", "", "<thin"},
	{"", " <thinner>", "", " <thinner>"},
	{"", "It is <think>no</think>", "", "It is <think>no</think>"},
	{"<assistant>\n<think>\n", "\nHm.</think>Hello.", "Hm.", "Hello."},
	{"<assistant><think>", "</think>Hello.", "", "Hello."},
	{"<assistant><think>\n\n</think>\n\n", "Hello.", "", "Hello."},
	{"<think>", "Hm. </think", "Hm. </think", ""},
	{"<think>", "a </think>b</think>", "a", "b</think>"},
}

func TestSplitter(t *testing.T) {
	for _, c := range answers {
		for _, size := range []int{1, 2, 5, 100} {
			if thoughts, answer := split(c.prompt, c.text, size); thoughts != c.thoughts || answer != c.answer {
				t.Errorf("%q %q in pieces of %d: %q %q, want %q %q", c.prompt, c.text, size, thoughts, answer, c.thoughts, c.answer)
			}
		}
	}
}

func TestNothingIsHeld(t *testing.T) {
	s := reasoning.New("<think>")
	for _, piece := range []string{"a", " b", " < c"} {
		if thoughts, _ := s.Push(piece); thoughts != piece || !s.Thinking() {
			t.Errorf("%q comes as %q", piece, thoughts)
		}
	}
	s.Push("</think>")
	if _, answer := s.Push("d "); answer != "d " || s.Thinking() {
		t.Errorf("the answer comes as %q", answer)
	}
}

// However an answer is cut into pieces, its parts are the same, and hold what it holds but
// marks and white space.
func FuzzSplitter(f *testing.F) {
	for _, c := range answers {
		f.Add(c.prompt, c.text, uint8(2))
	}
	bare := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")
	f.Fuzz(func(t *testing.T, prompt, text string, size uint8) {
		thoughts, answer := split(prompt, text, len(text)+1)
		if a, b := split(prompt, text, 1+int(size)); a != thoughts || b != answer {
			t.Errorf("%q: %q %q at once, %q %q in pieces", text, thoughts, answer, a, b)
		}
		all, parts := bare.Replace(text), bare.Replace(thoughts+answer)
		if lost := len(all) - len(parts); lost != 0 && lost != len(reasoning.Close) && lost != len(reasoning.Open) && lost != len(reasoning.Open+reasoning.Close) {
			t.Errorf("%q: %q %q", text, thoughts, answer)
		}
	})
}

func Example() {
	s := reasoning.New("<|im_start|>assistant\n")
	for _, piece := range []string{"<th", "ink>\nEasy", ".\n</think>", "\n\n", "Blue", "."} {
		thoughts, answer := s.Push(piece)
		fmt.Printf("%q %q\n", thoughts, answer)
	}
	// Output:
	// "" ""
	// "Easy" ""
	// "." ""
	// "" ""
	// "" "Blue"
	// "" "."
}
