package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minfer/minfer"
)

// endless is a request whose answer goes on until it is stopped or the context is full.
func (s *testServer) endless(stream bool, prompt string) string {
	tokenizer := s.model.Tokenizer()
	bias := map[string]int{}
	for _, t := range tokenizer.EndOfGeneration() {
		bias[fmt.Sprint(t)] = -100
	}
	body, _ := json.Marshal(map[string]any{
		"messages": []any{map[string]string{"role": "user", "content": prompt}},
		"stream":   stream, "max_tokens": 100000, "logit_bias": bias,
	})
	return string(body)
}

// TestClientsGoAway: a client that drops its connection, while its prompt is read or in the
// middle of its answer, frees the slot at once.
//
// Case B30.
func TestClientsGoAway(t *testing.T) {
	s := startServer(t, "-slots", "1", "-batch", "16")
	want := s.ask(t, "What is 3 + 4?")
	long := strings.Repeat("Tell me a story about a brave fox. ", 80)
	s.client.CloseIdleConnections()
	before := goroutines()
	for i := range 50 {
		stream, prompt := i%2 == 0, "Count to 12."
		inPrompt := i%4 >= 2
		if inPrompt {
			prompt = long
		}
		s.goAway(t, s.endless(stream, prompt), stream && !inPrompt)
		s.idle(t)
		if i%10 == 0 {
			if got := s.ask(t, "What is 3 + 4?"); got != want {
				t.Fatalf("after %d clients went away: %q, want %q", i+1, got, want)
			}
		}
	}
	if got := s.ask(t, "What is 3 + 4?"); got != want {
		t.Errorf("in the end: %q, want %q", got, want)
	}
	s.client.CloseIdleConnections()
	for until := time.Now().Add(5 * time.Second); goroutines() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, and %d before", goroutines(), before)
		}
	}
}

func goroutines() int { return runtime.NumGoroutine() }

// goAway sends a request and drops the connection: after three pieces of the answer, or once
// the work has begun.
func (s *testServer) goAway(t *testing.T, body string, read bool) {
	t.Helper()
	ctx, drop := context.WithCancel(context.Background())
	defer drop()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	done := make(chan error, 1)
	go func() {
		response, err := client.Do(r)
		if err == nil {
			defer response.Body.Close()
			lines := bufio.NewScanner(response.Body)
			for n := 0; read && n < 3 && lines.Scan(); {
				if strings.Contains(lines.Text(), `"content":"`) {
					n++
				}
			}
			if read {
				drop()
			}
			_, err = io.Copy(io.Discard, response.Body)
		}
		done <- err
	}()
	if !read {
		for busy := 0; busy == 0; busy, _ = s.pool.counts() {
			time.Sleep(100 * time.Microsecond)
		}
		drop()
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the answer ended before the client went away: %v", err)
	}
}

// TestWaitingClientsGoAway: those in line leave it.
func TestWaitingClientsGoAway(t *testing.T) {
	s := startServer(t, "-slots", "1", "-queue", "2")
	ctx, drop := context.WithCancel(context.Background())
	defer drop()
	var wait sync.WaitGroup
	send := func() {
		wait.Add(1)
		go func() {
			defer wait.Done()
			r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions", strings.NewReader(s.endless(true, "Count to 12.")))
			if response, err := s.client.Do(r); err == nil {
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
	}
	for i := range 3 {
		send()
		for {
			if busy, waiting := s.pool.counts(); busy+waiting == i+1 {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	status, body := s.do(t, "POST", "/v1/chat/completions", hello(`"n": 1`))
	if e := apiErrorOf(t, body); status != 429 || e.Type != overloaded {
		t.Errorf("a third in line: %d %s", status, body)
	}
	drop()
	wait.Wait()
	s.idle(t)
	if got := s.ask(t, "What is 3 + 4?"); got != "3 plus 4 is 7." {
		t.Errorf("%q", got)
	}
}

// pipes is a listener whose connections buffer nothing.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestSlowReaders: a client that does not read its answer loses it, and frees the slot.
func TestSlowReaders(t *testing.T) {
	s := startServer(t, "-slots", "1", "-patience", "50ms")
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	web := &http.Server{Handler: s.handler()}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	ours, theirs := net.Pipe()
	defer ours.Close()
	listener.conns <- theirs
	body := s.endless(true, "Count to 12.")
	fmt.Fprintf(ours, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := ours.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	s.idle(t)
	if err := web.Close(); err != nil {
		t.Error(err)
	}
	<-served
}

// TestConcurrentRequests mixes requests of all kinds; every answer is what it would be alone.
func TestConcurrentRequests(t *testing.T) {
	for _, batching := range []string{"-batching=true", "-batching=false"} {
		s := startServer(t, "-slots", "3", "-ctx", "256", "-batch", "32", batching)
		bodies := []string{
			`{"messages": [{"role": "user", "content": "Count to 12."}], "n": 2, "temperature": 0.9, "seed": 5, "max_tokens": 20}`,
			`{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "logprobs": true, "top_logprobs": 2}`,
			`{"messages": [{"role": "user", "content": "Tell me a story about a brave fox."}], "temperature": 1, "seed": 7, "max_tokens": 30}`,
			`{"messages": [{"role": "user", "content": "` + strings.Repeat("Tell me a story. ", 12) + `"}], "max_tokens": 10}`,
		}
		want := make([]string, len(bodies))
		for i, body := range bodies {
			want[i] = s.content(t, body)
		}
		var wait sync.WaitGroup
		for i := range 12 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				if got := s.content(t, bodies[i%len(bodies)]); got != want[i%len(bodies)] {
					t.Errorf("%s: at once\n%s\nalone\n%s", bodies[i%len(bodies)], got, want[i%len(bodies)])
				}
				if i%6 == 0 {
					s.do(t, "GET", "/metrics", "")
					s.do(t, "POST", "/v1/chat/completions", "{")
				}
			}()
		}
		wait.Wait()
		s.idle(t)
	}
}

// content is what an answer says, without what differs from one answer to the next.
func (s *testServer) content(t testing.TB, body string) string {
	status, answer := s.do(t, "POST", "/v1/chat/completions", body)
	var out chatCompletion
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 200 {
		t.Errorf("%d %v: %s", status, err, answer)
	}
	choices, _ := json.Marshal(out.Choices)
	return string(choices)
}

// TestSlotsAreChosen: a conversation finds what is kept of it, however many others there were in
// between, and a prompt that only begins like another conversation does not cost that one.
func TestSlotsAreChosen(t *testing.T) {
	s := startServer(t, "-slots", "3")
	usage := func(messages string) (prompt, cached int) {
		t.Helper()
		_, answer := s.do(t, "POST", "/v1/chat/completions", `{"max_tokens": 8, "messages": `+messages+`}`)
		var out struct{ Usage usage }
		if err := json.Unmarshal([]byte(answer), &out); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		return out.Usage.Prompt, out.Usage.PromptDetails.Cached
	}
	const system = `{"role": "system", "content": "You are kind and you answer in short sentences, always."}`
	first := `[` + system + `, {"role": "user", "content": "Tell me a story about a brave fox who lives in a forest and has many friends."}]`
	other := `[` + system + `, {"role": "user", "content": "What is 3 + 4?"}]`
	unlike := `[{"role": "user", "content": "Count to 12."}]`
	all, cached := usage(first)
	if cached != 0 {
		t.Errorf("at first %d tokens are kept", cached)
	}
	if _, cached := usage(other); cached < 20 {
		t.Errorf("of a system message that was read before %d tokens are kept", cached)
	}
	usage(unlike)
	if _, cached := usage(first); cached != all-1 {
		t.Errorf("after other conversations %d of %d tokens are kept", cached, all)
	}
	if free := s.cache.Stats().FreeCells; free <= 0 {
		t.Errorf("%d cells are free", free)
	}
}

func TestChooseSlots(t *testing.T) {
	tokens := func(text string) (list []minfer.Token) {
		for _, c := range text {
			list = append(list, c)
		}
		return list
	}
	for _, test := range []struct {
		idle   []string // in the order of their last use
		prompt string
		chosen int
		donor  int
	}{
		{[]string{"", "", ""}, "abc", 0, -1},
		{[]string{"abcd", "", "xy"}, "abcde", 0, -1},
		{[]string{"xy", "abcd", "abcdef"}, "abcde", 2, -1},
		{[]string{"xy", "abcd", "zz"}, "q", 0, -1},
		{[]string{"", "abcdefgh", "zz"}, "abxy", 0, 1},
		{[]string{"abcdefgh"}, "abxy", 0, -1},
		{[]string{"abcdefgh", "zz"}, "abxy", 0, -1},
		{[]string{"zz", "abcdefgh"}, "abxy", 0, 1},
		{[]string{"zz", "zz"}, "zz", 0, -1},
	} {
		p := &pool{}
		var all []*slot
		for i, text := range test.idle {
			all = append(all, &slot{tokens: tokens(text), used: uint64(i)})
		}
		p.idle = append(p.idle, all...)
		chosen, donor := p.choose(tokens(test.prompt))
		index := func(s *slot) int {
			for i := range all {
				if all[i] == s {
					return i
				}
			}
			return -1
		}
		if index(chosen) != test.chosen || index(donor) != test.donor {
			t.Errorf("%q for %q: slot %d, donor %d, want %d and %d", test.idle, test.prompt, index(chosen), index(donor), test.chosen, test.donor)
		}
		taken := 1
		if donor != nil {
			taken = 2
		}
		if len(p.idle) != len(all)-taken {
			t.Errorf("%q for %q: %d slots are left", test.idle, test.prompt, len(p.idle))
		}
	}
}
