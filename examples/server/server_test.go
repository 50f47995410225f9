package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// testServer is a server of the storyteller, with what it logs.
type testServer struct {
	*server
	url    string
	client *http.Client
	logged *logBuffer
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

func startServer(t testing.TB, args ...string) *testServer {
	t.Helper()
	settings, err := parseSettings(append([]string{"-threads", "2", "-temp", "0"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	logged := &logBuffer{}
	s, err := newServer(settings, newLog(logged))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.handler())
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		web.Close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if text := logged.String(); strings.Contains(text, "panic") || strings.Contains(text, "level=ERROR") {
			t.Errorf("logged:\n%s", text)
		}
	})
	return &testServer{s, web.URL, client, logged}
}

// do sends a request and returns the status and the body of the answer.
func (s *testServer) do(t testing.TB, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// ask asks a question without a client library, and returns the answer.
func (s *testServer) ask(t testing.TB, question string) string {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"messages": []any{map[string]string{"role": "user", "content": question}}})
	status, answer := s.do(t, "POST", "/v1/chat/completions", string(body))
	var out chatCompletion
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 200 || out.Choices[0].Message.Content == nil {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	return *out.Choices[0].Message.Content
}

// idle waits until no slot is in use, for a second at most.
func (s *testServer) idle(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for {
		busy, waiting := s.pool.counts()
		if busy == 0 && waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after a second %d slots are in use and %d requests wait", busy, waiting)
		case <-time.After(time.Millisecond):
		}
	}
}

func apiErrorOf(t testing.TB, body string) apiError {
	t.Helper()
	var out struct{ Error *apiError }
	if err := json.Unmarshal([]byte(body), &out); err != nil || out.Error == nil || out.Error.Message == "" || out.Error.Type == "" {
		t.Fatalf("not an error of the API: %s", body)
	}
	return *out.Error
}

func TestModelsAndHealth(t *testing.T) {
	s := startServer(t, "-slots", "2", "-name", "the model")
	for path, want := range map[string]string{
		"/v1/models":             `^\{"data":\[\{"id":"the model","object":"model","created":\d+,"owned_by":"minfer","context_length":1024\}\],"object":"list"\}\n$`,
		"/v1/models/the%20model": `^\{"id":"the model","object":"model",`,
		"/health":                `^\{"busy":0,"slots":2,"status":"ok","waiting":0\}\n$`,
	} {
		if status, body := s.do(t, "GET", path, ""); status != 200 || !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for path, method := range map[string]string{"/v1/models/gpt": "GET", "/v2": "GET", "/v1/chat": "POST"} {
		if status, body := s.do(t, method, path, ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		} else {
			apiErrorOf(t, body)
		}
	}
	for path, method := range map[string]string{"/v1/chat/completions": "GET", "/v1/models": "POST", "/health": "DELETE", "/v1/completions": "PUT"} {
		if status, body := s.do(t, method, path, ""); status != 405 {
			t.Errorf("%s %s: %d %s", method, path, status, body)
		} else {
			apiErrorOf(t, body)
		}
	}
}

func TestKey(t *testing.T) {
	s := startServer(t, "-api-key", "secret")
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "secret!": 401, "Bearer secret": 200} {
		status, body := s.do(t, "GET", "/v1/models", "", "Authorization", key)
		if status != want {
			t.Errorf("key %q: %d %s", key, status, body)
		}
		if status == 401 {
			apiErrorOf(t, body)
		}
	}
	for _, path := range []string{"/", "/chat.js", "/health"} {
		if status, _ := s.do(t, "GET", path, ""); status != 200 {
			t.Errorf("%s without the key: %d", path, status)
		}
	}
}

// TestPagesOfOthers: a web page that the user happens to visit does not get at the model.
func TestPagesOfOthers(t *testing.T) {
	closed := startServer(t)
	open := startServer(t, "-cors", "https://good.example, https://other.example")
	all := startServer(t, "-cors", "*")
	const body = `{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}`
	for _, test := range []struct {
		server *testServer
		header []string
		want   int
	}{
		{closed, nil, 200},
		{closed, []string{"Origin", closed.url}, 200},
		{closed, []string{"Origin", "https://evil.example"}, 403},
		{closed, []string{"Origin", "null"}, 403},
		{closed, []string{"Origin", "http://evil.example", "Host", "evil.example"}, 421},
		{closed, []string{"Host", "localhost:8080"}, 200},
		{open, []string{"Origin", "https://good.example"}, 200},
		{open, []string{"Origin", "https://evil.example"}, 403},
		{all, []string{"Origin", "https://any.example"}, 200},
	} {
		if status, answer := test.server.do(t, "POST", "/v1/chat/completions", body, test.header...); status != test.want {
			t.Errorf("%q: %d %s, want %d", test.header, status, answer, test.want)
		} else if status != 200 {
			apiErrorOf(t, answer)
		}
	}
	r, _ := http.NewRequest("OPTIONS", open.url+"/v1/chat/completions", nil)
	r.Header.Set("Origin", "https://good.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
	response, err := open.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if h := response.Header; response.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "https://good.example" ||
		h.Get("Access-Control-Allow-Headers") != "authorization,content-type" {
		t.Errorf("%d %v", response.StatusCode, h)
	}
}

func TestMetrics(t *testing.T) {
	s := startServer(t, "-slots", "3")
	s.ask(t, "What is 3 + 4?")
	s.ask(t, "What is 3 + 4?")
	s.do(t, "POST", "/v1/chat/completions", "{")
	_, body := s.do(t, "GET", "/metrics", "")
	for _, want := range []string{
		`minfer_requests_total{path="/v1/chat/completions",status="200"} 2`,
		`minfer_requests_total{path="/v1/chat/completions",status="400"} 1`,
		"minfer_prompt_tokens_total 42", "minfer_prompt_cached_tokens_total 20", "minfer_generated_tokens_total 18",
		"minfer_slots 3", "minfer_slots_busy 0", "minfer_requests_waiting 0", "minfer_answer_seconds_count 2",
		`minfer_prompt_seconds_bucket{le="+Inf"} 2`, "# TYPE minfer_queue_seconds histogram",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%q is not in:\n%s", want, body)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(body), "\n") {
		if !regexp.MustCompile(`^(# (HELP|TYPE) \w+ .+|\w+(\{[^}]+\})? [-+0-9.e]+)$`).MatchString(line) {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// TestRun runs the program itself: it answers, and an interrupt lets the answer under way end.
func TestRun(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	var out logBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-addr", "127.0.0.1:0", "-temp", "0", "-threads", "2", "-slots", "1"}, &out)
	}()
	url := ""
	for url == "" {
		select {
		case c := <-code:
			t.Fatalf("code %d: %s", c, out.String())
		case <-time.After(5 * time.Millisecond):
		}
		if found := regexp.MustCompile(`storyteller is served on (http://\S+)\n`).FindStringSubmatch(out.String()); found != nil {
			url = found[1]
		}
	}
	response, err := http.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages": [{"role": "user", "content": "Count to 12."}], "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	interrupt()
	body, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("%v: %s", err, body)
	}
	if c := <-code; c != 0 {
		t.Errorf("code %d: %s", c, out.String())
	}
}

// TestShutdownCutsOff: answers that take longer than they are given end, with an error event.
func TestShutdownCutsOff(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	var out logBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-addr", "127.0.0.1:0", "-threads", "2", "-grace", "50ms"}, &out)
	}()
	url := ""
	for url == "" {
		time.Sleep(5 * time.Millisecond)
		if found := regexp.MustCompile(`served on (http://\S+)\n`).FindStringSubmatch(out.String()); found != nil {
			url = found[1]
		}
	}
	const endless = `{"messages": [{"role": "user", "content": "Count to 12."}], "stream": true, "n": 16, "logit_bias": {"%d": -100}}`
	eos := startServer(t).model.Tokenizer().EOS()
	response, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(fmt.Sprintf(endless, eos)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	interrupt()
	body, _ := io.ReadAll(response.Body)
	if strings.Contains(string(body), "[DONE]") {
		t.Errorf("%d bytes to the end", len(body))
	}
	if c := <-code; c != 0 {
		t.Errorf("code %d: %s", c, out.String())
	}
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-slots", "0"}, "-slots 0: want 1 or more"},
		{[]string{"-slots", "100000"}, "want at most 1024"},
		{[]string{"-queue", "-1"}, "-queue -1"},
		{[]string{"-m", "/nowhere/x.gguf"}, "/nowhere/x.gguf"},
		{[]string{"-ctx", "5000"}, "5000 tokens, want 1 to the 1024"},
		{[]string{"-top-p", "3"}, "top-p is 3"},
		{[]string{"-addr", "127.0.0.1:99999"}, "99999"},
		{[]string{"-backends", "abacus"}, "abacus"},
		{[]string{"model.gguf"}, `"model.gguf" is no flag`},
		{[]string{"-nonsense"}, "-nonsense"},
	} {
		var out bytes.Buffer
		if code := run(context.Background(), test.args, &out); code != 1 || !strings.HasPrefix(out.String(), "server: ") || !strings.Contains(out.String(), test.want) {
			t.Errorf("%q: code %d, %q, want %q", test.args, code, out.String(), test.want)
		}
	}
	t.Setenv(envKey, "very secret")
	var out bytes.Buffer
	if code := run(context.Background(), []string{"-h"}, &out); code != 0 || !strings.Contains(out.String(), "  -slots requests\n") || strings.Contains(out.String(), "very secret") {
		t.Errorf("-h: code %d, %q", code, out.String())
	}
}
