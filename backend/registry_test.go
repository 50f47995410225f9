package backend_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minfer/minfer/backend"
	_ "github.com/minfer/minfer/backend/cpu"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

var errNoDriver = errors.New("no driver found")

// device returns an entry that is complete.
func device(name string, id backend.ID, priority int, unavailable error) backend.Entry {
	return backend.Entry{
		Name: name, ID: id, Priority: priority,
		Available:    func() error { return unavailable },
		Capabilities: null.Everything(),
		Open: func(c backend.Config) (backend.Backend, error) {
			if c.Instance > 1 {
				return nil, errors.New("there are only two")
			}
			return null.New(c.Name, null.Everything()), nil
		},
	}
}

// The registry of these tests has the CPU, a device of which there are two, one that this
// machine cannot run, and what the examples register. Metal and CUDA are not linked.
func init() {
	backend.Register(device("pair", 1000, 150, nil))
	backend.Register(device("broken", 1001, 400, errNoDriver))
	backend.Register(device("equal", 999, 150, nil))
}

// Saved sessions carry the identities, so they never change; priorities decide what runs
// where without being asked.
func TestPinnedNumbers(t *testing.T) {
	ids := []backend.ID{backend.CPU, backend.Metal, backend.CUDA}
	if d := cmp.Diff([]backend.ID{0, 1, 2}, ids); d != "" {
		t.Errorf("identities of cpu, metal and cuda differ (-want +got):\n%s", d)
	}
	priorities := []int{backend.PriorityMetal, backend.PriorityCUDA, backend.PriorityCPU}
	if d := cmp.Diff([]int{300, 200, 100}, priorities); d != "" {
		t.Errorf("priorities of metal, cuda and cpu differ (-want +got):\n%s", d)
	}
	e, _, err := backend.Lookup("cpu")
	if err != nil || e.ID != backend.CPU || e.Priority != backend.PriorityCPU {
		t.Errorf("cpu is registered as %d with priority %d, %v", e.ID, e.Priority, err)
	}
}

func names(entries []backend.Entry) string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return strings.Join(list, " ")
}

func TestOrders(t *testing.T) {
	if got, want := names(backend.Entries()), "cpu equal pair broken abacus"; got != want {
		t.Errorf("by identity: %s, want %s", got, want)
	}
	if got, want := names(backend.ByPriority()), "broken equal pair cpu abacus"; got != want {
		t.Errorf("by priority: %s, want %s", got, want)
	}
}

func TestRegisterPanics(t *testing.T) {
	spoilt := func(spoil func(e *backend.Entry)) backend.Entry {
		e := device("new", 2000, 1, nil)
		spoil(&e)
		return e
	}
	const incomplete = `backend: Register: the entry of "new" is incomplete`
	tests := []struct {
		name  string
		entry backend.Entry
		want  string
	}{
		{"no name", device("", 2000, 1, nil), `backend: Register: "" is no name for a device`},
		{"colon", device("new:0", 2000, 1, nil), `backend: Register: "new:0" is no name for a device`},
		{"comma", device("a,b", 2000, 1, nil), `backend: Register: "a,b" is no name for a device`},
		{"space", device("a b", 2000, 1, nil), `backend: Register: "a b" is no name for a device`},
		{"upper case", device("New", 2000, 1, nil), `backend: Register: "New" is no name for a device`},
		{"name taken", device("pair", 2000, 1, nil), `backend: Register: "pair" (id 2000) after "pair" (id 1000)`},
		{"identity taken", device("new", 1000, 1, nil), `backend: Register: "new" (id 1000) after "pair" (id 1000)`},
		{"no Open", spoilt(func(e *backend.Entry) { e.Open = nil }), incomplete},
		{"no Available", spoilt(func(e *backend.Entry) { e.Available = nil }), incomplete},
		{"no Capabilities", spoilt(func(e *backend.Entry) { e.Capabilities = nil }), incomplete},
		{"no Supports", spoilt(func(e *backend.Entry) { e.Capabilities = &backend.Capabilities{} }), incomplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != tt.want {
					t.Errorf("panic %v, want %s", got, tt.want)
				}
			}()
			backend.Register(tt.entry)
		})
	}
	if got := len(backend.Entries()); got != 5 {
		t.Errorf("%d entries after refused registrations, want 5", got)
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]int{"cpu": 0, "cpu:0": 0, "pair": 0, "pair:7": 7} {
		e, instance, err := backend.Lookup(name)
		if kind, _, _ := strings.Cut(name, ":"); err != nil || e.Name != kind || instance != want {
			t.Errorf("%s is %s:%d, %v", name, e.Name, instance, err)
		}
	}
}

// A name is refused for one of three reasons, and the message says which and what would
// help.
func TestLookupRefuses(t *testing.T) {
	tests := []struct {
		name, message string
		is            error
	}{
		{"tpu", `backend: "tpu": unknown device; known here: cpu, equal, pair, broken, abacus`, backend.ErrUnknown},
		{"", `backend: "": unknown device; known here: cpu, equal, pair, broken, abacus`, backend.ErrUnknown},
		{"pair:x", `backend: "pair:x": unknown device; write the number of the device after the colon, as in "cuda:1"`, backend.ErrUnknown},
		{"pair:-1", `backend: "pair:-1": unknown device; write the number of the device after the colon, as in "cuda:1"`, backend.ErrUnknown},
		{"cuda:1", `backend: "cuda:1": device is not part of this build; import _ "github.com/minfer/minfer/backend/cuda" and build with -tags cuda`, backend.ErrNotLinked},
		{"metal", `backend: "metal": device is not part of this build; import _ "github.com/minfer/minfer/backend/metal" and build for darwin`, backend.ErrNotLinked},
		{"broken", `backend: "broken": device is not usable on this machine: no driver found; choose another: cpu, equal, pair, abacus`, backend.ErrUnavailable},
	}
	reasons := []error{backend.ErrUnknown, backend.ErrNotLinked, backend.ErrUnavailable}
	for _, tt := range tests {
		_, _, err := backend.Lookup(tt.name)
		var open *backend.OpenError
		if !errors.As(err, &open) || open.Name != tt.name || err.Error() != tt.message {
			t.Errorf("Lookup(%q) is\n%v, want\n%s", tt.name, err, tt.message)
		}
		for _, reason := range reasons {
			if errors.Is(err, reason) != (reason == tt.is) {
				t.Errorf("Lookup(%q): is %v: %v", tt.name, reason, errors.Is(err, reason))
			}
		}
		if _, again := backend.Open(tt.name, backend.Config{}); again == nil || again.Error() != tt.message {
			t.Errorf("Open(%q) is %v", tt.name, again)
		}
	}
	if _, _, err := backend.Lookup("broken"); !errors.Is(err, errNoDriver) {
		t.Errorf("error is %v, want it to wrap the device's own reason", err)
	}
}

func TestOpen(t *testing.T) {
	b, err := backend.Open("pair:1", backend.Config{Threads: 3, Name: "ignored", Instance: 9})
	if err != nil {
		t.Fatal(err)
	}
	if b.Name() != "pair:1" {
		t.Errorf("device is %s, want pair:1", b.Name())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	_, err = backend.Open("pair:2", backend.Config{})
	const want = `backend: "pair:2": device is not usable on this machine: there are only two; choose another: cpu, equal, abacus`
	if !errors.Is(err, backend.ErrUnavailable) || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestDefaultNames(t *testing.T) {
	tests := []struct {
		env  string
		want []string
	}{
		{"", []string{"equal", "pair", "cpu", "abacus"}},
		{"cpu", []string{"cpu"}},
		{" pair:1, cpu ,", []string{"pair:1", "cpu"}},
		{"broken,cuda", []string{"broken", "cuda"}}, // refused when they are opened, not passed over
		{" , ", []string{"equal", "pair", "cpu", "abacus"}},
	}
	for _, tt := range tests {
		t.Setenv(backend.EnvBackends, tt.env)
		if d := cmp.Diff(tt.want, backend.DefaultNames()); d != "" {
			t.Errorf("%s=%q (-want +got):\n%s", backend.EnvBackends, tt.env, d)
		}
	}
}

func TestCopyThroughHost(t *testing.T) {
	a, b := null.New("a", null.Everything()), null.New("b", null.Everything())
	from, err := a.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	to, err := b.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(strings.Repeat("minfer:)", 8))
	if err := a.WriteHost(from, want); err != nil {
		t.Fatal(err)
	}
	scratch, err := backend.CopyThroughHost(b, to, a, from, nil)
	if err != nil || len(scratch) != 64 {
		t.Fatalf("%d bytes of scratch, %v", len(scratch), err)
	}
	got := make([]byte, 64)
	if err := b.ReadHost(got, to); err != nil || string(got) != string(want) {
		t.Errorf("copied %q, %v", got, err)
	}
	again, err := backend.CopyThroughHost(b, to.Slice(8, 16), a, from.Slice(0, 16), scratch)
	if err != nil || len(again) != 16 || &again[0] != &scratch[0] {
		t.Errorf("scratch was not reused: %d bytes, %v", len(again), err)
	}
	_, err = backend.CopyThroughHost(b, to, a, from.Slice(0, 32), scratch)
	if mismatch := "backend: copy of 32 bytes from a into 64 bytes of b"; err == nil || err.Error() != mismatch {
		t.Errorf("error is %v, want %s", err, mismatch)
	}
	a.Free(from)
	if _, err = backend.CopyThroughHost(b, to, a, from, scratch); !errors.Is(err, null.ErrMemory) {
		t.Errorf("error is %v, want the sender's", err)
	}
}

func TestNodeError(t *testing.T) {
	n := &graph.Node{Name: "blk.0.ffn_act", Op: graph.Scale{Factor: 2}}
	err := backend.NewNodeError("pair:1", n, backend.ErrUnsupported)
	const want = `backend: pair:1 cannot run node "blk.0.ffn_act" (Scale{Factor=2}): operation is not supported by the device`
	if !errors.Is(err, backend.ErrUnsupported) || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}
