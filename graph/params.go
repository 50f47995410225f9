package graph

import "fmt"

// Phase says what a graph is for.
type Phase uint8

const (
	// Prefill reads a prompt, many tokens at a time.
	Prefill Phase = iota
	// Decode generates, one token at a time.
	Decode
)

var phaseNames = [...]string{Prefill: "prefill", Decode: "decode"}

// String returns "prefill" or "decode".
func (p Phase) String() string { return enumName(phaseNames[:], int(p)) }

// MarshalText returns the phase's name, for JSON.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Result says what a graph computes.
type Result uint8

const (
	// Logits are a number for each token of the vocabulary.
	Logits Result = iota
	// Hidden is the activations that logits are projected from, after the last norm.
	Hidden
)

var resultNames = [...]string{Logits: "logits", Hidden: "hidden"}

// String returns "logits" or "hidden".
func (r Result) String() string { return enumName(resultNames[:], int(r)) }

// MarshalText returns the result's name, for JSON.
func (r Result) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Params decides the topology of a graph, and nothing else does: equal Params mean
// identical nodes. So it is the whole identity by which graphs are reused, and ==
// compares it. Positions, cells and the number of sequences are data.
type Params struct {
	Tokens  int   // tokens evaluated by one execution
	Outputs int   // rows of the result: the last ones of the tokens unless the "tail_ids" input says otherwise
	Phase   Phase // prefill or decode

	Cells        int           // rows of each key and value region
	KVType       DType         // what the regions hold: F16 or F32
	Mode         AttentionMode // causal or full
	ExplicitSpan bool          // attention reads spans
	Result       Result        // logits or hidden
	Top          int           // with logits, so many of the greatest are a second result; 0 is none

	Devices string // names of the devices in play, in the order of preference, separated by commas
	Fusion  Fusion // the rewrites that are on

	WeightsVersion uint64 // grows when weights are replaced
}

// Title names a pass for people: "prefill of 16 tokens", "decode of 1 token".
func (p Params) Title() string {
	if p.Tokens == 1 {
		return fmt.Sprintf("%v of 1 token", p.Phase)
	}
	return fmt.Sprintf("%v of %d tokens", p.Phase, p.Tokens)
}

// Fusion switches fused operations on, each by itself, so that a run without one of
// them can be compared. A switch is on only when the device that will run the
// operation has it.
type Fusion struct {
	SwiGLU           bool // Mul(Silu(x), y) becomes SwiGLU, by rewriting
	QKV              bool // FusedQKV, built by the definition
	QKVNorm          bool // FusedQKVNorm, likewise
	QKVBiasRopeStore bool // QKVBiasRopeStore, likewise
	FFN              bool // FusedFFN, likewise
	FFNDown          bool // MatMul(FusedFFN(x)) becomes FusedFFNDown, by rewriting
}
