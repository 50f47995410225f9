package backend

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

// ID is a kind of device in a number space that is appended to and never renumbered,
// because saved sessions carry it.
type ID uint16

// The devices of this module. Others choose a number from 1000 on.
const (
	CPU   ID = 0
	Metal ID = 1
	CUDA  ID = 2
)

// The places of this module's devices in the order of preference, the highest first.
const (
	PriorityCPU   = 100
	PriorityCUDA  = 200
	PriorityMetal = 300
)

// Capabilities says what a device can do. The functions are pure: equal arguments
// get equal answers, whatever the state of the device.
type Capabilities struct {
	// Supports reports whether the device runs the operation, payload considered (a
	// MatMul's weight type, say), with results of the given type.
	Supports func(op graph.Op, t graph.DType) bool
	// ExplicitSpan: attention reads spans of cells.
	ExplicitSpan bool
	// PackedKV: attention reads regions of F16.
	PackedKV bool
}

// Config is what a device is opened with. Zero fields mean the device's default.
type Config struct {
	Name     string // the full name asked for, such as "cuda:1"
	Instance int    // which of several: 1 in "cuda:1"
	Threads  int    // worker threads, for a device that computes on the host
	// Instructions names the best instruction set to use, for a device that computes on the
	// host and has several: for the CPU generic, avx2, avxvnni, avx512, amx or neon.
	Instructions string
	// InPlace has the device compute from the weights where they are, mapped from the file,
	// instead of making a copy in a faster order.
	InPlace bool
	// RoundFloats has products with weights of F32, F16 and BF16 computed from copies of them in
	// Q8_0, for a device that gains from it.
	RoundFloats bool
}

// Entry is a kind of device as its package registers it.
type Entry struct {
	Name     string // what hosts choose it by; lower case, without a colon
	ID       ID
	Priority int // the higher is preferred
	// Available says why the device cannot be used on this machine, or returns nil.
	Available func() error
	// Capabilities are those of every device of this kind.
	Capabilities *Capabilities
	// Open opens a device.
	Open func(Config) (Backend, error)
}

// Errors of the registry. They are wrapped in an *OpenError.
var (
	// ErrUnknown: no device of that name is known at all.
	ErrUnknown = errors.New("unknown device")
	// ErrNotLinked: the device is one of this module's, but its package is not part of
	// this program.
	ErrNotLinked = errors.New("device is not part of this build")
	// ErrUnavailable: the device's package is there, but this machine cannot run it.
	ErrUnavailable = errors.New("device is not usable on this machine")
	// ErrClosed: the device has been closed.
	ErrClosed = errors.New("backend: device is closed")
	// ErrUnsupported: a device was handed a node that it cannot run.
	ErrUnsupported = errors.New("operation is not supported by the device")
)

// OpenError says why a device asked for by name cannot be had, and what would help.
type OpenError struct {
	Name string
	Err  error  // ErrUnknown, ErrNotLinked, or what wraps ErrUnavailable
	Cure string // what the host program can do
}

// Error returns the name, the reason and the cure.
func (e *OpenError) Error() string {
	return fmt.Sprintf("backend: %q: %v; %s", e.Name, e.Err, e.Cure)
}

// Unwrap returns the reason.
func (e *OpenError) Unwrap() error { return e.Err }

// elsewhere lists the devices of this module that join only when imported, with
// what importing them takes.
var elsewhere = map[string]string{
	"cuda":  `import _ "github.com/minfer/minfer/backend/cuda" and build with -tags cuda`,
	"metal": `import _ "github.com/minfer/minfer/backend/metal" and build for darwin`,
}

var registry struct {
	sync.RWMutex
	entries map[string]*Entry
}

// Register makes a kind of device known. It panics if the entry is incomplete, or its
// name or ID is taken: these are mistakes of the program's own making, seen at start.
func Register(e Entry) {
	if e.Name == "" || strings.ContainsAny(e.Name, ":, ") || e.Name != strings.ToLower(e.Name) {
		panic(fmt.Sprintf("backend: Register: %q is no name for a device", e.Name))
	}
	if e.Open == nil || e.Available == nil || e.Capabilities == nil || e.Capabilities.Supports == nil {
		panic(fmt.Sprintf("backend: Register: the entry of %q is incomplete", e.Name))
	}
	registry.Lock()
	defer registry.Unlock()
	for _, other := range registry.entries {
		if other.Name == e.Name || other.ID == e.ID {
			panic(fmt.Sprintf("backend: Register: %q (id %d) after %q (id %d)", e.Name, e.ID, other.Name, other.ID))
		}
	}
	if registry.entries == nil {
		registry.entries = make(map[string]*Entry)
	}
	registry.entries[e.Name] = &e
}

// Entries lists the registered kinds of device by ID.
func Entries() []Entry {
	entries := snapshot()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return entries
}

// ByPriority lists the registered kinds of device, the preferred first.
func ByPriority() []Entry {
	entries := snapshot()
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	return entries
}

func snapshot() []Entry {
	registry.RLock()
	defer registry.RUnlock()
	entries := make([]Entry, 0, len(registry.entries))
	for _, e := range registry.entries {
		entries = append(entries, *e)
	}
	return entries
}

// Lookup finds the kind of device that a name such as "cpu" or "cuda:1" asks for, and
// which of them. A name that cannot be had is an *OpenError that says which of the
// three reasons it is.
func Lookup(name string) (Entry, int, error) {
	kind, instance := name, 0
	if base, number, ok := strings.Cut(name, ":"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return Entry{}, 0, &OpenError{name, ErrUnknown, `write the number of the device after the colon, as in "cuda:1"`}
		}
		kind, instance = base, n
	}
	registry.RLock()
	e := registry.entries[kind]
	registry.RUnlock()
	if e == nil {
		if cure, ok := elsewhere[kind]; ok {
			return Entry{}, 0, &OpenError{name, ErrNotLinked, cure}
		}
		return Entry{}, 0, &OpenError{name, ErrUnknown, "known here: " + names(func(*Entry) bool { return true })}
	}
	if err := e.Available(); err != nil {
		return Entry{}, 0, unavailable(name, kind, err)
	}
	return *e, instance, nil
}

// unavailable says why a device cannot be used and offers the other kinds that can.
func unavailable(name, kind string, err error) *OpenError {
	others := names(func(e *Entry) bool { return e.Name != kind && e.Available() == nil })
	return &OpenError{name, fmt.Errorf("%w: %w", ErrUnavailable, err), "choose another: " + others}
}

// names lists the registered kinds that are wanted, by ID.
func names(wanted func(*Entry) bool) string {
	var names []string
	for _, e := range Entries() {
		if wanted(&e) {
			names = append(names, e.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Open opens a device by name; the name and the instance in c are filled in from it. A
// device that cannot be had is an *OpenError.
func Open(name string, c Config) (Backend, error) {
	e, instance, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	c.Name, c.Instance = name, instance
	b, err := e.Open(c)
	if err != nil {
		return nil, unavailable(name, e.Name, err)
	}
	return b, nil
}

// EnvBackends is the environment variable whose comma-separated names are the default
// devices of a program that names none.
const EnvBackends = "MINFER_BACKENDS"

// DefaultNames returns the devices to use when a host names none: those of
// EnvBackends if it has any, and otherwise every registered device that this machine
// can run, the preferred first.
func DefaultNames() []string {
	var list []string
	for _, name := range strings.Split(os.Getenv(EnvBackends), ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, e := range ByPriority() {
		if e.Available() == nil {
			list = append(list, e.Name)
		}
	}
	return list
}
