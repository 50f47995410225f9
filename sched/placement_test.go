package sched

import (
	"errors"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

// A plan that contradicts the graph cannot come from NewPlan; if it ever does, it must
// not be executed.
func TestMemoryOnAnotherDeviceThanTheSplit(t *testing.T) {
	g, err := graph.Parse(`graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "z" F32 [16] @a
output %2
`)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[graph.NodeID]string{
		0: `sched: the value of node "x" (Input) is on "b", but its split runs on "a": value is on the wrong device`,
		1: `sched: the value of node "y" (Scale) is on "b", but its split runs on "a": value is on the wrong device`,
		2: `sched: the value of node "z" (Silu) is on "b", but its split runs on "a": value is on the wrong device`,
	} {
		a := alloc.New([]backend.Backend{null.New("a", null.Everything()), null.New("b", null.Everything())})
		plan, err := alloc.NewPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		binding, err := a.Bind(g, plan)
		if err != nil {
			t.Fatal(err)
		}
		plan.Values[node].Device = "b"
		if _, err := newProgram(&Schedule{Graph: g, Memory: binding.Plan(), Splits: Splits(g)}, a, binding); !errors.Is(err, ErrPlacement) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
