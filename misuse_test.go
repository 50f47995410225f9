package minfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer"
)

// promptly runs f, which may neither panic nor hang.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	select {
	case v := <-done:
		if v != nil {
			t.Errorf("%s panics: %v", what, v)
		}
	case <-time.After(5 * time.Minute): // for a busy machine, with the race detector
		stacks := make([]byte, 1<<16)
		t.Fatalf("%s hangs:\n%s", what, stacks[:runtime.Stack(stacks, true)])
	}
}

// errorsOf calls a method with zeros for its arguments, and reads the answer if it gives one. It
// returns the last error, and whether the method has any.
func errorsOf(method reflect.Value) (err error, has bool) {
	typ := method.Type()
	var args []reflect.Value
	for i := range typ.NumIn() {
		if !typ.IsVariadic() || i < typ.NumIn()-1 {
			args = append(args, reflect.Zero(typ.In(i)))
		}
	}
	for _, out := range method.Call(args) {
		switch v := out.Interface().(type) {
		case error:
			err, has = v, true
		case iter.Seq2[minfer.Piece, error]:
			_, err = read(v)
			has = true
		default:
			has = has || out.Type() == reflect.TypeFor[error]()
		}
	}
	return err, has
}

func eachMethod(v any, f func(name string, method reflect.Value)) {
	value := reflect.ValueOf(v)
	for i := range value.NumMethod() {
		f(value.Type().Method(i).Name, value.Method(i))
	}
}

// TestNoHandle uses what was never opened: it is as good as closed.
func TestNoHandle(t *testing.T) {
	for _, v := range []any{
		(*minfer.Model)(nil), &minfer.Model{}, (*minfer.Session)(nil), &minfer.Session{}, (*minfer.GraphCache)(nil), &minfer.GraphCache{}, (*minfer.Chat)(nil), &minfer.Chat{},
	} {
		eachMethod(v, func(name string, method reflect.Value) {
			what := fmt.Sprintf("%T %v: %s", v, reflect.ValueOf(v).IsNil(), name)
			promptly(t, what, func() {
				err, has := errorsOf(method)
				if name == "Close" && err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if has && name != "Close" && !errors.Is(err, minfer.ErrClosed) {
					t.Errorf("%s: error is %v, want ErrClosed", what, err)
				}
			})
		})
	}
	m := openStoryteller(t)
	_, err := m.NewSession(minfer.WithCache(&minfer.GraphCache{}))
	wantError(t, err, minfer.ErrClosed)
	_, err = read(newSession(t, m).Generate(t.Context(), "a", minfer.WithDraft(&minfer.Session{}, 4)))
	wantError(t, err, minfer.ErrClosed)
	for _, c := range []minfer.Conversation{nil, (*minfer.Session)(nil), &minfer.Session{}, (*minfer.Chat)(nil), &minfer.Chat{}} {
		_, err = minfer.Generate[struct{ A bool }](t.Context(), c, "a")
		wantError(t, err, minfer.ErrClosed)
	}
}

// TestNoArguments calls everything with zeros, nil contexts among them.
func TestNoArguments(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	sampler, err := m.NewSampler(minfer.DefaultSampling())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{m.Tokenizer(), sampler, s.Chat(), s.Cache(), s, m, minfer.Tool{}, minfer.ToolFormat(200), minfer.NewToolParser(200, nil)} {
		eachMethod(v, func(name string, method reflect.Value) {
			promptly(t, fmt.Sprintf("%T.%s", v, name), func() { errorsOf(method) })
		})
	}
	// Everything is closed now. A nil context never ends.
	m = openStoryteller(t)
	s = newSession(t, m)
	promptly(t, "a nil context", func() {
		var none context.Context
		row, err := s.Eval(none, []minfer.Token{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		wantRow(t, "with a nil context", row, eval(t, newSession(t, m), 1, 2, 3))
		if _, err := read(s.Generate(none, "Hello", minfer.MaxTokens(2), minfer.WithJSON())); err != nil {
			t.Error(err)
		}
		if _, err := read(s.Chat().Say(none, "Hello", minfer.MaxTokens(2))); err != nil {
			t.Error(err)
		}
		if _, err := m.Embed(none, []string{"Hello"}); err != nil {
			t.Error(err)
		}
		if _, err := m.RenderChat(none, []minfer.Message{{Role: "user"}}); err != nil {
			t.Error(err)
		}
		if _, err := m.Head(none, [][]float32{make([]float32, m.Info().Embedding)}); err != nil {
			t.Error(err)
		}
		if _, err := m.CountTokens(none, "Hello"); err != nil {
			t.Error(err)
		}
		if _, err := m.Head(none, [][]float32{make([]float32, m.Info().Embedding)}); err != nil {
			t.Error(err)
		}
		if _, err := minfer.Generate[struct{ A bool }](none, s, "Hello"); err != nil {
			t.Error(err)
		}
	})
}

// TestAbsurdSettings generates with values that make no sense. They are refused, or do no harm.
func TestAbsurdSettings(t *testing.T) {
	m := openStoryteller(t)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	sampling := func(change func(*minfer.Sampling)) minfer.GenerateOption {
		p := minfer.DefaultSampling()
		change(&p)
		return minfer.WithSampling(p)
	}
	for name, c := range map[string]struct {
		option  minfer.GenerateOption
		refused bool
	}{
		"no option":              {nil, false},
		"temperature NaN":        {minfer.Temperature(nan), true},
		"temperature infinite":   {minfer.Temperature(inf), true},
		"temperature negative":   {minfer.Temperature(-1), true},
		"temperature subnormal":  {minfer.Temperature(1e-45), false},
		"top-k negative":         {minfer.TopK(-1), true},
		"top-k huge":             {minfer.TopK(math.MaxInt), false},
		"top-p NaN":              {minfer.TopP(nan), true},
		"top-p over 1":           {minfer.TopP(2), true},
		"min-p NaN":              {minfer.MinP(nan), true},
		"max tokens negative":    {minfer.MaxTokens(-1), true},
		"max tokens huge":        {minfer.MaxTokens(math.MaxInt), false},
		"top log-probs negative": {minfer.TopLogProbs(-1), true},
		"top log-probs huge":     {minfer.TopLogProbs(math.MaxInt), false},
		"empty stop":             {minfer.Stop(""), true},
		"huge stop":              {minfer.Stop(strings.Repeat("a", 1<<20)), true},
		"stop of no UTF-8":       {minfer.Stop("\xff\xfe"), false},
		"bias out of range":      {sampling(func(p *minfer.Sampling) { p.LogitBias = map[int32]float32{-1: 1, math.MaxInt32: 2} }), true},
		"bias NaN":               {sampling(func(p *minfer.Sampling) { p.LogitBias = map[int32]float32{1: nan} }), true},
		"penalty NaN":            {sampling(func(p *minfer.Sampling) { p.Penalties.Repeat = nan }), true},
		"penalty window":         {sampling(func(p *minfer.Sampling) { p.Penalties.LastN = math.MinInt }), true},
		"guess nothing":          {minfer.WithPromptLookup(0), true},
		"guess much":             {minfer.WithPromptLookup(math.MaxInt), true},
		"no draft":               {minfer.WithDraft(nil, 4), true},
		"no schema":              {minfer.WithJSONSchema(nil), true},
		"no grammar":             {minfer.WithGrammar(""), true},
		"grammar of no UTF-8":    {minfer.WithGrammar("root ::= \"\xff\""), true},
		"regexp of no UTF-8":     {minfer.WithRegexp("\xff"), true},
		"empty regexp":           {minfer.WithRegexp(""), false},
		"no progress":            {minfer.OnPromptProgress(nil), false},
	} {
		promptly(t, name, func() {
			s := newSession(t, m, minfer.WithContext(64))
			answer, err := read(s.Generate(t.Context(), "Hello", c.option, minfer.PastEnd()))
			if c.refused {
				if !errors.Is(err, minfer.ErrOption) || s.Len() != 0 {
					t.Errorf("%s: error is %v after %d tokens, want ErrOption at once", name, err, s.Len())
				}
			} else if err != nil || answer.finish == minfer.NotFinished {
				t.Errorf("%s: finished for %q, error %v", name, answer.finish, err)
			}
		})
	}
	for name, prompt := range map[string]string{"empty": "", "no UTF-8": "\xff\xfe\xed\xa0\x80", "zeros": "\x00\x00", "a cut character": "\xf0\x9f"} {
		promptly(t, name, func() {
			if answer, err := read(newSession(t, m).Generate(t.Context(), prompt, minfer.MaxTokens(3), minfer.PastEnd())); prompt != "" && (err != nil || len(answer.tokens) != 3) {
				t.Errorf("%s: %d tokens and %v", name, len(answer.tokens), err)
			}
		})
	}
}

// TestCloseFromWithin closes things from functions that their own calls call. That neither hangs
// nor leaves anything behind.
func TestCloseFromWithin(t *testing.T) {
	for _, what := range []string{"session", "cache", "model"} {
		for name, call := range map[string]func(s *minfer.Session, shut func()) error{
			"prompt progress": func(s *minfer.Session, shut func()) error {
				_, err := read(s.Generate(context.Background(), "Hello", minfer.OnPromptProgress(func(int, int) { shut() })))
				return err
			},
			"loop body": func(s *minfer.Session, shut func()) (err error) {
				for _, err = range s.Generate(context.Background(), "Hello") {
					shut()
				}
				return err
			},
			"writer": func(s *minfer.Session, shut func()) error {
				eval(t, s, someTokens(s.Model(), 200, 0)...)
				return s.Save(writerFunc(func(p []byte) (int, error) { shut(); return len(p), nil }))
			},
			"tool": func(s *minfer.Session, shut func()) error {
				tool := minfer.NewTool("get_time", "Get the current time.", func(context.Context, struct{}) (string, error) { shut(); return "12:34", nil })
				_, _, _, err := hear(s.Chat(minfer.WithTools(tool)).Say(context.Background(), "What time is it?", minfer.Temperature(0)))
				return err
			},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				m := openStoryteller(t)
				cache := newCache(t, m, 512)
				s := newSession(t, m, minfer.WithCache(cache))
				shut := map[string]func() error{"session": s.Close, "cache": cache.Close, "model": m.Close}[what]
				promptly(t, "closing", func() {
					err := call(s, func() {
						if err := shut(); err != nil {
							t.Error(err)
						}
					})
					if !errors.Is(err, minfer.ErrClosed) {
						t.Errorf("error is %v, want ErrClosed", err)
					}
					if got := cache.Stats(); what == "session" && got.FreeCells != got.Cells {
						t.Errorf("%d of %d cells are free", got.FreeCells, got.Cells)
					}
				})
				wantAllClosed(t, m, s)
			})
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error)            { return f(p) }
func (f readerFunc) ReadAt(p []byte, _ int64) (int, error) { return f(p) }

type handler struct{ slog.Handler }

func (handler) Enabled(context.Context, slog.Level) bool { panic(errHost) }

var errHost = errors.New("the host's own fault")

// TestHostPanics has functions of the host panic. The call that called them says so, and whatever
// it was goes on.
func TestHostPanics(t *testing.T) {
	m := openStoryteller(t)
	data := readFile(t, storyteller)
	snapshot, _ := saved(t, m)
	s := newSession(t, m)
	want := eval(t, s, someTokens(m, 20, 0)...)
	goroutines := runtime.NumGoroutine()
	for name, call := range map[string]func() error{
		"progress of opening": func() error {
			_, err := minfer.OpenBytes(data, minfer.WithProgress(func(minfer.Progress) { panic(errHost) }))
			return err
		},
		"reader of a model": func() error {
			_, err := minfer.OpenReader(readerFunc(func([]byte) (int, error) { panic(errHost) }), 1000)
			return err
		},
		"logger": func() error {
			_, err := minfer.OpenBytes(data, minfer.WithLogger(slog.New(handler{})))
			return err
		},
		"trace": func() error {
			_, err := minfer.OpenBytes(data, minfer.WithGraphTrace(writerFunc(func([]byte) (int, error) { panic(errHost) })))
			return err
		},
		"progress of a prompt": func() error {
			_, err := read(s.GenerateTokens(t.Context(), []minfer.Token{1}, minfer.OnPromptProgress(func(int, int) { panic(errHost) })))
			return err
		},
		"writer": func() error { return s.Save(writerFunc(func([]byte) (int, error) { panic(errHost) })) },
		"reader": func() error {
			n := 0
			_, err := m.Restore(readerFunc(func(p []byte) (int, error) {
				if n > 500 {
					panic(errHost)
				}
				c := copy(p[:100], snapshot[n:])
				n += c
				return c, nil
			}))
			return err
		},
		"tool": func() (err error) {
			tool := minfer.NewTool("get_time", "Get the current time.", func(context.Context, struct{}) (string, error) { panic(errHost) })
			chat := newSession(t, m).Chat(minfer.WithTools(tool))
			for p, e := range chat.Say(context.Background(), "What time is it?", minfer.Temperature(0), minfer.MaxTokens(100)) {
				if e != nil {
					t.Error(e)
				}
				if d := p.ToolCall; d != nil && d.Done {
					err = d.Err
					if d.Result != "error: the tool failed" {
						t.Errorf("the model is told %q", d.Result)
					}
				}
			}
			return err
		},
	} {
		promptly(t, name, func() {
			var panicked *minfer.PanicError
			if err := call(); !errors.As(err, &panicked) || !errors.Is(err, errHost) || !strings.Contains(string(panicked.Stack), "misuse_test.go") {
				t.Errorf("%s: error is %v, want a *PanicError", name, err)
			}
		})
	}
	wantRow(t, "afterwards", eval(t, s), want)
	// A panic in the loop's body is the body's caller's, and leaves the session free.
	func() {
		defer func() {
			if v := recover(); v != any(errHost) {
				t.Errorf("recovered %v", v)
			}
		}()
		for range s.GenerateTokens(t.Context(), []minfer.Token{1}) {
			panic(errHost)
		}
	}()
	if s.Len() != 22 {
		t.Errorf("%d tokens, want 22", s.Len())
	}
	for range 200 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
}

// TestReadersThatLie reads from readers that claim to have read what they have not.
func TestReadersThatLie(t *testing.T) {
	m := openStoryteller(t)
	for _, n := range []int{-1, math.MinInt, math.MaxInt, 1 << 40 & math.MaxInt} {
		promptly(t, fmt.Sprint(n), func() {
			lie := readerFunc(func([]byte) (int, error) { return n, nil })
			if _, err := m.Restore(lie); err == nil {
				t.Error("restored from nothing")
			}
			if _, err := minfer.OpenReader(lie, 1<<20); err == nil {
				t.Error("opened nothing")
			}
			if err := newSession(t, m).Save(writerFunc(func([]byte) (int, error) { return n, nil })); err == nil && n < 0 {
				t.Error("saved to nowhere")
			}
		})
	}
	for _, size := range []int64{-1, math.MinInt64, 0, math.MaxInt64} {
		promptly(t, fmt.Sprint(size), func() {
			if _, err := minfer.OpenReader(bytes.NewReader(nil), size); err == nil {
				t.Errorf("a file of %d bytes was opened", size)
			}
		})
	}
	promptly(t, "nil", func() {
		if _, err := minfer.OpenReader(nil, 100); err == nil {
			t.Error("no reader was opened")
		}
		if _, err := m.Restore(nil); err == nil {
			t.Error("no reader was restored from")
		}
		if err := newSession(t, m).Save(nil); err == nil {
			t.Error("saved to no writer")
		}
	})
}

// TestChatChangedWithin changes a conversation, and talks in it, in the body of a loop over one of
// its answers.
func TestChatChangedWithin(t *testing.T) {
	m := openStoryteller(t)
	tools := minfer.WithTools(theTools()...)
	for name, change := range map[string]func(*minfer.Chat){
		"clear":    (*minfer.Chat).Clear,
		"empty":    func(c *minfer.Chat) { c.SetMessages(nil) },
		"replace":  func(c *minfer.Chat) { c.SetMessages([]minfer.Message{{Role: "user", Content: "Hi"}}) },
		"system":   func(c *minfer.Chat) { c.SetSystem("Be brief.") },
		"talk":     func(c *minfer.Chat) { read(c.Say(context.Background(), "Hi", minfer.MaxTokens(2))) },
		"fail":     func(c *minfer.Chat) { read(c.Say(context.Background(), "Hi", minfer.Temperature(-1))) },
		"too long": func(c *minfer.Chat) { read(c.Say(context.Background(), strings.Repeat("long ", 2000))) },
	} {
		promptly(t, name, func() {
			for at := range 8 {
				s := newSession(t, m)
				chat := s.Chat(tools, minfer.System("You are kind."))
				for _, question := range []string{"What time is it?", "Hello", "What time is it?"} {
					n := 0
					for _, err := range chat.Say(t.Context(), question, minfer.Temperature(0), minfer.MaxTokens(40)) {
						if n%8 == at || err != nil {
							change(chat)
						}
						n++
					}
				}
				for range chat.Say(cancelled(t), "Hello") {
					change(chat)
				}
				for range chat.Regenerate(cancelled(t)) {
					change(chat)
				}
				// Whatever happened, what is said now is what a new session says.
				chat.SetMessages(nil)
				got, err := read(chat.Say(t.Context(), "Hello", minfer.Temperature(0), minfer.MaxTokens(10)))
				if err != nil {
					t.Fatalf("%s %d: %v", name, at, err)
				}
				want := mustRead(t, newSession(t, m).Chat(tools).Say(t.Context(), "Hello", minfer.Temperature(0), minfer.MaxTokens(10)))
				if got.text != want.text {
					t.Errorf("%s %d: %q is said, want %q", name, at, got.text, want.text)
				}
			}
		})
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
