package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/customdevice/relay" // a second device, on every machine
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/testfiles"
	"github.com/minfer/minfer/sched/trace"
)

// other is the storyteller in another quantisation.
var other = filepath.Join("..", "..", "testdata", "storyteller-q4_0.gguf")

// start serves the page of a viewer with the storyteller.
func start(t *testing.T) (*viewer, string) {
	t.Helper()
	v, err := newViewer(&settings{against: other, againstBackends: "relay,cpu", backends: "cpu", context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(nil)
	web.Config.Handler = v.handler(web.Listener.Addr())
	web.Start()
	t.Cleanup(func() {
		v.halt()
		web.CloseClientConnections()
		web.Close()
		if err := v.close(); err != nil {
			t.Error(err)
		}
	})
	return v, web.URL
}

func post(t *testing.T, url string, body any) (int, string) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(said)
}

// recordsOf reads a run as a trace.
func recordsOf(t *testing.T, l *log) (passes []*trace.PassRecord, chosen []int32, lenses int) {
	t.Helper()
	for r, err := range trace.Records(bytes.NewReader(l.all())) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case *trace.PassRecord:
			passes = append(passes, r)
		case *trace.ChoiceRecord:
			chosen = append(chosen, r.Token)
		case *trace.LensRecord:
			lenses++
		}
	}
	return passes, chosen, lenses
}

func TestRuns(t *testing.T) {
	v, url := start(t)
	ask := request{Prompt: "What is 3 + 4?", Chat: true, Tokens: 20, Attention: true, Lens: true}
	if code, said := post(t, url+"/api/run", ask); code != http.StatusNoContent {
		t.Fatalf("%d: %s", code, said)
	}
	passes, chosen, lenses := recordsOf(t, v.runs[0])
	if len(passes) != 9 || len(chosen) != 9 || lenses != 9 {
		t.Fatalf("%d passes, %d tokens, %d lenses", len(passes), len(chosen), lenses)
	}
	// The second run goes along the same tokens, in another quantisation that would choose its own.
	ask.Slot, ask.Model, ask.Along = 1, 2, true
	if code, said := post(t, url+"/api/run", ask); code != http.StatusNoContent {
		t.Fatalf("%d: %s", code, said)
	}
	second, followed, _ := recordsOf(t, v.runs[1])
	if !reflect.DeepEqual(followed, chosen) || len(second) != len(passes) {
		t.Fatalf("%v in %d passes, want %v in %d", followed, len(second), chosen, len(passes))
	}
	for i := range passes {
		if !reflect.DeepEqual(passes[i].Tokens, second[i].Tokens) {
			t.Errorf("pass %d is of %v, want %v", i, second[i].Tokens, passes[i].Tokens)
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	_, url := start(t)
	for _, test := range []struct {
		body any
		code int
	}{
		{request{Slot: 2, Tokens: 1}, 400}, {request{Model: 4, Tokens: 1}, 400}, {request{Model: -1, Tokens: 1}, 400}, {request{Tokens: 0}, 400},
		{request{Along: true, Tokens: 1}, 400}, {"run", 400}, {request{Tokens: 1, Prompt: strings.Repeat("fox ", 2000)}, 500}, {request{Tokens: 1, Prompt: ""}, 500},
		{map[string]any{"tokens": "many"}, 400}, {map[string]any{"tokens": 1e40}, 400}, {[]int{1}, 400}, {request{Tokens: 1, Prompt: strings.Repeat("x", 2<<20)}, 400},
	} {
		if code, said := post(t, url+"/api/run", test.body); code != test.code || said == "" {
			t.Errorf("%+.80v: %d %q, want %d", test.body, code, said, test.code)
		}
	}
	if code, said := post(t, url+"/api/watch", map[string]int{"x": 1}); code != 400 || said == "" {
		t.Errorf("nothing to watch: %d %q", code, said)
	}
	for path, code := range map[string]int{"/": 200, "/app.js": 200, "/dagre.LICENSE": 200, "/nothing.js": 404, "/api/trace/2": 404, "/api/trace/x": 404, "/api/run": 405} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != code {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, code)
		}
	}
}

// TestOtherPagesCannotAsk: neither by a name of their own for this address, nor from elsewhere.
func TestOtherPagesCannotAsk(t *testing.T) {
	_, url := start(t)
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Host = "evil.example" },
		func(r *http.Request) { r.Host = "evil.example:" + r.URL.Port() },
		func(r *http.Request) { r.Host = "127.0.0.1:1" },
		func(r *http.Request) { r.Host = "127.0.0.1" },
		func(r *http.Request) { r.Host = "127.0.0.1.evil.example:" + r.URL.Port() },
		func(r *http.Request) { r.Host = "evil@127.0.0.1:" + r.URL.Port() },
		func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		r, err := http.NewRequest("POST", url+"/api/stop", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("Host %q, Origin %q: %d", r.Host, r.Header.Get("Origin"), answer.StatusCode)
		}
	}
}

// TestEvents: a page that comes late gets all that there is of both runs.
func TestEvents(t *testing.T) {
	v, url := start(t)
	if code, said := post(t, url+"/api/run", request{Prompt: "a", Tokens: 2}); code != http.StatusNoContent {
		t.Fatalf("%d: %s", code, said)
	}
	answer, err := http.Get(url + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<24)
	var got []byte
	want := v.runs[0].all()
	for len(got) < len(want) && lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
			got = append(got, "{"+data+"\n"...)
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes of events, want the %d of the trace", len(got), len(want))
	}
}

// TestManyWatch: pages that take what comes, and some that do not, are in nobody's way.
func TestManyWatch(t *testing.T) {
	v, url := start(t)
	var pages []*http.Response
	for range 40 {
		answer, err := http.Get(url + "/api/events")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		pages = append(pages, answer)
	}
	for range 3 {
		if code, said := post(t, url+"/api/run", request{Prompt: "a", Tokens: 5, Attention: true, Lens: true}); code != http.StatusNoContent {
			t.Fatalf("%d: %s", code, said)
		}
	}
	// The last record of the last run comes to all that read.
	last := strings.TrimSpace(string(v.runs[0].lines[len(v.runs[0].lines)-1]))
	for _, page := range pages[20:] {
		lines := bufio.NewScanner(page.Body)
		lines.Buffer(nil, 1<<24)
		found := false
		for !found && lines.Scan() {
			found = lines.Text() == "data: "+last
		}
		if !found {
			t.Fatalf("the stream ends before the run: %v", lines.Err())
		}
	}
}

func TestOpenTrace(t *testing.T) {
	path := writeTrace(t)
	v, err := newViewer(&settings{open: path, context: 64})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if passes, _, _ := recordsOf(t, v.runs[0]); len(passes) != 3 || !bytes.HasPrefix(data, []byte(`{"kind":"header"`)) {
		t.Errorf("%d passes", len(passes))
	}
	if err := v.close(); err != nil {
		t.Error(err)
	}
	// A trace of a program that ended midway.
	cut := filepath.Join(t.TempDir(), "cut.trace")
	if err := os.WriteFile(cut, data[:bytes.LastIndex(data, []byte(`{"kind":"pass"`))+1000], 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err = newViewer(&settings{open: cut, context: 64}); err != nil {
		t.Fatal(err)
	}
	if passes, _, _ := recordsOf(t, v.runs[0]); len(passes) != 2 || !errors.Is(v.cut, trace.ErrFormat) {
		t.Errorf("of a trace that was cut: %d passes, %v", len(passes), v.cut)
	}
	if err := v.close(); err != nil {
		t.Error(err)
	}
	if _, err := newViewer(&settings{open: "main.go"}); !errors.Is(err, trace.ErrFormat) {
		t.Errorf("no trace: %v", err)
	}
	if _, err := newViewer(&settings{model: "main.go"}); !errors.Is(err, minfer.ErrNotGGUF) {
		t.Errorf("no model: %v", err)
	}
}

// writeTrace has the library write a trace of three passes.
func writeTrace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := minfer.OpenBytes(storyteller.Model, minfer.WithTrace(f))
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Generate(context.Background(), "One, two,", minfer.MaxTokens(3)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(m.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEveryOperationHasAColour: the page lists each by its kind, and none twice.
func TestEveryOperationHasAColour(t *testing.T) {
	source, err := page.ReadFile("page/graph.js")
	if err != nil {
		t.Fatal(err)
	}
	_, families, _ := strings.Cut(string(source), "export const families = [")
	families, _, _ = strings.Cut(families, "\n];")
	for _, op := range graph.Kinds() {
		if n := strings.Count(families, "'"+op.Kind().String()+"'"); n != 1 {
			t.Errorf("%v is in %d families of operations", op.Kind(), n)
		}
	}
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	if code := run(context.Background(), []string{"-h"}, &out); code != 0 || !strings.Contains(out.String(), "usage: viz") {
		t.Errorf("-h: %d %s", code, out.String())
	}
	for _, args := range [][]string{{"-x"}, {"model.gguf"}, {"-m", "nothing.gguf"}, {"-addr", "nowhere"}} {
		out.Reset()
		if code := run(context.Background(), args, &out); code != 1 || !strings.HasPrefix(out.String(), "viz: ") {
			t.Errorf("%q: %d %s", args, code, out.String())
		}
	}
	// It ends with its context, also while a page is open.
	ctx, stop := context.WithCancel(context.Background())
	said, write := io.Pipe()
	done := make(chan int)
	go func() { done <- run(ctx, []string{"-addr", "127.0.0.1:0"}, write) }()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(line), " on ")
	page, err := http.Get(url + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	stop()
	if code := <-done; code != 0 {
		t.Errorf("ends with %d", code)
	}
}

// TestPage uses the page in a browser. It needs Node.js, Chromium and, once, the npm registry.
func TestPage(t *testing.T) {
	node, browser := testfiles.Program(t, "node"), testfiles.Chromium(t)
	folder := testfiles.NPM(t, "playwright-core", "1.64.1")
	_, url := start(t)
	args := []string{filepath.Join("testdata", "page.js"), url, folder, browser, writeTrace(t)}
	if pictures := os.Getenv("MINFER_SCREENSHOTS"); pictures != "" {
		args = append(args, pictures)
	}
	if out, err := exec.CommandContext(t.Context(), node, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
