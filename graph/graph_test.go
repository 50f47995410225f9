package graph_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
)

const head = "graph {Tokens=2 Outputs=2 Cells=16}\n" +
	`%0 = Input() "x" F32 [8 2]` + "\n" +
	`%1 = Input() "y" F32 [8 2]` + "\n" +
	`%2 = Input() "n" I32 [2]` + "\n" +
	`%3 = Input() "spans" I32 [32]` + "\n" +
	`%4 = KVStore(%0 %1 %2) {Layer=1} "stored" F32 [8 2]` + "\n" +
	`%5 = KVLoad(%4) {Layer=1} "kv" F16 [8 16]` + "\n" +
	`%6 = Input() "q8" Q8_0 [64]` + "\n"

const (
	rope = `RoPE={Base=10000 Scale=1 Dim=4 Heads=2 HeadDim=4}`
	proj = `Q={Weight="q" Type="F32" In=8 Out=8} K={Weight="k" Type="F32" In=8 Out=4} V={Weight="v" Type="F32" In=8 Out=4} `
)

// Every operation with what it yields, and with every way of getting it wrong. A line
// that ends in a message is refused with it.
func TestInference(t *testing.T) {
	tests := []struct{ line, fault string }{
		{`Input() "a" F32 [3 1 2]`, ``},
		{`Input() "a" F32 [3 0]`, `node "a" (Input): shape [3 0] has a dimension below 1`},
		{`Input() "a" F32 [3 -1]`, `node "a" (Input): shape [3 -1] has a dimension below 1`},
		{`Input(%0) "a" F32 [3]`, `node "a" (Input): has 1 sources, takes 0 to 0`},

		{`Embed(%2) {Weight="w" Type="Q8_0" Dim=6 Vocab=9} "a" F32 [6 2]`, ``},
		{`Embed(%0) {Weight="w" Type="Q8_0" Dim=6 Vocab=9} "a" F32 [6 2]`, `node "a" (Embed): ids are F32[8 2], want 16 of I32`},
		{`Embed(%2) {Weight="w" Type="Q8_0" Dim=6} "a" F32 [6 2]`, `node "a" (Embed): table of 0 rows of 6 values`},
		{`Embed(%2) {Weight="w" Type="Q8_0" Dim=6 Vocab=9} "a" F32 [6 3]`, `node "a" (Embed): is F32[6 3], but its operation yields F32[6 2]`},

		{`GetRows(%0 %2) "a" F32 [8 2]`, ``},
		{`GetRows(%0 %1) "a" F32 [8 2]`, `node "a" (GetRows): ids are F32[8 2], want 16 of I32`},
		{`GetRows(%0) "a" F32 [8 2]`, `node "a" (GetRows): has 1 sources, takes 2 to 2`},

		{`Add(%0 %1) "a" F32 [8 2]`, ``},
		{`Mul(%0 %1) "a" F32 [8 2]`, ``},
		{`SwiGLU(%0 %1) "a" F32 [8 2]`, ``},
		{`SwiGLU(%0 %2) "a" F32 [8 2]`, `node "a" (SwiGLU): sources [8 2] and [2] differ`},
		{`Add(%0 %2) "a" F32 [8 2]`, `node "a" (Add): sources [8 2] and [2] differ`},
		{`Mul(%2 %2) "a" I32 [2]`, `node "a" (Mul): sources are I32 and I32, want F32`},
		{`Add(%0 %7) "a" F32 [8 2]`, `node "a" (Add): reads node 7, which does not come before it`},
		{`Add(%0 %9) "a" F32 [8 2]`, `node "a" (Add): reads node 9, which does not come before it`},

		{`Scale(%0) {Factor=0.5} "a" F32 [8 2]`, ``},
		{`Silu(%0) "a" F32 [8 2]`, ``},
		{`Gelu(%0) "a" F32 [8 2]`, ``},
		{`Softmax(%0) "a" F32 [8 2]`, ``},
		{`RMSNorm(%0) {Weight="w" Eps=1e-05} "a" F32 [8 2]`, ``},
		{`Silu(%2) "a" I32 [2]`, `node "a" (Silu): source is I32, want F32`},

		{`QKNorm(%0) {Weight="w" Eps=1e-05 Heads=2 HeadDim=4} "a" F32 [8 2]`, ``},
		{`QKNorm(%0) {Weight="w" Eps=1e-05 Heads=2 HeadDim=3} "a" F32 [8 2]`, `node "a" (QKNorm): 2 heads of 3: source is F32[8 2], want rows of 6 F32 features`},
		{`QKNorm(%0) {Weight="w" Heads=-2 HeadDim=-4} "a" F32 [8 2]`, `node "a" (QKNorm): -2 heads of -4: source is F32[8 2], want rows of -1 F32 features`},

		{`MatMul(%0) {Weight="w" Type="Q4_K" In=8 Out=5} "a" F32 [5 2]`, ``},
		{`MatMul(%0) {Weight="w" Type="Q4_K" In=7 Out=5} "a" F32 [5 2]`, `node "a" (MatMul): weight "w" of shape [7 5]: source is F32[8 2], want rows of 7 F32 features`},
		{`MatMul(%0) {Weight="w" In=8 Out=5} "a" F32 [5 2]`, `node "a" (MatMul): weight "w" of type "" and shape [8 5] is not fully given`},
		{`MatMul(%2) {Weight="w" Type="F32" In=2 Out=5} "a" F32 [5]`, `node "a" (MatMul): weight "w" of shape [2 5]: source is I32[2], want rows of 2 F32 features`},

		{`RoPE(%0 %2) {Style=halves Base=10000 Scale=1 Dim=2 Heads=2 HeadDim=4} "a" F32 [8 2]`, ``},
		{`RoPE(%0 %2) {Base=10000 Scale=1 Dim=3 Heads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): rotates 3 features of a head of 4, want an even number up to it`},
		{`RoPE(%0 %2) {Base=10000 Scale=1 Dim=6 Heads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): rotates 6 features of a head of 4, want an even number up to it`},
		{`RoPE(%0 %2) {Scale=1 Dim=4 Heads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): base 0 and scale 1, want both above 0`},
		{`RoPE(%0 %2) {Base=NaN Scale=1 Dim=4 Heads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): base NaN and scale 1, want both above 0`},
		{`RoPE(%0 %3) {Base=10000 Scale=1 Dim=4 Heads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): positions are I32[32], want 2 of I32`},
		{`RoPE(%0 %2) {Base=10000 Scale=1 Dim=4 Heads=3 HeadDim=4} "a" F32 [8 2]`, `node "a" (RoPE): 3 heads of 4: source is F32[8 2], want rows of 12 F32 features`},

		{`KVStore(%0 %1 %2) {Layer=4} "a" F32 [8 2]`, ``},
		{`KVStore(%0 %2 %2) {Layer=4} "a" F32 [8 2]`, `node "a" (KVStore): keys [8 2] and values [2] differ`},
		{`KVStore(%2 %2 %2) {Layer=4} "a" F32 [2]`, `node "a" (KVStore): keys are I32 and values I32, want F32`},
		{`KVStore(%0 %1 %3) {Layer=4} "a" F32 [8 2]`, `node "a" (KVStore): cells are I32[32], want 2 of I32`},

		{`KVLoad(%4) {Layer=1} "a" F32 [8 9]`, ``},
		{`KVLoad(%4) {Layer=2} "a" F32 [8 9]`, `node "a" (KVLoad): source "stored" does not store layer 2`},
		{`KVLoad(%0) {Layer=1} "a" F32 [8 9]`, `node "a" (KVLoad): source "x" does not store layer 1`},
		{`KVLoad(%4) {Layer=1} "a" F32 [9 8]`, `node "a" (KVLoad): region [9 8] for rows of 8`},
		{`KVLoad(%4) {Layer=1} "a" I32 [8 9]`, `node "a" (KVLoad): region of I32, want F16 or F32`},

		{`Attention(%0 %5 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 Scale=0.5} "a" F32 [8 2]`, ``},
		{`Attention(%0 %5 %2 %3) {Layer=1 Heads=4 KVHeads=4 HeadDim=2 Scale=0.5 Mode=full ExplicitSpan=true} "a" F32 [8 2]`, ``},
		{`Attention(%0 %5 %2) {Layer=1 Heads=3 KVHeads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): 3 heads in groups over 2 key heads of 4 features`},
		{`Attention(%0 %5 %2) {Layer=1 Heads=4 KVHeads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): queries is F32[8 2], want rows of 16 F32 features`},
		{`Attention(%0 %1 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): second source "y" is not the region of layer 1`},
		{`Attention(%0 %5 %2) {Layer=0 Heads=2 KVHeads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): second source "kv" is not the region of layer 0`},
		{`Attention(%0 %5 %2) {Layer=1 Heads=2 KVHeads=1 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): region [8 16] for 1 key heads of 4`},
		{`Attention(%0 %5 %3) {Layer=1 Heads=2 KVHeads=2 HeadDim=4} "a" F32 [8 2]`, `node "a" (Attention): positions are I32[32], want 2 of I32`},
		{`Attention(%0 %5 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 Window=-1} "a" F32 [8 2]`, `node "a" (Attention): window of -1 positions`},
		{`Attention(%0 %5 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 Mode=full} "a" F32 [8 2]`, `node "a" (Attention): full attention needs explicit spans`},
		{`Attention(%0 %5 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 ExplicitSpan=true} "a" F32 [8 2]`, `node "a" (Attention): explicit span is true with 3 sources`},
		{`Attention(%0 %5 %2 %2) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 ExplicitSpan=true} "a" F32 [8 2]`, `node "a" (Attention): spans are I32[2], want 32 of I32`},

		{`View(%0) {Offset=4 Shape=[3 4 1 1]} "a" F32 [3 4]`, ``},
		{`View(%6) {Offset=32 Shape=[32 1 1 1]} "a" Q8_0 [32]`, ``},
		{`View(%0) {Offset=5 Shape=[3 4 1 1]} "a" F32 [3 4]`, `node "a" (View): view [3 4] at 5 does not lie within [8 2]`},
		{`View(%0) {Offset=-1 Shape=[3 4 1 1]} "a" F32 [3 4]`, `node "a" (View): view [3 4] at -1 does not lie within [8 2]`},
		{`View(%0) {Shape=[3 0 1 1]} "a" F32 [3 0]`, `node "a" (View): view [3 0] at 0 does not lie within [8 2]`},
		{`View(%6) {Offset=16 Shape=[32 1 1 1]} "a" Q8_0 [32]`, `node "a" (View): view at 16 begins within a block of 32`},

		{`Reshape(%0) {Shape=[4 4 1 1]} "a" F32 [4 4]`, ``},
		{`Reshape(%0) {Shape=[4 3 1 1]} "a" F32 [4 3]`, `node "a" (Reshape): [8 2] cannot become [4 3]`},
		{`Reshape(%0) {Shape=[-4 -4 1 1]} "a" F32 [4 3]`, `node "a" (Reshape): [8 2] cannot become [-4 -4]`},

		{`Permute(%0) {Dims=[1 0 2 3]} "a" F32 [2 8]`, ``},
		{`Permute(%0) {Dims=[1 1 2 3]} "a" F32 [2 8]`, `node "a" (Permute): [1 1 2 3] is no order of four dimensions`},
		{`Permute(%0) {Dims=[4 0 2 3]} "a" F32 [2 8]`, `node "a" (Permute): [4 0 2 3] is no order of four dimensions`},

		{`FusedQKV(%0 %2 %2) {Layer=2 ` + proj + rope + ` KVHeads=1} "a" F32 [8 2]`, ``},
		{`FusedQKV(%0 %2 %2) {Layer=2 ` + proj + rope + ` KVHeads=2} "a" F32 [8 2]`, `node "a" (FusedQKV): projections yield 8, 4 and 4 features for 2 and 2 heads of 4`},
		{`FusedQKV(%0 %2 %3) {Layer=2 ` + proj + rope + ` KVHeads=1} "a" F32 [8 2]`, `node "a" (FusedQKV): cells are I32[32], want 2 of I32`},
		{`FusedQKV(%0 %3 %2) {Layer=2 ` + proj + rope + ` KVHeads=1} "a" F32 [8 2]`, `node "a" (FusedQKV): positions are I32[32], want 2 of I32`},
		{`FusedQKVNorm(%0 %2 %2) {Layer=2 ` + proj + `QNorm="qn" KNorm="kn" Eps=1e-06 ` + rope + ` KVHeads=1} "a" F32 [8 2]`, ``},
		{`FusedQKVNorm(%0 %2 %2) {Layer=2 QNorm="qn" KNorm="kn" Eps=1e-06 ` + rope + ` KVHeads=1} "a" F32 [8 2]`, `node "a" (FusedQKVNorm): weight "" of type "" and shape [0 0] is not fully given`},
		{`FusedQKV(%0 %2 %2) {Layer=2 ` + proj + strings.Replace(rope, "Dim=4", "Dim=5", 1) + ` KVHeads=1} "a" F32 [8 2]`, `node "a" (FusedQKV): rotates 5 features of a head of 4 with base 10000 and scale 1`},

		{`QKVBiasRopeStore(%0 %1 %1 %2 %2) {Layer=2 QBias="b" ` + rope + ` KVHeads=2} "a" F32 [8 2]`, ``},
		{`QKVBiasRopeStore(%0 %1 %1 %2 %2) {Layer=2 ` + rope + ` KVHeads=1} "a" F32 [8 2]`, `node "a" (QKVBiasRopeStore): keys is F32[8 2], want rows of 4 F32 features`},
		{`QKVBiasRopeStore(%0 %1 %1 %3 %2) {Layer=2 ` + rope + ` KVHeads=2} "a" F32 [8 2]`, `node "a" (QKVBiasRopeStore): queries: positions are I32[32], want 2 of I32`},
		{`QKVBiasRopeStore(%0 %1 %1 %2 %3) {Layer=2 ` + rope + ` KVHeads=2} "a" F32 [8 2]`, `node "a" (QKVBiasRopeStore): cells are I32[32], want 2 of I32`},

		{`FusedFFN(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=6}} "a" F32 [6 2]`, ``},
		{`FusedFFN(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=7}} "a" F32 [6 2]`, `node "a" (FusedFFN): gate yields 6 features and up 7`},
		{`FusedFFN(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=9 Out=6}} "a" F32 [6 2]`, `node "a" (FusedFFN): weight "u" of shape [9 6]: source is F32[8 2], want rows of 9 F32 features`},

		{`FusedFFNDown(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=6} Down={Weight="d" Type="F32" In=6 Out=9}} "a" F32 [9 2]`, ``},
		{`FusedFFNDown(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=7} Down={Weight="d" Type="F32" In=6 Out=9}} "a" F32 [9 2]`, `node "a" (FusedFFNDown): gate yields 6 features and up 7`},
		{`FusedFFNDown(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=6} Down={Weight="d" Type="F32" In=7 Out=9}} "a" F32 [9 2]`, `node "a" (FusedFFNDown): gate and up yield rows of 6 features: weight "d" takes rows of 7`},
		{`FusedFFNDown(%0) {Gate={Weight="g" Type="F32" In=8 Out=6} Up={Weight="u" Type="F32" In=8 Out=6}} "a" F32 [9 2]`, `node "a" (FusedFFNDown): weight "" of type "" and shape [0 0] is not fully given`},

		{`TopK(%0) {K=3 Among=7} "a" F32 [6 2]`, ``},
		{`TopK(%0) {K=10 Among=8} "a" F32 [20 2]`, ``},
		{`TopK(%0) {K=3 Among=9} "a" F32 [6 2]`, `node "a" (TopK): 3 of the first 9 values of rows of 8, want at least 1 of at most 16777216`},
		{`TopK(%0) {Among=8} "a" F32 [1 2]`, `node "a" (TopK): 0 of the first 8 values of rows of 8, want at least 1 of at most 16777216`},
		{`TopK(%2) {K=1 Among=2} "a" F32 [2]`, `node "a" (TopK): source is I32, want F32`},
	}
	good, bad := map[string]bool{}, map[string]bool{}
	for _, tt := range tests {
		kind, _, _ := strings.Cut(tt.line, "(")
		text := head + "%7 = " + tt.line + "\noutput %7\n"
		g, err := graph.Parse(text)
		if tt.fault == "" {
			good[kind] = true
			if err != nil {
				t.Errorf("%s: %v", tt.line, err)
			} else if got := g.String(); got != text {
				t.Errorf("prints as\n%s, want\n%s", got, text)
			}
			continue
		}
		bad[kind] = true
		if err == nil || err.Error() != "graph: "+tt.fault {
			t.Errorf("%s:\ngot  %v\nwant graph: %s", tt.line, err, tt.fault)
		}
		var ge *graph.Error
		if !errors.As(err, &ge) || !errors.Is(err, graph.ErrInvalid) || ge.Node != "a" {
			t.Errorf("%s: %#v is no *Error of the node", tt.line, err)
		}
	}
	for _, op := range graph.Kinds() {
		kind := op.Kind().String()
		if !good[kind] || !bad[kind] && op.Kind().Traits().MinSources > 1 {
			t.Errorf("%s is missing from the table", kind)
		}
	}
}

func TestShapeTooLarge(t *testing.T) {
	text := fmt.Sprintf("graph {}\n%%0 = Input() \"x\" F32 [%d 100]\noutput %%0", math.MaxInt/100)
	if _, err := graph.Parse(text); !errors.Is(err, graph.ErrInvalid) || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("%v", err)
	}
	// A product of heads that wraps around to the right number is not right.
	heads := uint64(math.MaxUint)/4 + 3 // times 4 it is 8, modulo the word size
	text = head + fmt.Sprintf(`%%7 = QKNorm(%%0) {Weight="w" Heads=%d HeadDim=4} "a" F32 [8 2]`, heads) + "\noutput %7"
	if _, err := graph.Parse(text); !errors.Is(err, graph.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// The first fault sticks, whatever comes after it, and Build returns it.
// foreign is an operation that is not of the vocabulary.
type foreign struct{}

func (foreign) Kind() graph.Kind { return 200 }

func TestBuilderFaults(t *testing.T) {
	w := graph.Weight{Name: "w", Type: "F32", In: 8, Out: 4}
	tests := []struct {
		name  string
		build func(b *graph.Builder)
		want  string
	}{
		{"shapes", func(b *graph.Builder) { b.Add("sum", 0, 1) }, `graph: node "sum" (Add): sources [8 2] and [4 2] differ`},
		{"first of two", func(b *graph.Builder) { b.Silu("s", 7); b.Add("sum", 0, 1) }, `graph: node "s" (Silu): reads node 7, which does not come before it`},
		{"failed source passed on", func(b *graph.Builder) { b.Silu("t", b.Silu("s", 9)) }, `graph: node "s" (Silu): reads node 9, which does not come before it`},
		{"no node", func(b *graph.Builder) { b.Silu("s", graph.None) }, `graph: node "s" (Silu): reads node -1, which does not come before it`},
		{"name taken", func(b *graph.Builder) { b.Silu("x", 0) }, `graph: node "x" (Silu): name is empty or taken`},
		{"no name", func(b *graph.Builder) { b.Silu("", 0) }, `graph: node "" (Silu): name is empty or taken`},
		{"no operation", func(b *graph.Builder) { b.Node("s", nil, 0) }, `graph: node "s" (no operation): no operation given`},
		{"foreign operation", func(b *graph.Builder) { b.Node("s", foreign{}) }, `graph: node "s" (unknown): unknown operation graph_test.foreign`},
		{"foreign operation on a node", func(b *graph.Builder) { b.Node("s", foreign{}, 0) }, `graph: node "s" (unknown): has 1 sources, takes 0 to 0`},
		{"too many sources", func(b *graph.Builder) { b.Node("s", graph.Add{}, 0, 0, 0, 0, 0, 0) }, `graph: node "s" (Add): 6 sources`},
		{"too few sources", func(b *graph.Builder) { b.Node("s", graph.Add{}, 0) }, `graph: node "s" (Add): has 1 sources, takes 2 to 2`},
		{"five dimensions", func(b *graph.Builder) { b.Input("z", graph.F32, 1, 2, 3, 4, 5) }, `graph: node "z" (Input): 5 dimensions, at most 4 are possible`},
		{"norm of another width", func(b *graph.Builder) { b.RMSNorm("s", 0, graph.Weight{Name: "n", In: 3, Out: 1}, 1e-5) }, `graph: node "s" (RMSNorm): weight "n" has 3 values for rows [8 2]`},
		{"bias of another width", func(b *graph.Builder) { b.MatMul("s", 0, w, graph.Weight{Name: "bias", In: 3, Out: 1}) }, `graph: node "s" (MatMul): bias "bias" has 3 values for 4 outputs`},
		{"load of no store", func(b *graph.Builder) { b.KVLoad("kv", 0, 0) }, `graph: node "kv" (KVLoad): source "x" does not store layer 0`},
		{"load of no node", func(b *graph.Builder) { b.KVLoad("kv", 0, 99) }, `graph: node "kv" (KVLoad): reads node 99, which does not come before it`},
		{"output of no node", func(b *graph.Builder) { b.Output(5) }, `graph: output 5 is no node: invalid graph`},
		{"no output", func(b *graph.Builder) {}, `graph: no output was marked: invalid graph`},
		{"fault of the definition", func(b *graph.Builder) { b.Fail(errors.New("mine")); b.Silu("s", 9) }, `mine`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := graph.NewBuilder(graph.Params{Tokens: 2, Cells: 16})
			b.Input("x", graph.F32, 8, 2)
			b.Input("small", graph.F32, 4, 2)
			tt.build(b)
			first := b.Err()
			// Whatever follows must neither panic nor replace the fault.
			if first != nil {
				id := b.Silu("later", 0)
				b.Output(id)
				if b.Err() != first || b.Shape(id) != graph.ShapeOf() {
					t.Error("a later call changed something")
				}
			}
			g, err := b.Build()
			if g != nil || err == nil || err.Error() != tt.want {
				t.Fatalf("got  %v\nwant %s", err, tt.want)
			}
			if tt.want != "mine" && !errors.Is(err, graph.ErrInvalid) {
				t.Error("is not ErrInvalid")
			}
		})
	}
}

func TestVerifyFindsWhatPassesBreak(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(g *graph.Graph)
		want  string
	}{
		{"id", func(g *graph.Graph) { g.Nodes[4].ID = 3 }, `has id 3 at index 4`},
		{"no operation", func(g *graph.Graph) { g.Nodes[4].Op = nil }, `no operation`},
		{"name twice", func(g *graph.Graph) { g.Nodes[4].Name = "positions" }, `name is empty or taken by node 1`},
		{"no name", func(g *graph.Graph) { g.Nodes[4].Name = "" }, `name is empty or taken by node 0`},
		{"cycle", func(g *graph.Graph) { _ = g.Nodes[5].SetSources(5) }, `reads node 5, which does not come before it`},
		{"later source", func(g *graph.Graph) { _ = g.Nodes[5].SetSources(9) }, `reads node 9, which does not come before it`},
		{"number of sources", func(g *graph.Graph) { _ = g.Nodes[5].SetSources() }, `has 0 sources, takes 1 to 1`},
		{"shape", func(g *graph.Graph) { g.Nodes[5].Shape[1]++ }, `but its operation yields`},
		{"type", func(g *graph.Graph) { g.Nodes[5].Type = graph.F16 }, `but its operation yields`},
		{"output", func(g *graph.Graph) { g.Outputs[0] = 1000 }, `input or output 1000 of`},
		{"input that is none", func(g *graph.Graph) { g.Inputs = append(g.Inputs, 5) }, `the list of inputs and the Input nodes disagree about it`},
		{"input not listed", func(g *graph.Graph) { g.Inputs = g.Inputs[1:] }, `the list of inputs and the Input nodes disagree about it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := decoder(t)
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			tt.spoil(g)
			if err := g.Verify(); err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, graph.ErrInvalid) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	if err := (&graph.Node{Name: "n"}).SetSources(1, 2, 3, 4, 5, 6); err == nil || err.Error() != `graph: node "n" given 6 sources, at most 5 are possible` {
		t.Errorf("%v", err)
	}
}

func decoder(t testing.TB) *graph.Graph {
	t.Helper()
	g, err := graphtest.Decoder(graph.Params{Tokens: 3, Outputs: 1, Cells: 32, KVType: graph.F16, Devices: "gpu,cpu", Fusion: graph.Fusion{SwiGLU: true}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTextRoundTrip(t *testing.T) {
	seen := map[graph.Kind]bool{}
	for seed := range uint64(60) {
		r := graphtest.NewRand(seed)
		g := graphtest.Random(r, 60, graphtest.Every)
		for i := range g.Nodes {
			seen[g.Nodes[i].Op.Kind()] = true
			if r.IntN(2) == 0 {
				g.Nodes[i].Device = []string{"cpu", "cuda:1"}[r.IntN(2)]
			}
		}
		back, err := graph.Parse(g.String())
		if err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, g)
		}
		if d := g.Diff(back); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
		if back.String() != g.String() {
			t.Fatalf("seed %d: texts differ:\n%s", seed, cmp.Diff(g.String(), back.String()))
		}
	}
	for _, op := range graph.Kinds() {
		if !seen[op.Kind()] {
			t.Errorf("no graph has %v", op.Kind())
		}
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "graph: line 1, column 1: the graph line or the output line is missing"},
		{"graph {}", "graph: line 1, column 1: the graph line or the output line is missing"},
		{"graf {}", "graph: line 1, column 1: line starts with none of graph, output and %"},
		{"graph {}\ngraph {}", "graph: line 2, column 7: second graph line"},
		{"graph {Tokens=x}", `graph: line 1, column 16: strconv.Atoi: parsing "x": invalid syntax`},
		{"graph {Token=1}", `graph: line 1, column 13: Params has no field "Token"`},
		{"graph {Tokens=1,Outputs=1}", `graph: line 1, column 26: strconv.Atoi: parsing "1,Outputs=1": invalid syntax`},
		{"graph {Phase=later}", `graph: line 1, column 19: graph: unknown phase "later" (known: prefill, decode)`},
		{"graph {} x", `graph: line 1, column 9: text after the end: " x"`},
		{"graph {}\n%0 = Sub() \"x\" F32 [1]", `graph: line 2, column 9: unknown operation "Sub"`},
		{"graph {}\n%0 = Input() x F32 [1]", `graph: line 2, column 14: want a quoted string`},
		{"graph {}\n%0 = Input() \"x\" F64 [1]", `graph: line 2, column 21: graph: unknown element type "F64" (known: F32, F16, BF16, I32, Q8_0)`},
		{"graph {}\n%0 = Input() \"x\" F32 [1 2 3 4 5]", `graph: line 2, column 32: 5 numbers, want 1 to 4`},
		{"graph {}\n%0 = Input() \"x\" F32 []", `graph: line 2, column 23: 0 numbers, want 1 to 4`},
		{"graph {}\n%0 = Input(%0 %0 %0 %0 %0 %0) \"x\" F32 [1]", `graph: line 2, column 29: graph: node "" given 6 sources, at most 5 are possible`},
		{"graph {}\noutput %0\noutput %0", "graph: line 3, column 1: text after the output line"},
		{"graph {}\noutput %x", `graph: line 2, column 9: strconv.Atoi: parsing "": invalid syntax`},
	}
	for _, tt := range tests {
		_, err := graph.Parse(tt.text)
		var pe *graph.ParseError
		if err == nil || err.Error() != tt.want || !errors.As(err, &pe) || !errors.Is(err, graph.ErrInvalid) {
			t.Errorf("%q:\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestDiff(t *testing.T) {
	a := decoder(t)
	b := a.Clone()
	b.UID = 9
	if !a.Equal(b) {
		t.Error("a clone with another UID is not equal")
	}
	b.Nodes[7].Device = "gpu"
	if d := a.Diff(b); !strings.HasPrefix(d, "node 7 differs:") || a.Nodes[7].Device != "" {
		t.Errorf("%q", d)
	}
	b = a.Clone()
	b.Outputs = append(b.Outputs, 3)
	if d := a.Diff(b); d == "" || len(a.Outputs) != 1 {
		t.Errorf("%q", d)
	}
	b = a.Clone()
	b.Params.Tokens++
	if d := a.Diff(b); !strings.HasPrefix(d, "params differ:") {
		t.Errorf("%q", d)
	}
	b = a.Clone()
	b.Nodes = b.Nodes[:5]
	if a.Equal(b) || b.Equal(a) {
		t.Error("a graph and its beginning are equal")
	}
}

func TestLiveAndConsumers(t *testing.T) {
	g, err := graph.Parse(head + `%7 = Silu(%0) "s" F32 [8 2]
%8 = Add(%7 %7) "dead" F32 [8 2]
%9 = Mul(%7 %0) "m" F32 [8 2]
output %9
`)
	if err != nil {
		t.Fatal(err)
	}
	// The store is live though nobody reads it; its load is not.
	if d := cmp.Diff([]bool{true, true, true, false, true, false, false, true, false, true}, g.Live()); d != "" {
		t.Error("live:\n" + d)
	}
	if d := cmp.Diff([]int{3, 1, 1, 0, 0, 0, 0, 1, 0, 0}, g.Consumers()); d != "" {
		t.Error("consumers:\n" + d)
	}
}

// Equal parameters give equal graphs, and nothing but the parameters counts.
func TestBuildIsAFunctionOfParams(t *testing.T) {
	if d := decoder(t).Diff(decoder(t)); d != "" {
		t.Error(d)
	}
}

func TestEveryOpIsComparableAndListed(t *testing.T) {
	for i, op := range graph.Kinds() {
		if int(op.Kind()) != i || op != graph.Kinds()[i] {
			t.Errorf("operation %d is %T", i, op)
		}
		tr := op.Kind().Traits()
		if tr.Name == "" || tr.MinSources > tr.MaxSources || tr.MaxSources > graph.MaxSources || tr.EitherSource && !tr.InPlace {
			t.Errorf("traits of %T: %+v", op, tr)
		}
		_, touches := graph.LayerOf(op)
		if (tr.Stores || op.Kind() == graph.KindKVLoad || op.Kind() == graph.KindAttention) != touches {
			t.Errorf("LayerOf(%T) is %v", op, touches)
		}
	}
	notComputed := map[graph.Kind]bool{graph.KindInput: true, graph.KindKVLoad: true, graph.KindView: true, graph.KindReshape: true}
	for _, op := range graph.Kinds() {
		if graph.Computed(op) == notComputed[op.Kind()] {
			t.Errorf("Computed(%T) is %v", op, graph.Computed(op))
		}
	}
	if got := graph.Kind(200).String(); got != "unknown" {
		t.Errorf("%q", got)
	}
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		t    graph.DType
		n    int
		want int
	}{{graph.F32, 3, 12}, {graph.I32, 3, 12}, {graph.F16, 3, 6}, {graph.BF16, 3, 6}, {graph.Q8_0, 32, 34}, {graph.Q8_0, 33, 68}} {
		if got := tt.t.Bytes(tt.n); got != tt.want {
			t.Errorf("%d of %v take %d bytes, want %d", tt.n, tt.t, got, tt.want)
		}
	}
}

// What parses also prints, and prints the same when read again; nothing panics.
func FuzzParse(f *testing.F) {
	f.Add(decoder(f).String())
	for seed := range uint64(4) {
		f.Add(graphtest.Random(graphtest.NewRand(seed), 20, graphtest.Every).String())
	}
	f.Add(head + "output %0")
	f.Add("graph {Fusion={SwiGLU=true} WeightsVersion=18446744073709551615}\n%0 = Input() \"\\n\" Q8_0 [1 2 3 4] @a\noutput %0 %0")
	f.Add("graph {}\n%0 = Input() \"x\" F32 [1]\n%1 = Scale(%0) {Factor=NaN} \"y\" F32 [1]\noutput %1")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := graph.Parse(text)
		if (g == nil) == (err == nil) {
			t.Fatalf("graph %v and error %v", g, err)
		}
		if err != nil {
			if !errors.Is(err, graph.ErrInvalid) {
				t.Fatalf("%v is not ErrInvalid", err)
			}
			return
		}
		printed := g.String()
		back, err := graph.Parse(printed)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if back.String() != printed {
			t.Fatalf("%s\nand\n%s", printed, back)
		}
		g.Consumers()
		var b strings.Builder
		if err := g.WriteDOT(&b); err != nil {
			t.Fatal(err)
		}
		if err := g.WriteJSON(&b); err != nil && !strings.Contains(err.Error(), "unsupported value") {
			t.Fatal(err)
		}
	})
}
