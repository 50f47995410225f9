package grammar

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
	"unicode/utf8"
)

// try follows a compiled grammar for some tokens: there must be a way on everywhere, or
// the end, and masks must agree with the tokens.
func try(t *testing.T, g *Grammar) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	masker := g.Bind(toy)
	m := masker.Matcher()
	var out []byte
	for range 30 {
		mask, err := m.mask()
		if err != nil {
			if _, ok := err.(*LimitError); ok {
				return nil
			}
			t.Fatal(err)
		}
		var allowed []int32
		for id := range int32(toy.Size()) {
			if mask[id>>6]>>(id&63)&1 != 0 {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("after %q: nothing can follow", out)
		}
		id := allowed[r.IntN(len(allowed))]
		if m.CanEnd() {
			id = end
		}
		for _, probe := range []int32{id, int32(r.IntN(toy.Size()))} {
			ok, err := m.Allows(probe)
			if err == nil && ok != (mask[probe>>6]>>(probe&63)&1 != 0) {
				t.Fatalf("after %q: token %q: Allows says %v", out, toy.bytes(probe), ok)
			}
		}
		if err := m.Accept(id); err != nil {
			if _, ok := err.(*LimitError); ok {
				return nil
			}
			t.Fatal(err)
		}
		if id == end {
			return append(out, []byte{}...)
		}
		out = append(out, toy.bytes(id)...)
	}
	return nil
}

// compileWithin gives up on inputs that are slow for the fuzzer, not for users.
func compileWithin(f func(context.Context) (*Grammar, error)) *Grammar {
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	g, err := f(ctx)
	if err != nil {
		return nil
	}
	return g
}

func FuzzGBNF(f *testing.F) {
	for _, seed := range []string{
		`root ::= "a" root "b" | ""`, `root ::= [^a-z]{2,3} . "\x41\u00e9"`, "root ::= x+ # c\nx ::= (\n\"a\" | y)*\ny ::= \"b\"{0,3}",
		`root ::= root "a"`, `root ::= ("a"?){3,}`, `root ::= "a" root "x" | "a" root "y" | ""`, `root ::= <x>`,
		"root ::= a a a\na ::= b b b\nb ::= \"c\"? | [\\n\\]]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		g := compileWithin(func(ctx context.Context) (*Grammar, error) { return GBNF(ctx, source) })
		if g != nil {
			if out := try(t, g); out != nil && !utf8.Valid(out) {
				t.Fatalf("%q is not UTF-8", out)
			}
		}
	})
}

func FuzzSchema(f *testing.F) {
	for _, c := range schemaCases {
		f.Add([]byte(c.schema))
	}
	f.Add([]byte(personSchema))
	f.Fuzz(func(t *testing.T, source []byte) {
		g := compileWithin(func(ctx context.Context) (*Grammar, error) { return Schema(ctx, source) })
		if g != nil {
			if out := try(t, g); out != nil && !json.Valid(out) {
				t.Fatalf("%q is not JSON", out)
			}
		}
	})
}

func FuzzRegexp(f *testing.F) {
	for _, pattern := range patterns {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		g := compileWithin(func(ctx context.Context) (*Grammar, error) { return Regexp(ctx, pattern) })
		if g != nil {
			try(t, g)
		}
		if goPattern, err := fromECMA(pattern); err == nil {
			regexpAutomaton(goPattern, true)
		}
	})
}
