package clients

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// program is the path of the server.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if runtime.GOOS == "js" {
		return 0 // no processes
	}
	folder, err := os.MkdirTemp("", "server")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "server.exe")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/minfer/minfer/examples/server").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the server: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// server is the program, running.
type server struct {
	url    string
	client *http.Client
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	c := exec.Command(program, append([]string{"-addr", "127.0.0.1:0", "-threads", "2", "-temp", "0"}, args...)...)
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: &http.Client{Transport: &http.Transport{}}}
	lines := bufio.NewReader(stderr)
	first, err := lines.ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(first), "is served on ")
	var rest []byte
	var logged sync.WaitGroup
	logged.Add(1)
	go func() {
		defer logged.Done()
		rest, _ = io.ReadAll(lines)
	}()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if c.Process.Signal(os.Interrupt) != nil {
			c.Process.Kill() // where there are no signals
		}
		logged.Wait()
		if err := c.Wait(); err != nil && runtime.GOOS != "windows" {
			t.Errorf("the server ended with %v", err)
		}
		if text := string(rest); strings.Contains(text, "panic") || strings.Contains(text, "level=ERROR") {
			t.Errorf("the server logged:\n%s", text)
		}
	})
	if err != nil || !found {
		t.Fatalf("%v: %s", err, first)
	}
	s.url = url
	return s
}

// idle waits until no slot is in use, for a second at most.
func (s *server) idle(t testing.TB) {
	t.Helper()
	var health struct{ Busy, Waiting int }
	for until := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		response, err := s.client.Get(s.url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(response.Body).Decode(&health)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if health.Busy == 0 && health.Waiting == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("after a second %d slots are in use and %d requests wait", health.Busy, health.Waiting)
		}
	}
}
