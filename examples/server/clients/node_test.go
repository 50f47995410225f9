package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/internal/testfiles"
)

// envPictures is a folder for screenshots of the page.
const envPictures = "MINFER_SCREENSHOTS"

// node runs a script of testdata.
func node(t *testing.T, script string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), testfiles.Program(t, "node"), append([]string{filepath.Join("testdata", script)}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// TestNodeOpenAI calls the server by the npm package openai.
func TestNodeOpenAI(t *testing.T) {
	folder := testfiles.NPM(t, "openai", "6.49.0")
	node(t, "openai.js", startServer(t).url, folder)
}

// TestPage chats by the page in a browser.
func TestPage(t *testing.T) {
	browser, folder := testfiles.Chromium(t), testfiles.NPM(t, "playwright-core", "1.64.1")
	model, err := minfer.OpenBytes(storyteller.Model)
	if err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprint(model.Tokenizer().EOS())
	if err := model.Close(); err != nil {
		t.Error(err)
	}
	args := []string{startServer(t, "-api-key", "secret", "-slots", "1").url, folder, browser, "secret", end}
	if pictures := os.Getenv(envPictures); pictures != "" {
		args = append(args, pictures)
	}
	node(t, "page.js", args...)
}
