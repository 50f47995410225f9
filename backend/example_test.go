package backend_test

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

// A device's package registers it once, from an init function; here stands a device that
// is there but computes nothing.
func init() {
	backend.Register(backend.Entry{
		Name: "abacus", ID: 3000, Priority: 10,
		Available:    func() error { return nil },
		Capabilities: null.Only(graph.KindAdd),
		Open: func(c backend.Config) (backend.Backend, error) {
			return null.New(c.Name, null.Only(graph.KindAdd)), nil
		},
	})
}

func ExampleRegister() {
	e, instance, err := backend.Lookup("abacus:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Name, instance)
	fmt.Println(e.Capabilities.Supports(graph.Add{}, graph.F32), e.Capabilities.Supports(graph.Mul{}, graph.F32))
	// Output:
	// abacus 1
	// true false
}

func ExampleOpen() {
	d, err := backend.Open("abacus", backend.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	b, err := d.AllocFresh(16)
	if err != nil {
		fmt.Println(err)
		return
	}
	got := make([]byte, 4)
	err = errors.Join(d.WriteHost(b.Slice(4, 4), []byte("text")), d.ReadHost(got, b.Slice(4, 4)))
	fmt.Println(d.Name(), b.Size, string(got), err)
	// Output: abacus 16 text <nil>
}

// The three reasons for which a name is refused can be told apart.
func ExampleLookup() {
	for _, name := range []string{"gpu", "cuda", "broken"} {
		_, _, err := backend.Lookup(name)
		switch {
		case errors.Is(err, backend.ErrUnknown):
			fmt.Println(name, "is not known")
		case errors.Is(err, backend.ErrNotLinked):
			fmt.Println(name, "is not part of this program")
		case errors.Is(err, backend.ErrUnavailable):
			fmt.Println(name, "does not work here")
		}
	}
	// Output:
	// gpu is not known
	// cuda is not part of this program
	// broken does not work here
}

// A device that keeps the keys and values of a cell in a row embeds RowOrder. Sessions saved on it load on all others that
// have a KVOrder.
func ExampleRowOrder() {
	var device struct{ backend.RowOrder }
	var _ backend.KVOrder = device
	kv := &backend.KV{Width: 8, Cells: 64, Type: graph.F16}
	k, v := make([]byte, 256), make([]byte, 256)
	fmt.Println(device.KVToRows(kv, k, v))
	fmt.Println(kv.CheckBlock(k, v[:255]))
	// Output:
	// <nil>
	// backend: not a block of keys and values: 256 and 255 bytes, want 256 each for 16 cells of 8 F16
}
