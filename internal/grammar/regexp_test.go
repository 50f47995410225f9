package grammar

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

var patterns = []string{
	`abc`, `a*b+c?`, `(a|b)*c`, `(?i)straße|k`, `[^a-c]{2,4}`, `\d{3}-\d{4}`, `(a*)*`, `(?s).+`, `.+`,
	`\pL\p{Greek}?`, `[[:alpha:]]+`, `^a$|^$`, `a$b`, `^^a`, `x^a`, `(|a)b`, `(?:ab|a)(?:c|bcd)`, `\Aab\z`,
	`a{0}b`, `(a{2}){2}`, `[\x{1F600}-\x{1F64F}]+`, `é|\x{e8}`, `(?U)a+b`, `(?P<n>a)(?<m>b)`,
}

// Regexp matches what Go's regexp matches, for texts that are likely to.
func TestRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	alphabet := []string{"a", "b", "c", "A", "K", "\u212a", "ß", "é", "è", "α", "\n", "1", "5", "-", "d", "ab", "😀", "ss", "x"}
	for _, pattern := range patterns {
		g, err := Regexp(background, pattern)
		if err != nil {
			if pattern != `a$b` && pattern != `x^a` || !errors.Is(err, ErrEmpty) {
				t.Errorf("%s: %v", pattern, err)
			}
			continue
		}
		whole := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		anywhere := regexp.MustCompile(pattern)
		search, err := regexpAutomaton(pattern, true)
		if err != nil {
			t.Fatal(err)
		}
		masker := g.Bind(toy)
		yes := 0
		check := func(text string) {
			m := masker.Matcher()
			got := m.AcceptText(text) == nil && m.CanEnd()
			if got != whole.MatchString(text) {
				t.Errorf("%s: %q matches: %v", pattern, text, got)
			}
			if got {
				yes++
			}
			if got := search.matches(text); got != anywhere.MatchString(text) {
				t.Errorf("%s: %q is found: %v", pattern, text, got)
			}
		}
		for range 300 {
			var text strings.Builder
			for range r.IntN(6) {
				text.WriteString(alphabet[r.IntN(len(alphabet))])
			}
			check(text.String())
		}
		for range 20 {
			if text := walk(t, masker, r, 8); text != nil {
				check(string(text))
			}
		}
		if yes < 10 {
			t.Errorf("%s: only %d texts matched", pattern, yes)
		}
	}
}

func TestRegexpErrors(t *testing.T) {
	for pattern, want := range map[string]error{
		`(`: ErrInvalid, `a**`: ErrInvalid, `[b-a]`: ErrInvalid, `\q`: ErrInvalid, "\xff": ErrInvalid,
		`\bword`: ErrUnsupported, `(?m)^a`: ErrUnsupported, `(?=a)`: ErrUnsupported, `(?<!a)b`: ErrUnsupported,
		`a$b`: ErrEmpty, `[^\x00-\x{10FFFF}]`: ErrEmpty,
		`(a{1000}){1000}`: ErrLimit,
		`(\pL{500}){2}` + strings.Repeat(`\pL{1000}`, 40):     ErrLimit,
		strings.Repeat("a?", 8000):                            ErrLimit,
		strings.Repeat("(", 2000) + strings.Repeat(")", 2000): ErrLimit,
		strings.Repeat("a", maxPattern+1):                     ErrLimit,
	} {
		if _, err := Regexp(background, pattern); !errors.Is(err, want) {
			t.Errorf("%.40s: error %v, want %v", pattern, err, want)
		}
	}
}

func TestECMA(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{`^\u00e9\u{1F600}\uD83D\uDE00$`, "é😀😀", "e"},
		{`^\s\S$`, "\u00a0a", "a\u00a0"},
		{`^[\s,]+$`, "\ufeff, ", "a"},
		{`^[^\S]$`, "\u2003", "a"},
		{`^.$`, "a", "\u2028"},
		{`^\/\-[[]$`, "/-[", "/-"},
		{`b`, "abc", "ac"},
		{`^a|c$`, "xc", "xa"},
		{`^(?:a)(?<name>b)$`, "ab", "a"},
		{`^\0$`, "\x00", "0"},
	} {
		pattern, err := fromECMA(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		f, err := regexpAutomaton(pattern, true)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if !f.matches(c.yes) || f.matches(c.no) {
			t.Errorf("%s (as %s): %q should match and %q not", c.pattern, pattern, c.yes, c.no)
		}
	}
	for _, pattern := range []string{`(?=a)`, `(?!a)`, `(?<=a)`, `(?<!a)`, `(?i)a`, `\bа`, `\1`, `\k<a>`, `\cJ`, `\A`, `\u12`} {
		if _, err := fromECMA(pattern); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
