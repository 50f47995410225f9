package grammar

import (
	"context"
	"fmt"
)

// Within JSON strings, jsonPlain are the characters that stand for themselves.
var jsonPlain = newRuneSet(runeRange{0x20, 0x10FFFF}).minus(newRuneSet(runeRange{'"', '"'}, runeRange{'\\', '\\'}))

var jsonShort = map[rune]string{
	'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`,
}

// jsonEscapes spells the characters of a set that must be escaped.
func jsonEscapes(set runeSet) []string {
	var out []string
	for _, r := range set.minus(jsonPlain) {
		for c := r.lo; c <= r.hi; c++ {
			out = append(out, jsonEscape(c))
		}
	}
	return out
}

func jsonEscape(r rune) string {
	if short, ok := jsonShort[r]; ok {
		return short
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func class(ranges ...runeRange) chars { return chars{set: newRuneSet(ranges...)} }

func span1(lo, hi rune) runeRange { return runeRange{lo, hi} }

var (
	digit     = class(span1('0', '9'))
	digit19   = class(span1('1', '9'))
	hexDigit  = class(span1('0', '9'), span1('a', 'f'), span1('A', 'F'))
	letterD   = class(span1('d', 'd'), span1('D', 'D'))
	noLetterD = class(span1('0', '9'), span1('a', 'c'), span1('e', 'f'), span1('A', 'C'), span1('E', 'F'))

	// jsonChar is one character of a string, in any of its spellings. Surrogates come
	// in pairs only: JSON allows others, and what reads it mostly does not.
	jsonChar = choice{
		chars{set: jsonPlain},
		sequence{literal(`\`), choice{
			class(span1('"', '"'), span1('\\', '\\'), span1('/', '/'), span1('b', 'b'), span1('f', 'f'), span1('n', 'n'), span1('r', 'r'), span1('t', 't')),
			sequence{literal("u"), choice{
				sequence{noLetterD, repeat{hexDigit, 3, 3}},
				sequence{letterD, class(span1('0', '7')), repeat{hexDigit, 2, 2}},
				sequence{
					letterD, class(span1('8', '9'), span1('a', 'b'), span1('A', 'B')), repeat{hexDigit, 2, 2},
					literal(`\u`),
					letterD, class(span1('c', 'f'), span1('C', 'F')), repeat{hexDigit, 2, 2},
				},
			}},
		}},
	}

	// The numbers of digits are bounded, since a model that began a number sometimes
	// does not find its end.
	jsonInteger = sequence{choice{literal("0"), sequence{optional(literal("-")), digit19, repeat{digit, 0, 15}}}}
	jsonNumber  = sequence{
		optional(literal("-")),
		choice{literal("0"), sequence{digit19, repeat{digit, 0, 15}}},
		optional(sequence{literal("."), repeat{digit, 1, 16}}),
		optional(sequence{class(span1('e', 'e'), span1('E', 'E')), optional(class(span1('+', '+'), span1('-', '-'))), digit, optional(digit)}),
	}

	// jsonBlank is the space between the parts of a value: none, a blank, or a new line
	// with its indentation. Unbounded space invites models to write nothing else.
	jsonBlank = optional(choice{literal(" "), sequence{literal("\n"), repeat{class(span1(' ', ' '), span1('\t', '\t')), 0, 40}}})
)

// jsonRules are the rules of JSON that others build on.
type jsonRules struct {
	set                               *ruleSet
	blank, text, value, object, array ref
}

func addJSON(set *ruleSet) jsonRules {
	r := jsonRules{set: set}
	r.blank = set.add("blank", jsonBlank)
	r.text = set.add("string", sequence{literal(`"`), star(jsonChar), literal(`"`)})
	r.value = set.add("value", nil)
	pair := set.add("member", sequence{r.text, r.blank, literal(":"), r.blank, r.value})
	r.object = set.add("object", r.list("{", pair, "}"))
	r.array = set.add("array", r.list("[", r.value, "]"))
	set.bodies[r.value] = choice{
		r.object, r.array, r.text, jsonNumber,
		literal("true"), literal("false"), literal("null"),
	}
	return r
}

// list is any number of parts between brackets.
func (r jsonRules) list(open string, part expr, close string) expr {
	return sequence{
		literal(open), r.blank,
		optional(sequence{
			part, r.blank,
			star(sequence{literal(","), r.blank, part, r.blank}),
		}),
		literal(close),
	}
}

// JSON compiles the grammar of JSON objects with any content: what a model is held to
// that is asked for JSON without a schema.
func JSON(ctx context.Context) (*Grammar, error) {
	var set ruleSet
	root := set.add("root", nil)
	set.bodies[root] = addJSON(&set).object
	return newGrammar(ctx, set)
}
