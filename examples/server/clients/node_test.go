package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
)

// packages are what is fetched from the npm registry.
var packages = map[string]string{"openai": "6.49.0", "playwright-core": "1.64.1"}

// Settings of a run.
const (
	envRequire  = "MINFER_REQUIRE_CLIENTS" // 1 has tests fail for want of Node.js, packages or a browser
	envPictures = "MINFER_SCREENSHOTS"     // a folder for screenshots of the page
)

// lacking skips a test for want of something.
func lacking(t *testing.T, err error) {
	t.Helper()
	if os.Getenv(envRequire) == "1" {
		t.Fatalf("%v, and %s=1 demands it", err, envRequire)
	}
	t.Skip(err)
}

// nodePackages returns a folder with the packages, fetched into the user's cache if they are
// not there yet.
var nodePackages = sync.OnceValues(func() (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("there is no npm, so the package openai cannot be tried")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "minfer", "npm")
	install := []string{"install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0"}
	missing := false
	for name, version := range packages {
		missing = missing || installed(folder, name) != version
		install = append(install, name+"@"+version)
	}
	if !missing {
		return folder, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	c := exec.Command(npm, install...)
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the npm packages cannot be had: %v\n%s", err, out)
	}
	return folder, nil
})

// installed returns the version of a package, or "" if it is not there.
func installed(folder, name string) string {
	data, err := os.ReadFile(filepath.Join(folder, "node_modules", name, "package.json"))
	var about struct{ Version string }
	if err != nil || json.Unmarshal(data, &about) != nil {
		return ""
	}
	return about.Version
}

// node runs a script of testdata.
func node(t *testing.T, script string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		lacking(t, errors.New("there is no node"))
	}
	c := exec.CommandContext(t.Context(), program, append([]string{filepath.Join("testdata", script)}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// TestNodeOpenAI calls the server by the npm package openai.
func TestNodeOpenAI(t *testing.T) {
	folder, err := nodePackages()
	if err != nil {
		lacking(t, err)
	}
	node(t, "openai.js", startServer(t).url, folder)
}

// TestPage chats by the page in a browser.
func TestPage(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		lacking(t, errors.New("there is no Chromium"))
	}
	folder, err := nodePackages()
	if err != nil {
		lacking(t, err)
	}
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
