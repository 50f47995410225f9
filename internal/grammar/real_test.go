package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// What is generated with the tokens of a real model is valid, too: these hold whole
// words, many quotes and parts of characters.
func TestRealVocabulary(t *testing.T) {
	v := realVocabulary(t)
	r := rand.New(rand.NewPCG(2, 2))
	for i, c := range schemaCases {
		if i%5 != 0 || underRace && i != 40 {
			continue
		}
		masker := mustSchema(t, c.schema).Bind(v)
		schema := decode(t, c.schema)
		for range 2 {
			text := walk(t, masker, r, 12)
			if text == nil {
				continue
			}
			if problem := (&validator{schema}).check(schema, decode(t, string(text))); problem != "" {
				t.Fatalf("%s: generated %s: %s", c.schema, text, problem)
			}
		}
	}
	g, err := JSON(background)
	if err != nil {
		t.Fatal(err)
	}
	masker := g.Bind(v)
	documents := 10
	if underRace {
		documents = 1
	}
	for range documents {
		if text := walk(t, masker, r, 30); text != nil && (!json.Valid(text) || text[0] != '{') {
			t.Fatalf("generated %q", text)
		}
	}
}

const personSchema = `{"type":"object","properties":{
	"name":{"type":"string"},"email":{"type":"string","maxLength":60},"age":{"type":"integer","minimum":0,"maximum":150},
	"tags":{"type":"array","items":{"type":"string"}},
	"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"born":{"type":"string","format":"date"}},"required":["street","city"]}
},"required":["name","age","address"]}`

const personDocument = `{"name": "Ada Lovelace, countess", "email": "ada.lovelace@example.org", "age": 36, "tags": ["mathematics", "engines", "Größe und 数学"], ` +
	`"address": {"street": "St James's Square 12, near the park and then left", "city": "London", "born": "1815-12-10"}}`

func BenchmarkNewVocabulary(b *testing.B) {
	v := realVocabulary(b)
	for b.Loop() {
		NewVocabulary(v.Size(), v.bytes, v.ends)
	}
}

func BenchmarkSchema(b *testing.B) {
	for b.Loop() {
		mustSchema(b, personSchema)
	}
}

// BenchmarkGenerate takes what it costs to mask and accept the tokens of one document: the
// first document under a grammar, and later ones.
func BenchmarkGenerate(b *testing.B) {
	v := realVocabulary(b)
	object, err := JSON(background)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		g    *Grammar
	}{{"json", object}, {"schema", mustSchema(b, personSchema)}} {
		logits := make([]float32, v.Size())
		tokens := v.split(personDocument)
		run := func(b *testing.B, masker func() *Masker) {
			for b.Loop() {
				m := masker().Matcher()
				for _, id := range tokens {
					if err := m.Mask(logits); err != nil {
						b.Fatal(err)
					}
					if err := m.Accept(id); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(tokens)), "µs/token")
		}
		b.Run(c.name+"/first", func(b *testing.B) {
			run(b, func() *Masker { return c.g.Bind(v) })
		})
		b.Run(c.name+"/later", func(b *testing.B) {
			masker := c.g.Bind(v)
			run(b, func() *Masker { return masker })
		})
	}
}

// split cuts a text into the longest tokens that fit.
func (v *Vocabulary) split(text string) []int32 {
	byText := make(map[string]int32)
	for _, id := range v.order {
		byText[string(v.bytes(id))] = id
	}
	var out []int32
	for len(text) > 0 {
		n := min(len(text), v.height)
		for ; n > 1; n-- {
			if _, ok := byText[text[:n]]; ok {
				break
			}
		}
		out = append(out, byText[text[:n]])
		text = text[n:]
	}
	return out
}

// BenchmarkMask takes single masks: found already, and not.
func BenchmarkMask(b *testing.B) {
	v := realVocabulary(b)
	object, err := JSON(background)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, prefix string
		g            *Grammar
	}{
		{"json/key", `{"a`, object},
		{"json/value", `{"a":`, object},
		{"schema/string", `{"name": "A`, mustSchema(b, personSchema)},
		{"schema/bounded", `{"name": "A", "email": "a`, mustSchema(b, personSchema)},
		{"any", `abc`, mustGBNF(b, `root ::= .*`)},
	} {
		logits := make([]float32, v.Size())
		b.Run(c.name+"/known", func(b *testing.B) {
			m := c.g.Bind(v).Matcher()
			if err := m.AcceptText(c.prefix); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := m.Mask(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/new", func(b *testing.B) {
			for b.Loop() {
				m := c.g.Bind(v).Matcher()
				if err := m.AcceptText(c.prefix); err != nil {
					b.Fatal(err)
				}
				if err := m.Mask(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
