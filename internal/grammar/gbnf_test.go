package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer/internal/testfiles"
)

func TestGBNF(t *testing.T) {
	for _, c := range []struct {
		grammar string
		yes, no []string
	}{
		{`root ::= "a"`, []string{"a"}, []string{"", "b", "aa"}},
		{`root ::= ""`, []string{""}, []string{"a"}},
		{`root ::= "a" | "b" "c" |`, []string{"a", "bc", ""}, []string{"b", "ab"}},
		{"root ::= \"a\" |\n \"b\"\n", []string{"a", "b"}, []string{"ab"}},
		{"# all\nroot ::= # the root\n  x y # and\n\nx ::= \"x\"\r\ny ::= \"y\"", []string{"xy"}, []string{"x"}},
		{"root ::= (\n\"a\"\n\"b\" # both\n)+", []string{"ab", "abab"}, []string{"", "aba"}},
		{`root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]\-"`, []string{"Aé😀\t\r\n\\\"[]-"}, nil},
		{`root ::= [a-cx] [^a-cx] [a-]`, []string{"ada", "xé-"}, []string{"aaa", "ddd", "adb"}},
		{`root ::= [^\n\x00-\x1f\u0080-\uffff]+`, []string{"a b~", "😀"}, []string{"é", "", "a\n", "\xff", "\xed\xa0\x80"}},
		{`root ::= .`, []string{"a", "é", "\n", "😀", "\u20ac", "\U0010FFFF"}, []string{"", "ab", "\xc3", "\x80", "\xc0\x80", "\xf4\x90\x80\x80"}},
		{`root ::= "ab"*`, []string{"", "ab", "abab"}, []string{"a", "aba"}},
		{`root ::= "a"{3}`, []string{"aaa"}, []string{"aa", "aaaa"}},
		{`root ::= "a"{ 2 , }`, []string{"aa", "aaaaa"}, []string{"a"}},
		{`root ::= "a"{0,2} "b"{0}`, []string{"", "a", "aa"}, []string{"aaa", "b"}},
		{`root ::= ("a"? "b"?){2,3}`, []string{"", "ab", "ba", "ababab", "bbb"}, []string{"bbbb", "c"}},
		{`root ::= ("a"*)*`, []string{"", "aaa"}, []string{"b"}},
		{`root ::= ("a"? | "b"*)+ "c"`, []string{"c", "abbac"}, []string{"", "ab"}},
		{`root ::= "a" root "b" | ""`, []string{"", "ab", "aaabbb"}, []string{"a", "aab", "abb"}},
		{`root ::= "a" root "x" | "a" root "y" | ""`, []string{"", "aax" + "y", "aaayxy"}, []string{"aax", "aaxxx"}},
		{`root ::= "a" root | "a"`, []string{"a", strings.Repeat("a", 5000)}, []string{""}},
		{`root ::= e e
e ::= | "a"`, []string{"", "a", "aa"}, []string{"aaa"}},
		{`root ::= p "!"
p ::= "(" p ")" p | `, []string{"!", "(())()!"}, []string{"(()!", ")!"}},
		{`root ::= s+
s ::= "if " s (" else " s)? | "x" `, []string{"if if x else x", "xx"}, []string{"if ", "x else x"}},
	} {
		g := mustGBNF(t, c.grammar)
		for _, text := range c.yes {
			if !matches(t, g, text) {
				t.Errorf("%s should match %q", c.grammar, text)
			}
		}
		for _, text := range c.no {
			if matches(t, g, text) {
				t.Errorf("%s should not match %q", c.grammar, text)
			}
		}
	}
}

func TestGBNFErrors(t *testing.T) {
	deep := strings.Repeat("(", 200) + `"a"` + strings.Repeat(")", 200)
	for _, c := range []struct {
		grammar, message string
		is               error
	}{
		{``, `no rule named root`, ErrInvalid},
		{`a ::= "a"`, `no rule named root`, ErrInvalid},
		{`root ::= b`, `line 1, column 10: the rule "b" is not defined`, ErrInvalid},
		{"root ::= \"a\"\nroot ::= \"b\"", `line 2, column 1: the rule "root" is defined a second time`, ErrInvalid},
		{`root = "a"`, `"::=" should be here`, ErrInvalid},
		{`root ::= "a`, `column 10: the literal is not closed`, ErrInvalid},
		{`root ::= [a`, `is not closed`, ErrInvalid},
		{`root ::= []`, `is empty`, ErrInvalid},
		{`root ::= [z-a]`, `wrong way round`, ErrInvalid},
		{`root ::= ("a"`, `parenthesis of column 10`, ErrInvalid},
		{`root ::= "a")`, `should go on or its line end`, ErrInvalid},
		{`root ::= *`, `nothing to repeat`, ErrInvalid},
		{`root ::= "a"{3,2}`, `wrong way round`, ErrInvalid},
		{`root ::= "a"{x}`, `a number should be here`, ErrInvalid},
		{`root ::= "a"{2`, `"}" should be here`, ErrInvalid},
		{`root ::= "\q"`, `no such escape`, ErrInvalid},
		{`root ::= "\x4"`, `2 hexadecimal digits`, ErrInvalid},
		{`root ::= "\ud800"`, `U+D800 is not a character`, ErrInvalid},
		{`root ::= "\UFFFFFFFF"`, `is not a character`, ErrInvalid},
		{"root ::= \"\xff\"", `not UTF-8`, ErrInvalid},
		{`root ::= <think>`, `name tokens`, ErrUnsupported},
		{`root ::= root "a" | "a"`, `left recursion: root -> root`, ErrInvalid},
		{"root ::= a\na ::= \"\"? b\nb ::= \"x\"* a \"y\" | \"z\"", `left recursion: a -> b -> a`, ErrInvalid},
		{`root ::= "a" root`, `matches nothing`, ErrEmpty},
		{`root ::= ` + deep, `levels of parentheses`, ErrLimit},
		{`root ::= "a"{999999999999}`, `repetitions`, ErrLimit},
		{`root ::= (((("abc"{60000}){60000} "x"){60000} "y"){1,60000} "z"){60000}`, `states`, ErrLimit},
		{`root ::= ("a"?){60000}`, `ways to go on`, ErrLimit},
		{strings.Repeat("#", maxSource+1), `bytes of source`, ErrLimit},
	} {
		_, err := GBNF(background, c.grammar)
		if err == nil || !strings.Contains(err.Error(), c.message) || !errors.Is(err, c.is) {
			t.Errorf("%.60s: error %v, want %q, %v", c.grammar, err, c.message, c.is)
		}
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := GBNF(ctx, `root ::= ("a" [b-z]){4000}`); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The example grammars of llama.cpp compile and match what they are for.
func TestGBNFExamples(t *testing.T) {
	for name, texts := range map[string][]string{
		"json":       {`{"a": [1, 2.5e+12, {"b": null}], "c": "\u00e9\n"}`},
		"json_arr":   nil,
		"arithmetic": {"a+(b*2)=3\n"},
		"chess":      {"1. e4 e5\n2. Nf3 Nc6\n"},
		"c":          nil,
		"list":       {"- one\n- two\n"},
		"english":    nil,
		"japanese":   nil,
	} {
		source, err := os.ReadFile(testfiles.Oracle(t, "headers", "grammars", name+".gbnf"))
		if err != nil {
			t.Fatal(err)
		}
		g := mustGBNF(t, string(source))
		for _, text := range texts {
			if !matches(t, g, text) {
				t.Errorf("%s should match %q", filepath.Base(name), text)
			}
		}
	}
}

// naive matches by trying everything: it returns all places of a text, one bit each, at
// which x can end if it begins at one place.
type naive struct {
	rules  []expr
	text   string
	budget int
}

func (n *naive) after(x expr, places uint64, depth int) uint64 {
	var out uint64
	for p := 0; places>>p != 0; p++ {
		if places>>p&1 != 0 {
			out |= n.ends(x, p, depth)
		}
	}
	return out
}

func (n *naive) ends(x expr, at, depth int) uint64 {
	n.budget--
	if n.budget < 0 || depth > 200 {
		n.budget = -1
		return 0
	}
	switch x := x.(type) {
	case literal:
		if strings.HasPrefix(n.text[at:], string(x)) {
			return 1 << (at + len(x))
		}
	case chars:
		for _, r := range n.text[at:] {
			if x.set.contains(r) {
				return 1 << (at + len(string(r)))
			}
			break
		}
	case sequence:
		out := uint64(1) << at
		for _, part := range x {
			out = n.after(part, out, depth+1)
		}
		return out
	case choice:
		var out uint64
		for _, part := range x {
			out |= n.ends(part, at, depth+1)
		}
		return out
	case repeat:
		var out uint64
		front := uint64(1) << at
		for i := 0; front != 0 && (x.max == unbounded || i <= x.max); i++ {
			if i >= x.min {
				if x.max == unbounded && front&^out == 0 {
					break
				}
				out |= front
			}
			front = n.after(x.x, front, depth+1)
		}
		return out
	case ref:
		return n.ends(n.rules[x], at, depth+1)
	}
	return 0
}

// randomGrammar writes a grammar over a few letters. A rule may call later rules
// anywhere, and earlier ones only behind a letter, so there is no left recursion.
func randomGrammar(r *rand.Rand) string {
	const rules = 4
	var out strings.Builder
	for i := range rules {
		name := fmt.Sprintf("r%d", i)
		if i == 0 {
			name = "root"
		}
		var part func(depth int, behind bool) string
		part = func(depth int, behind bool) string {
			switch k := r.IntN(10); {
			case k < 3 || depth > 3:
				return []string{`"a"`, `"b"`, `[ab]`, `[^a]`, `"é"`, `"ab"`, `""`, `.`}[r.IntN(8)]
			case k < 5:
				first := part(depth+1, behind)
				return first + " " + part(depth+1, behind)
			case k < 6:
				return "(" + part(depth+1, behind) + " | " + part(depth+1, behind) + ")"
			case k < 8:
				return "(" + part(depth+1, behind) + ")" + []string{"*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"}[r.IntN(7)]
			default:
				if i+1 < rules && r.IntN(3) > 0 {
					return fmt.Sprintf("r%d", i+1+r.IntN(rules-i-1))
				}
				if target := r.IntN(i + 1); target > 0 {
					return fmt.Sprintf(`"a" r%d`, target)
				}
				return `"b" root`
			}
		}
		fmt.Fprintf(&out, "%s ::= %s | %s\n", name, part(0, false), part(0, false))
	}
	return out.String()
}

// What compiled grammars match is what trying everything matches, and masks are what
// following each token says.
func TestRandomGrammars(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	texts := []string{""}
	for _, alphabet := range [][]string{{"a", "b", "é"}} {
		for level := []string{""}; len(level[0]) < 5; {
			var next []string
			for _, text := range level {
				for _, c := range alphabet {
					next = append(next, text+c)
				}
			}
			texts = append(texts, next...)
			level = next
		}
	}
	compiled, matched, missed := 0, 0, 0
	for range 250 {
		source := randomGrammar(r)
		p := &gbnfParser{source: source, rules: make(map[string]*gbnfRule)}
		p.rule("root", 0)
		if p.parse(); p.err != nil {
			t.Fatalf("%s: %v", source, p.err)
		}
		g, err := GBNF(background, source)
		if err != nil {
			if errors.Is(err, ErrEmpty) {
				continue
			}
			t.Fatalf("%s: %v", source, err)
		}
		compiled++
		masker := g.Bind(toy)
		for _, text := range texts {
			n := naive{rules: p.set.bodies, text: text, budget: 20000}
			want := n.ends(ref(0), 0, 0)>>len(text)&1 != 0
			if n.budget < 0 {
				continue
			}
			m := masker.Matcher()
			got := m.AcceptText(text) == nil && m.CanEnd()
			if got != want {
				t.Fatalf("%s: %q matches: %v, want %v", source, text, got, want)
			}
			if got {
				matched++
			} else {
				missed++
			}
		}
		checkMasks(t, masker, r, source)
	}
	if compiled < 200 || matched < 5000 || missed < 5000 {
		t.Errorf("%d grammars, %d matches and %d others prove little", compiled, matched, missed)
	}
}

// checkMasks compares the masks along a random text with what the tokens themselves do.
func checkMasks(t *testing.T, masker *Masker, r *rand.Rand, source string) {
	m := masker.Matcher()
	logits := make([]float32, toy.Size()+3)
	for range 6 {
		for i := range logits {
			logits[i] = 1
		}
		if err := m.Mask(logits); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		var allowed []int32
		for id := range logits {
			ok, err := m.Allows(int32(id))
			if err != nil {
				t.Fatal(err)
			}
			if ok != (logits[id] == 1) {
				t.Fatalf("%s: token %d (%q) has logit %v, Allows says %v", source, id, toy.bytes(int32(id)), logits[id], ok)
			}
			if ok && id != end {
				allowed = append(allowed, int32(id))
			}
		}
		if len(allowed) == 0 {
			return
		}
		if err := m.Accept(allowed[r.IntN(len(allowed))]); err != nil {
			t.Fatal(err)
		}
	}
}
