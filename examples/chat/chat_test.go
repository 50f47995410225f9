package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/gguf"
)

// chat runs the program.
func chat(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, notes bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &notes)
	return out.String(), notes.String(), code
}

// greedy are answers of the storyteller whose every token leads by a clear margin under
// exact arithmetic, so that they are right whatever the device.
type greedy struct{ Name, System, Question, Answer string }

func readGreedy(t *testing.T) []greedy {
	t.Helper()
	data, err := os.ReadFile("testdata/greedy.json")
	if err != nil {
		t.Fatal(err)
	}
	var answers []greedy
	if err := json.Unmarshal(data, &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

func TestQuestions(t *testing.T) {
	speeds := regexp.MustCompile(`(?m)^prompt: \d+ tokens, \d+\.\d tokens/s; answer: \d+ tokens, \d+\.\d tokens/s$`)
	for _, g := range readGreedy(t) {
		args := []string{"-temp", "0", "-system", g.System, g.Question}
		if g.Name == "sum" {
			args = append([]string{"-kv", "f32"}, args...)
		}
		stdout, stderr, code := chat(t, "", args...)
		if stdout != g.Answer+"\n" || code != 0 {
			t.Errorf("%s: answer %q, code %d, want %q", g.Name, stdout, code, g.Answer)
		}
		if !speeds.MatchString(stderr) {
			t.Errorf("%s: no speeds in %q", g.Name, stderr)
		}
	}
}

func TestConversation(t *testing.T) {
	script := strings.Join([]string{
		"/regen",
		"What is 3 + 4?",
		"/regen",
		"",
		"/system Be brief.",
		"/clear",
		"/system",
		"Who are you?",
		"/system -",
		"/system",
		"/clear",
		"Repeat: key fox Rome seven shy Nora\r",
		"/stats",
		"/thoughts",
		"/fold",
		"/save",
		"/nonsense",
		"/help",
		"/exit",
		"What is 1 + 1?",
	}, "\n")
	stdout, stderr, code := chat(t, script, "-temp", "0", "-seed", "7", "-threads", "2")
	want := `3 plus 4 is 7.
3 plus 4 is 7.
I am a storyteller, a very small language model. I can tell stories about animals, count, add small numbers, and say what colour the sky is.
Key fox Rome seven shy Nora.
`
	if stdout != want || code != 0 {
		t.Errorf("answers, code %d:\n%s\nwant:\n%s", code, stdout, want)
	}
	rest := stderr
	for _, note := range []string{
		"You are talking with the storyteller",
		"Hugging Face",
		"[there is no answer yet]",
		"[the system message is set]",
		"[the conversation is forgotten]",
		"[system message: Be brief.]",
		"[the system message is removed]",
		"[there is no system message]",
		"[the conversation is forgotten]",
		"model     Storyteller, qwen3, 2.8 M weights, 2.8 MiB, on cpu\n",
		" of 1024 tokens\n",
		"answers   4\n",
		"sampling  temperature 0, top-k 40, top-p 0.95, min-p 0.05, seed 7\n",
		"[there are no thoughts]",
		"[thoughts are shown]",
		"[there is no file to save to; -session FILE names one]",
		"[/nonsense is no command; /help lists them]",
		help,
	} {
		_, after, found := strings.Cut(rest, note)
		if !found {
			t.Errorf("%q is not where it should be in:\n%s", note, stderr)
			continue
		}
		rest = after
	}
	if strings.Contains(stderr, "\x1b") {
		t.Error("colours without a terminal")
	}
}

func TestTurnsBuildOnEachOther(t *testing.T) {
	stdout, stderr, _ := chat(t, "Hello\nYes please\n/stats\n", "-temp", "0", "-n", "24")
	first, second, _ := strings.Cut(stdout, "\n")
	if !strings.Contains(first, "story about") || len(second) < 60 {
		t.Errorf("an offer and then a story expected, got:\n%s", stdout)
	}
	if !regexp.MustCompile(`last +prompt: \d+ tokens \(and \d\d kept\)`).MatchString(stderr) {
		t.Errorf("the second turn kept nothing of the first:\n%s", stderr)
	}
}

// TestThoughts has the answer begin within thoughts by way of the template.
func TestThoughts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thinking.jinja")
	write(t, path, []byte("{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>{{ '' }}"))
	stdout, stderr, code := chat(t, "", "-template", path, "-temp", "0", "-n", "8", "What is 3 + 4?")
	if strings.TrimSpace(stdout) != "" || code != 0 || strings.HasPrefix(stderr, "prompt:") || !strings.Contains(stderr, "\nprompt:") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestLongMessages(t *testing.T) {
	joined, _, _ := chat(t, "What is \\\n3 + 4?", "-temp", "0")
	argument, _, _ := chat(t, "", "-temp", "0", "What is \n3 + 4?")
	if joined != argument {
		t.Errorf("lines joined by a backslash give %q, the same message as an argument %q", joined, argument)
	}
	path, _, code := chat(t, "/etc/hosts is a file\n", "-temp", "0")
	if path == "" || code != 0 {
		t.Errorf("a message that begins with a path gives %q, code %d", path, code)
	}
}

func TestSeeds(t *testing.T) {
	tell := func(args ...string) string {
		stdout, _, code := chat(t, "Tell me a story about a brave fox.\n/regen\n", append(args, "-temp", "1.5", "-n", "12")...)
		if code != 0 {
			t.Fatalf("code %d", code)
		}
		return stdout
	}
	once, again := tell("-seed", "3"), tell("-seed", "3")
	if once != again {
		t.Errorf("the same seed gives\n%s\nand\n%s", once, again)
	}
	first, second, _ := strings.Cut(strings.TrimSuffix(once, "\n"), "\n")
	if first == second {
		t.Errorf("/regen gives the same answer: %s", first)
	}
	if tell() == tell() {
		t.Error("without a seed, two runs give the same answers")
	}
}

func TestLimits(t *testing.T) {
	stdout, stderr, code := chat(t, "", "-temp", "0", "-n", "5", "Count to 12.")
	if stdout != "One, two, three\n" || code != 0 || !strings.Contains(stderr, "[stopped after 5 tokens, which is -n]") {
		t.Errorf("-n 5: %q, code %d\n%s", stdout, code, stderr)
	}
	stdout, stderr, code = chat(t, "Count to 12.\nWhat is 3 + 4?\n"+strings.Repeat("long ", 40)+"\nWhat is 3 + 4?\n", "-temp", "0", "-ctx", "30")
	if stdout != "One, two, three, four, five, six\n3 plus 4 is 7.\n3 plus 4 is 7.\n" || code != 0 {
		t.Errorf("-ctx 30: %q, code %d", stdout, code)
	}
	for _, note := range []string{
		"[stopped: the context of 30 tokens is full; -ctx makes room for up to 1024]",
		"[the context of 30 tokens is full: the oldest question and its answer are forgotten; -ctx makes room for up to 1024]",
		" tokens and the context holds 30; -ctx makes room for up to 1024]",
	} {
		if !strings.Contains(stderr, note) {
			t.Errorf("%q is not in:\n%s", note, stderr)
		}
	}
}

// TestSession leaves a conversation and takes it up again, by lines and by a question.
func TestSession(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk")
	args := []string{"-temp", "0", "-session", file, "-n", "24"}
	if _, stderr, code := chat(t, "/save\nHello\n/save\n", args...); code != 0 || !strings.Contains(stderr, "[there is nothing new]") || !strings.Contains(stderr, "[saved]") {
		t.Fatalf("code %d: %s", code, stderr)
	}
	together, _, _ := chat(t, "Hello\nYes please\nWhat is 3 + 4?\n", "-temp", "0", "-n", "24")
	second, stderr, code := chat(t, "", append(args, "Yes please")...)
	if code != 0 || !strings.Contains(together, "\n"+second) || !regexp.MustCompile(`prompt: \d+ tokens \(and [1-9]\d* kept\)`).MatchString(stderr) {
		t.Errorf("code %d: %q\n%s", code, second, stderr)
	}
	third, stderr, code := chat(t, "What is 3 + 4?\n/history\n", args...)
	if code != 0 || !strings.HasSuffix(together, third) {
		t.Errorf("code %d: %q", code, third)
	}
	for _, note := range []string{"[goes on with " + file + ": 2 questions so far;", "\nuser: Hello\n", "\nuser: What is 3 + 4?\nassistant: 3 plus 4 is 7.\n"} {
		if !strings.Contains(stderr, note) {
			t.Errorf("%q is not in:\n%s", note, stderr)
		}
	}
	if _, stderr, code := chat(t, "", "-session", file, "-ctx", "20", "Hello"); code != 1 || !strings.Contains(stderr, "for a context of 20") || strings.Count(stderr, "chat: ") != 1 {
		t.Errorf("code %d: %s", code, stderr)
	}
	write(t, file, []byte("nonsense"))
	before, _ := os.ReadFile(file)
	if _, stderr, code := chat(t, "", append(args, "Hello")...); code != 1 || !strings.Contains(stderr, "talk: ") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("a file that is no session was replaced")
	}
}

func TestErrors(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain.txt")
	noTemplate := filepath.Join(folder, "base.gguf")
	thinking := filepath.Join(folder, "thinking.jinja")
	write(t, plain, []byte("This is no model."))
	write(t, noTemplate, without(t, "tokenizer.chat_template"))
	write(t, thinking, []byte(`{{ raise_exception('thinking: ' ~ (enable_thinking is defined) ~ ' ' ~ enable_thinking) }}`))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-m", filepath.Join(folder, "none.gguf"), "Hello"}, "none.gguf: "},
		{[]string{"-m", plain, "Hello"}, "not a GGUF file"},
		{[]string{"-m", noTemplate, "Hello"}, "the model has no chat template"},
		{[]string{"-template", filepath.Join(folder, "none.jinja"), "Hello"}, "none.jinja: "},
		{[]string{"-template", thinking, "Hello"}, "thinking: False "},
		{[]string{"-template", thinking, "-think", "Hello"}, "thinking: True True"},
		{[]string{"-template", thinking, "-think=false", "Hello"}, "thinking: True False"},
		{[]string{"-backends", "abacus", "Hello"}, `"abacus": unknown device`},
		{[]string{"-ctx", "5000", "Hello"}, "5000 tokens, want 1 to the 1024"},
		{[]string{"-ctx", "10", "Hello, and tell me a story."}, "the context holds 10; -ctx makes room"},
		{[]string{"-top-p", "3", "Hello"}, "top-p is 3, want 0 to 1"},
		{[]string{"-temp", "hot", "Hello"}, `"hot"`},
		{[]string{"-seed", "1x", "Hello"}, `"1x"`},
		{[]string{"-n", "-1", "Hello"}, "-n -1: want 1 or more"},
		{[]string{"-kv", "f64", "Hello"}, "-kv f64: want f16 or f32"},
		{[]string{"-nonsense"}, "-nonsense"},
		{[]string{"Hello", "-temp", "0"}, "-temp comes after the question"},
		{[]string{" "}, "the question is empty"},
	} {
		stdout, stderr, code := chat(t, "", test.args...)
		_, after, found := strings.Cut(stderr, "chat: ")
		if stdout != "" || code != 1 || !found || !strings.Contains(after, test.want) || strings.Count(after, "\n") != 1 {
			t.Errorf("%q: code %d, stdout %q, stderr %q, want one line with %q", test.args, code, stdout, stderr, test.want)
		}
	}
}

func TestHelp(t *testing.T) {
	stdout, stderr, code := chat(t, "", "-h")
	if stdout != "" || code != 0 || !strings.Contains(stderr, "  -top-k k\n") {
		t.Errorf("-h: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// interrupter sends the program an interrupt once it has said a word, and goes on when
// that was delivered.
type interrupter struct {
	said      bytes.Buffer
	word      string
	delivered chan os.Signal
}

func (w *interrupter) Write(p []byte) (int, error) {
	n, _ := w.said.Write(p) // it never fails
	if w.word == "" || !strings.Contains(w.said.String(), w.word) {
		return n, nil
	}
	w.word = ""
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(os.Interrupt)
	}
	if err == nil {
		<-w.delivered
	}
	return n, err
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("a process cannot interrupt itself here")
	}
	whole, _, _ := chat(t, "", "-temp", "0", "-n", "40", "Tell me a story about a brave fox.")
	delivered := make(chan os.Signal, 1)
	signal.Notify(delivered, os.Interrupt)
	defer signal.Stop(delivered)

	out := &interrupter{word: "brave fox", delivered: delivered}
	var notes bytes.Buffer
	script := "Tell me a story about a brave fox.\nWhat is 3 + 4?\n"
	if code := run([]string{"-temp", "0", "-n", "40"}, strings.NewReader(script), out, &notes); code != 0 {
		t.Fatalf("code %d: %s", code, notes.String())
	}
	story, after, _ := strings.Cut(out.said.String(), "\n")
	if !strings.HasPrefix(whole, story) || !strings.Contains(story, "brave fox") || len(story) >= len(whole)-1 {
		t.Errorf("interrupted, the answer is %q; alone it is %q", story, whole)
	}
	if after != "3 plus 4 is 7.\n" {
		t.Errorf("the answer after the interrupted one is %q", after)
	}
	if !strings.Contains(notes.String(), "[stopped]") {
		t.Errorf("nothing is said of the interruption:\n%s", notes.String())
	}

	out = &interrupter{word: "brave fox", delivered: delivered}
	code := run([]string{"-temp", "0", "-n", "40", "Tell me a story about a brave fox."}, strings.NewReader(""), out, &notes)
	if code != exitInterrupted || !strings.HasSuffix(out.said.String(), "\n") || out.said.Len() >= len(whole) {
		t.Errorf("an interrupted question: code %d, %q", code, out.said.String())
	}
}

// full is a disk without room.
type full struct{}

var errFull = errors.New("no room")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputThatFails(t *testing.T) {
	var notes bytes.Buffer
	if code := run([]string{"Hello"}, strings.NewReader(""), full{}, &notes); code != 1 || !strings.Contains(notes.String(), "chat: no room") {
		t.Errorf("code %d: %s", code, notes.String())
	}
}

func TestHarmless(t *testing.T) {
	const text = "a\x1b]0;title\x07b\u009b2J\r\n\tcafé 你好"
	if got, want := harmless(text), "a]0;titleb2J\n\tcafé 你好"; got != want {
		t.Errorf("%q becomes %q, want %q", text, got, want)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// without is the storyteller without a key of its metadata.
func without(t *testing.T, key string) []byte {
	t.Helper()
	f, err := gguf.NewBytes(storyteller.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := gguf.NewWriter()
	for _, k := range f.Keys() {
		if v, ok := f.Value(k); ok && k != key {
			w.Set(k, v)
		}
	}
	for _, tensor := range f.Tensors() {
		data, err := f.Data(tensor)
		if err == nil {
			err = w.AddTensor(tensor.Name, tensor.Type, tensor.Dims, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
