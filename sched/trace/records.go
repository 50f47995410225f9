package trace

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/minfer/minfer/sched"
)

// Format and Version identify a trace. The version grows when a reader of the old one would
// misread the new one; new fields and new kinds of records alone do not count.
const (
	Format  = "minfer-trace"
	Version = 1
)

// Record is a line of a trace: a *Header, a *Graph, a *PassRecord, a *ChoiceRecord or a
// *LensRecord.
type Record interface{ kind() string }

// Header is the first line of a trace.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Model   Model  `json:"model"`
	// Limits say how much of each value is recorded.
	Limits Limits `json:"limits"`
	Began  string `json:"began"` // by the clock, RFC 3339; all times in the trace count from here
}

// Model is what a trace says of the model.
type Model struct {
	Name         string           `json:"name"`
	Architecture string           `json:"architecture"`
	Layers       int              `json:"layers"`
	Embedding    int              `json:"embedding"` // features of the residual stream
	Vocab        int              `json:"vocab"`
	Devices      []string         `json:"devices"`           // in the order of preference
	Weights      map[string]int64 `json:"weights,omitempty"` // bytes of each, as the file has it
}

// Graph is the graph of passes that follow, with its memory and splits. It is written once,
// before the first pass that refers to it by its uid.
type Graph struct {
	UID      uint64          `json:"uid"`
	Schedule *sched.Schedule `json:"-"` // what was traced; nil in a trace that was read
	// Raw is the schedule as JSON: see sched.Schedule.MarshalJSON.
	Raw json.RawMessage `json:"schedule"`
	// Captured are the devices that left their fast path for the trace's sake: they run node
	// by node instead of from a recording, or without shortcuts. Results are the same; times are
	// longer.
	Captured []string `json:"captured,omitempty"`
}

// PassRecord is a forward pass.
type PassRecord struct {
	Pass   uint64   `json:"pass"`
	Graph  uint64   `json:"graph"` // the uid
	Phase  string   `json:"phase"` // prefill or decode
	Start  int64    `json:"start"` // nanoseconds since the trace began
	Time   int64    `json:"time"`  // nanoseconds, what tracing took included
	Tokens []int32  `json:"tokens"`
	Texts  []string `json:"texts,omitempty"` // of the tokens
	// Bytes are those of tokens that are no UTF-8, by row: parts of a character.
	Bytes     map[int][]byte `json:"bytes,omitempty"`
	Positions []int32        `json:"positions"`
	Sessions  []uint64       `json:"sessions"`
	Nodes     []Node         `json:"nodes"` // as they ran
	Logits    []Logits       `json:"logits,omitempty"`
	Error     string         `json:"error,omitempty"` // what ended the pass
}

// Node is a node as it ran.
type Node struct {
	Node         int         `json:"node"` // its id in the graph
	Device       string      `json:"device"`
	Start        int64       `json:"start"` // nanoseconds since the trace began
	Time         int64       `json:"time"`  // nanoseconds until its value was there
	Bytes        int         `json:"bytes"` // of its value; 0 if that is a key and value region
	MultiplyAdds int64       `json:"macs,omitempty"`
	Stats        *Statistics `json:"stats,omitempty"`
	Histogram    []int       `json:"histogram,omitempty"` // counts in equal bins from Stats.Min to Stats.Max
	Sample       *Sample     `json:"sample,omitempty"`
	Attention    *Attention  `json:"attention,omitempty"`
}

// Attention is what each head of an attention node gave to each position.
type Attention struct {
	Heads int `json:"heads"`
	Rows  int `json:"rows"` // the last so many of the pass
	Keys  int `json:"keys"` // positions, from 0 on
	// Weights are Rows times Heads times Keys bytes, 255 for a weight of 1; in JSON, base 64.
	Weights []byte `json:"weights"`
	// Unavailable says why there are no weights, if there are none.
	Unavailable string `json:"unavailable,omitempty"`
}

// Logits are the likeliest tokens after a row.
type Logits struct {
	Session  uint64      `json:"session"`
	Position int         `json:"position"` // of the row; the token that follows takes the next
	Top      []Candidate `json:"top"`      // the likeliest first
}

// Candidate is a token that may follow.
type Candidate struct {
	Token int32  `json:"token"`
	Text  string `json:"text"`
	Logit Number `json:"logit"`
	Prob  Number `json:"prob"`            // under the model, before any setting of the sampling
	Bytes []byte `json:"bytes,omitempty"` // of a token that is no UTF-8
}

// ChoiceRecord is a token that was chosen.
type ChoiceRecord struct {
	Choice
	Bytes []byte `json:"bytes,omitempty"` // of a token that is no UTF-8
	At    int64  `json:"at"`              // nanoseconds since the trace began
}

// partial returns the bytes of a token that is no text by itself, which JSON cannot hold as such.
func partial(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

// LensRecord is what the model would say if its layers ended at each (nostalgebraist,
// 2020): the head applied to the residual stream of a row. The library does not write it by itself.
type LensRecord struct {
	Pass   uint64      `json:"pass"`
	Layers []LensLayer `json:"layers"`
}

// LensLayer is the end of one layer.
type LensLayer struct {
	Node string      `json:"node"` // whose value is the residual stream
	Top  []Candidate `json:"top"`
}

func (*Header) kind() string       { return "header" }
func (*Graph) kind() string        { return "graph" }
func (*PassRecord) kind() string   { return "pass" }
func (*ChoiceRecord) kind() string { return "choice" }
func (*LensRecord) kind() string   { return "lens" }
