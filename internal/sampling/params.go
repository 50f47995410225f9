package sampling

import (
	"fmt"
	"math"

	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// GreedyBelow is the temperature under which sampling is greedy. At such
// temperatures all probability lies on the best tokens anyway; making them
// greedy settles ties by the rule (lowest id) instead of by chance.
const GreedyBelow = 1e-5

// Limits on sequence breakers, which every accepted token is searched for.
const (
	MaxBreakers      = 64  // number of breakers
	MaxBreakerLength = 256 // bytes of one breaker
)

// Params are the settings of a Sampler. Start from Default or Greedy: in the
// zero value several stages stand at their harshest setting and the repetition
// penalty is invalid.
type Params struct {
	// Seed starts the random numbers. Equal seeds, parameters, histories and
	// logits give equal tokens, on every platform.
	Seed uint64

	// Temperature divides the logits that are left after truncation. 0, or
	// anything under GreedyBelow, means greedy. Finite, not negative.
	Temperature float32

	TopK     int     // keep the K likeliest tokens; 0 is off
	TypicalP float32 // keep the most typical tokens up to this mass, 0 to 1; 1 is off
	TopP     float32 // keep the likeliest tokens up to this mass, 0 to 1; 1 is off
	MinP     float32 // keep tokens at least this fraction as likely as the best, 0 to 1; 0 is off

	Penalties Penalties
	DRY       DRY
	XTC       XTC
	Mirostat  Mirostat

	// LogitBias is added to the logits of these tokens. -Inf bans a token;
	// +Inf and NaN are invalid.
	LogitBias map[int32]float32

	// LogProbs makes Sample fill in Token.LogProb, which costs one exponential
	// per vocabulary entry.
	LogProbs bool
}

// Penalties lower the logits of tokens that occur in the last LastN tokens of
// the history, prompt tokens included.
type Penalties struct {
	LastN     int     // window; 0 is off, -1 is the whole history
	Repeat    float32 // divides positive logits and multiplies the others, once per token; more than 0; 1 is off
	Frequency float32 // subtracted once per occurrence; finite; 0 is off
	Presence  float32 // subtracted once per token; finite; 0 is off
}

// DRY ("don't repeat yourself") lowers the logits of tokens that would extend a
// sequence which occurred before in the last LastN tokens, prompt included.
type DRY struct {
	Multiplier    float32 // penalty of a repetition of AllowedLength tokens; not negative; 0 is off
	Base          float32 // factor per further token; at least 1
	AllowedLength int     // the shortest repetition that is penalised, in tokens; at least 1
	LastN         int     // window; 0 is off, -1 is the whole history
	// Breakers are pieces of text that no repetition is followed across, such
	// as "\n". A breaker may begin and end inside tokens and span several.
	Breakers []string
}

// XTC ("exclude top choices") removes, by chance, all tokens above a threshold
// but the least likely of them.
type XTC struct {
	Probability float32 // of taking effect at a token, 0 to 1; 0 is off
	Threshold   float32 // 0 to 1; more than 0.5 is off, since no two tokens can be above it
}

// Mirostat is version 2 of the algorithm. When enabled it takes the place of
// all truncation stages (top-k, typical, top-p, min-p, XTC).
type Mirostat struct {
	Enabled bool
	Tau     float32 // the surprise to aim for, in bits; finite, not negative
	Eta     float32 // the learning rate; finite, not negative
}

// Default returns the settings that llama.cpp starts from: temperature 0.8,
// top-k 40, top-p 0.95, min-p 0.05, everything else off.
func Default() Params {
	return Params{
		Temperature: 0.8,
		TopK:        40,
		TypicalP:    1,
		TopP:        0.95,
		MinP:        0.05,
		Penalties:   Penalties{LastN: 64, Repeat: 1},
		DRY:         DRY{Base: 1.75, AllowedLength: 2, LastN: -1, Breakers: []string{"\n", ":", "\"", "*"}},
		XTC:         XTC{Threshold: 0.1},
		Mirostat:    Mirostat{Tau: 5, Eta: 0.1},
	}
}

// Greedy returns settings that always take the likeliest token.
func Greedy() Params {
	p := Default()
	p.Temperature = 0
	return p
}

// Neutral returns settings that sample from the model's own distribution:
// temperature 1, every other stage off.
func Neutral() Params {
	p := Default()
	p.Temperature, p.TopK, p.TopP, p.MinP = 1, 0, 1, 0
	return p
}

// Clone returns a copy that shares no memory with p.
func (p Params) Clone() Params {
	p.LogitBias = maps.Clone(p.LogitBias)
	p.DRY.Breakers = slices.Clone(p.DRY.Breakers)
	return p
}

// IsGreedy reports whether the settings take the likeliest token, without
// chance and without truncation.
func (p Params) IsGreedy() bool { return p.Temperature < GreedyBelow }

func (p Penalties) active() bool {
	return p.LastN != 0 && (p.Repeat != 1 || p.Frequency != 0 || p.Presence != 0)
}

func (d DRY) active() bool { return d.Multiplier > 0 && d.LastN != 0 }

func (x XTC) active() bool { return x.Probability > 0 && x.Threshold <= 0.5 }

// Validate checks every setting and returns nil or one *InvalidError that lists
// all faults. Settings of a stage that is off are checked like any other.
func (p Params) Validate() error {
	var f faults
	f.atLeast("temperature", p.Temperature, 0)
	f.window("top-k", p.TopK, 0)
	f.fraction("typical-p", p.TypicalP)
	f.fraction("top-p", p.TopP)
	f.fraction("min-p", p.MinP)

	f.window("penalty window", p.Penalties.LastN, -1)
	f.check(p.Penalties.Repeat > 0 && finite(p.Penalties.Repeat),
		"repetition penalty is %v, want a finite number above 0 (1 is off)", p.Penalties.Repeat)
	f.check(finite(p.Penalties.Frequency), "frequency penalty is %v, want a finite number", p.Penalties.Frequency)
	f.check(finite(p.Penalties.Presence), "presence penalty is %v, want a finite number", p.Penalties.Presence)

	f.atLeast("DRY multiplier", p.DRY.Multiplier, 0)
	f.atLeast("DRY base", p.DRY.Base, 1)
	f.window("DRY allowed length", p.DRY.AllowedLength, 1)
	f.window("DRY window", p.DRY.LastN, -1)
	f.breakers(p.DRY.Breakers)

	f.fraction("XTC probability", p.XTC.Probability)
	f.fraction("XTC threshold", p.XTC.Threshold)
	f.atLeast("mirostat tau", p.Mirostat.Tau, 0)
	f.atLeast("mirostat eta", p.Mirostat.Eta, 0)

	for _, id := range p.biasedTokens() {
		b := float64(p.LogitBias[id])
		f.check(id >= 0, "logit bias for token %d, want an id of the vocabulary", id)
		f.check(!math.IsNaN(b) && !math.IsInf(b, 1), "logit bias of token %d is %v, want a finite number or -Inf", id, b)
	}
	return f.err()
}

// biasedTokens lists the tokens with a logit bias in ascending order, so that equal
// parameters have equal errors and samplers.
func (p Params) biasedTokens() []int32 {
	ids := maps.Keys(p.LogitBias)
	slices.Sort(ids)
	return ids
}

// faults collects what is wrong with a set of parameters.
type faults []string

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

func (f *faults) atLeast(name string, x, low float32) {
	f.check(x >= low && finite(x), "%s is %v, want a finite number of at least %v", name, x, low)
}

func (f *faults) fraction(name string, x float32) {
	f.check(x >= 0 && x <= 1, "%s is %v, want 0 to 1", name, x)
}

func (f *faults) window(name string, n, low int) {
	f.check(n >= low, "%s is %d, want at least %d", name, n, low)
}

func (f *faults) breakers(breakers []string) {
	f.check(len(breakers) <= MaxBreakers, "%d DRY breakers, want at most %d", len(breakers), MaxBreakers)
	for i, b := range breakers {
		f.check(b != "", "DRY breaker %d is empty, want some text", i)
		f.check(len(b) <= MaxBreakerLength, "DRY breaker %d has %d bytes, want at most %d", i, len(b), MaxBreakerLength)
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &InvalidError{Faults: f}
}

func finite(x float32) bool { return float32(math.Abs(float64(x))) <= math.MaxFloat32 }
