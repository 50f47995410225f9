package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// schemaCases are schemas with documents that they match and do not match. The documents
// that match must satisfy the schema; the others may or may not (an order of properties,
// say, that is not the declared one).
var schemaCases = []struct {
	schema  string
	yes, no []string
}{
	{`true`, []string{`1`, `{"a":[]}`, `"x"`}, []string{``, `x`}},
	{`{}`, []string{`null`, `-1.5e-3`}, []string{`+1`, `01`}},
	{`{"type":"string"}`, []string{`""`, `"a\n\u00e9\"é😀"`, `"\ud83d\ude00"`}, []string{`"`, "\"\n\"", `"\x"`, `"\ud83d"`, `"\ude00"`, `1`}},
	{`{"type":["string","null"]}`, []string{`"a"`, `null`}, []string{`1`}},
	{`{"type":"string","nullable":true}`, []string{`"a"`, `null`}, []string{`1`}},
	{`{"type":"boolean"}`, []string{`true`, `false`}, []string{`null`}},
	{`{"type":"integer"}`, []string{`0`, `-12`, `1234567890123456`}, []string{`-0`, `1.5`, `01`, `1e3`}},
	{`{"type":"number"}`, []string{`0`, `-12.50`, `1E+9`, `-0.0`}, []string{`.5`, `1.`, `1e`}},

	{`{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"é😀x"`, `"\n\""`, `"\ud83d\ude00a"`}, []string{`"a"`, `"abcd"`, `"\ud83d\ude00"`}},
	{`{"maxLength":1}`, []string{`""`, `"a"`}, []string{`"ab"`}},
	{`{"minLength":3}`, []string{`"abc"`, `"abcdefgh"`}, []string{`"ab"`}},
	{`{"type":"string","pattern":"^[a-c]+\"?$"}`, []string{`"abc"`, `"a\""`}, []string{`"d"`, `""`, `"\u0061"`}},
	{`{"type":"string","pattern":"b"}`, []string{`"abc"`, `"b\n"`}, []string{`"ac"`}},
	{`{"type":"string","pattern":"^a|b$","maxLength":2}`, []string{`"a"`, `"xb"`}, []string{`"xbx"`, `"axx"`}},
	{`{"type":"string","pattern":"^\\d{3}-[A-Z]*$","minLength":5}`, []string{`"123-A"`}, []string{`"123-"`}},
	{`{"format":"date"}`, []string{`"2024-02-29"`, `"1999-12-31"`}, []string{`"2023-02-29"`, `"2024-04-31"`, `"2024-1-1"`}},
	{`{"type":"string","format":"date-time"}`, []string{`"2024-02-29T23:59:59Z"`, `"2024-01-01T00:00:00.123+05:30"`}, []string{`"2024-02-29 23:59:59Z"`, `"2024-02-29T24:00:00Z"`}},
	{`{"type":"string","format":"time"}`, []string{`"23:59:59Z"`}, []string{`"23:59Z"`}},
	{`{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567"`}},
	{`{"type":"string","format":"ipv4"}`, []string{`"255.0.10.1"`}, []string{`"256.0.0.1"`, `"01.0.0.1"`}},
	{`{"type":"string","format":"ipv6"}`, []string{`"::1"`, `"2001:db8::1"`}, []string{`":::"`, `"g::"`}},
	{`{"type":"string","format":"email"}`, []string{`"a.b@example.org"`}, []string{`"a@"`, `"a@b@c.de"`}},
	{`{"type":"string","format":"hostname"}`, []string{`"a-b.example"`}, []string{`"-a"`}},
	{`{"type":"string","format":"uri"}`, []string{`"https://example.org/a?b=c%20d"`}, []string{`"example"`}},
	{`{"type":"string","format":"duration"}`, []string{`"P1Y2M3DT4H"`, `"PT5S"`, `"P2W"`}, []string{`"P"`, `"1D"`}},

	{`{"type":"integer","minimum":3,"maximum":120}`, []string{`3`, `9`, `10`, `99`, `100`, `120`}, []string{`2`, `121`, `0`, `-5`, `1000`, `3.0`}},
	{`{"type":"integer","minimum":-12,"exclusiveMaximum":7}`, []string{`-12`, `-1`, `0`, `6`}, []string{`-13`, `7`, `-0`}},
	{`{"type":"integer","exclusiveMinimum":-2.5,"maximum":1.5}`, []string{`-2`, `1`}, []string{`-3`, `2`}},
	{`{"type":"integer","minimum":98765432101234567890}`, []string{`98765432101234567890`, `99999999999999999999`}, []string{`98765432101234567889`}},
	{`{"type":"integer","maximum":-100}`, []string{`-100`, `-1000`}, []string{`-99`, `0`}},
	{`{"type":"integer","minimum":5,"exclusiveMinimum":true}`, []string{`6`}, []string{`5`}},
	{`{"type":"integer","multipleOf":7,"minimum":0}`, []string{`0`, `7`, `770`}, []string{`1`, `71`}},
	{`{"type":"integer","format":"int32"}`, []string{`2147483647`, `-2147483648`}, []string{`2147483648`}},
	{`{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `1`, `0.5`, `1.0`, `0.0`}, []string{`1.1`, `-0.1`, `1.00000001`}},
	{`{"type":"number","exclusiveMinimum":0.25,"exclusiveMaximum":10.5}`, []string{`0.2500001`, `9`, `10.49`, `1.00`}, []string{`0.25`, `0.250`, `10.5`, `10.50`, `0`}},
	{`{"type":"number","minimum":-1.5,"maximum":1e1}`, []string{`-1.5`, `-0.1`, `10`, `10.0`, `0`}, []string{`-1.51`, `10.1`}},
	{`{"type":"number","maximum":-0.5}`, []string{`-0.5`, `-3`, `-0.75`}, []string{`-0.4`, `0`, `-0`}},
	{`{"type":"number","multipleOf":0.01,"minimum":0}`, []string{`1.25`, `3`, `0.1`}, []string{`0.001`}},
	{`{"minimum":1,"maximum":1}`, []string{`1`, `1.0`}, []string{`1.1`, `"a"`}},

	{`{"enum":["a","ab",1,null,{"x":[1,2]}]}`, []string{`"a"`, `"ab"`, `1`, `null`, `{"x":[1,2]}`}, []string{`"b"`, `2`}},
	{`{"type":"string","enum":["a",1,"\n\"é"]}`, []string{`"a"`, `"\n\"é"`}, []string{`1`}},
	{`{"const":{"b":1,"a":[true]}}`, []string{`{"b":1,"a":[true]}`}, []string{`{"a":[true],"b":1}`}},
	{`{"enum":[1,2,3],"const":2.0}`, []string{`2`}, []string{`1`}},

	{`{"type":"array"}`, []string{`[]`, `[1, "a", [ ]]`, "[\n  1,\n  2\n]"}, []string{`[1,]`, `[,1]`}},
	{`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`, []string{`[1]`, `[1,2,3]`}, []string{`[]`, `[1,2,3,4]`, `["a"]`}},
	{`{"items":{"type":"boolean"},"minItems":2}`, []string{`[true,true]`, `[true,true,false,true]`}, []string{`[true]`}},
	{`{"type":"array","maxItems":0}`, []string{`[]`}, []string{`[1]`}},
	{`{"type":"array","maxItems":1,"uniqueItems":true}`, []string{`[]`, `["a"]`}, []string{`[1,2]`}},
	{`{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"minItems":2}`, []string{`["a",1]`}, []string{`["a"]`, `[1,"a"]`, `["a",1,2]`}},
	{`{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}`, []string{`[]`, `["a"]`, `["a",1,2]`}, []string{`[1]`, `["a","b"]`}},
	{`{"items":[{"type":"string"}],"additionalItems":false}`, []string{`[]`, `["a"]`}, []string{`["a",1]`}},
	{`{"prefixItems":[{"type":"string"}],"minItems":3}`, []string{`["a",1,null]`}, []string{`["a"]`}},
	{`{"type":"array","items":{"type":"array","items":{"const":0},"minItems":2,"maxItems":2},"minItems":2,"maxItems":100}`, []string{`[[0,0],[0,0]]`}, []string{`[[0,0]]`, `[[0],[0,0]]`}},

	{`{"type":"object"}`, []string{`{}`, `{"a": {"b": []}}`}, []string{`{"a"}`, `[]`}},
	{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]}`,
		[]string{`{"b":"x"}`, `{"a":1,"b":"x","c":null}`, `{ "a": 1, "b": "x" }`, "{\n  \"b\": \"\"\n}"},
		[]string{`{}`, `{"a":1}`, `{"b":"x","a":1}`, `{"b":"x","d":1}`, `{"b":"x",}`, `{,"b":"x"}`}},
	{`{"properties":{"a":{},"b":{}}}`, []string{`{}`, `{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, []string{`{"c":1}`, `{"b":1,"a":1}`, `1`}},
	{`{"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`,
		[]string{`{}`, `{"a":1}`, `{"a":1,"b":"x","aa":"y","":"z"}`, `{"b":"x"}`},
		[]string{`{"a":"x"}`, `{"b":1}`, `{"\u0061":"x"}`}},
	{`{"properties":{"ab":true,"ac":true},"additionalProperties":true}`, []string{`{"a":1,"abc":2}`, `{"ac":1,"é":3,"b\n":1}`}, []string{`{"ac":1,"ab":2}`}},
	{`{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}`, []string{`{"a":1}`, `{"a":1,"b":2}`}, []string{`{}`, `{"a":1,"b":2,"c":3}`}},
	{`{"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2}`, []string{`{"a":1,"c":1}`, `{"a":1,"b":2,"c":3}`}, []string{`{"b":1}`}},
	{`{"type":"object","additionalProperties":false}`, []string{`{}`}, []string{`{"a":1}`}},
	{`{"type":"object","required":["x","y"],"properties":{"y":{"type":"integer"}}}`, []string{`{"y":1,"x":[2]}`}, []string{`{"y":1}`}},
	{`{"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":3},"additionalProperties":{"type":"null"}}`, []string{`{"abc":null}`, `{}`}, []string{`{"abcd":null}`, `{"A":null}`}},
	{`{"type":"object","properties":{"bad1":true,"ok":true},"propertyNames":{"pattern":"^[a-z]+$"}}`, []string{`{"ok":1}`}, []string{`{"bad1":1}`}},
	{`{"type":"object","properties":{"a":false,"b":{"type":"integer"}}}`, []string{`{}`, `{"b":1}`}, []string{`{"a":1}`}},
	{`{"type":"object","unevaluatedProperties":false}`, []string{`{}`}, []string{`{"a":1}`}},

	{`{"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]}`, []string{`1`, `"a"`}, []string{`"ab"`, `null`}},
	{`{"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]}`,
		[]string{`{"k":"","a":1}`, `{"k":"x","b":null}`}, []string{`{"k":""}`, `{"a":1}`, `{"k":"","a":1,"b":null}`}},
	{`{"oneOf":[{"type":"integer"},{"type":"string"},{"type":"null"}]}`, []string{`1`, `"a"`, `null`}, []string{`true`}},
	{`{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},{"type":"object","properties":{"kind":{"enum":["b","c"]},"y":{"type":"string"}},"required":["kind"]}]}`,
		[]string{`{"kind":"a","x":1}`, `{"kind":"c"}`, `{"kind":"b","y":""}`}, []string{`{"kind":"a"}`, `{"kind":"d"}`, `{"kind":"b","x":1}`}},
	{`{"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false},{"type":"object","properties":{"b":{}},"required":["b"],"additionalProperties":false}]}`,
		[]string{`{"a":1}`, `{"b":1}`}, []string{`{}`, `{"a":1,"b":1}`}},
	{`{"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"b":{"type":"string"},"a":{"minimum":2,"maximum":3}}}]}`,
		[]string{`{"a":2.5}`, `{"a":3,"b":""}`}, []string{`{"a":1}`, `{"b":""}`}},
	{`{"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`, []string{`{}`, `{"a":1}`}, []string{`{"b":1}`}},
	{`{"allOf":[{"type":["integer","string"]},{"type":["number","null"]}]}`, []string{`1`}, []string{`1.5`, `"a"`, `null`}},
	{`{"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]},{"anyOf":[{"minimum":5,"type":"integer"},{"maxLength":1,"type":"string"}]}]}`, []string{`7`, `"a"`}, []string{`1`, `"ab"`}},

	{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}}`, []string{`1`}, []string{`"a"`}},
	{`{"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"integer"}}}`, []string{`1`}, []string{`"a"`}},
	{`{"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"}`,
		[]string{`{"v":1,"next":{"v":2,"next":null}}`}, []string{`{"v":1}`, `{"v":1,"next":{"v":2}}`}},
	{`{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["name"]}`,
		[]string{`{"name":"a","children":[{"name":"b"},{"name":"c","children":[]}]}`}, []string{`{"name":"a","children":[{}]}`}},
	{`{"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s","maxLength":2,"description":"d"}},"required":["a"]}`,
		[]string{`{"a":"xy"}`}, []string{`{"a":"xyz"}`, `{"a":1}`}},
	{`{"$defs":{"tree":{"type":"object","properties":{"l":{"$ref":"#/$defs/tree"},"r":{"$ref":"#/$defs/tree"}},"additionalProperties":false},"small":{"type":"object","properties":{"l":{"$ref":"#/$defs/small"}},"additionalProperties":false}},"allOf":[{"$ref":"#/$defs/tree"},{"$ref":"#/$defs/small"}]}`,
		[]string{`{}`, `{"l":{"l":{}}}`}, []string{`{"r":{}}`, `{"l":{"r":{}}}`}},
}

func TestSchema(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, c := range schemaCases {
		g, err := Schema(background, []byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		schema := decode(t, c.schema)
		v := &validator{schema}
		if strings.Contains(c.schema, `"exclusiveMinimum":true`) { // draft 4, which the validator does not know
			v.root, schema = true, true
		}
		for _, text := range c.yes {
			if problem := v.check(schema, decode(t, text)); problem != "" {
				t.Errorf("the test is wrong: %s: %s: %s", c.schema, text, problem)
			}
			if !matches(t, g, text) {
				t.Errorf("%s should match %s", c.schema, text)
			}
		}
		for _, text := range c.no {
			if matches(t, g, text) {
				t.Errorf("%s should not match %s", c.schema, text)
			}
		}
		generated := 0
		for masker := g.Bind(toy); generated < 12; generated++ {
			text := walk(t, masker, r, 40)
			if text == nil {
				break
			}
			if !json.Valid(text) {
				t.Fatalf("%s: generated %q, which is not JSON", c.schema, text)
			}
			if problem := v.check(schema, decode(t, string(text))); problem != "" {
				t.Fatalf("%s: generated %s: %s", c.schema, text, problem)
			}
		}
		if generated < 5 {
			t.Errorf("%s: generated only %d documents", c.schema, generated)
		}
	}
}

func TestSchemaErrors(t *testing.T) {
	nested := strings.Repeat(`{"items":`, 130) + `{}` + strings.Repeat(`}`, 130)
	var wide strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&wide, `,"p%d":{}`, i)
	}
	for _, c := range []struct {
		schema, pointer, message string
		is                       error
	}{
		{`{`, "", "not JSON", ErrInvalid},
		{`{} {}`, "", "something follows", ErrInvalid},
		{"\"\xff\"", "", "UTF-8", ErrInvalid},
		{`3`, "", "an object or a boolean", ErrInvalid},
		{`{"a":{},"a":{}}`, "/a", "twice", ErrInvalid},
		{`{"type":"text"}`, "/type", "not a type", ErrInvalid},
		{`{"type":["string",3]}`, "/type/1", "not a type", ErrInvalid},
		{`{"properties":{"a~/b":{"type":3}}}`, "/properties/a~0~1b/type", "not a type", ErrInvalid},
		{`{"properties":[]}`, "/properties", "object of schemas", ErrInvalid},
		{`{"required":"a"}`, "/required", "list of names", ErrInvalid},
		{`{"enum":[]}`, "/enum", "list of values", ErrInvalid},
		{`{"anyOf":[]}`, "/anyOf", "list of schemas", ErrInvalid},
		{`{"minLength":-1}`, "/minLength", "count", ErrInvalid},
		{`{"maxItems":1.5}`, "/maxItems", "count", ErrInvalid},
		{`{"minimum":"1"}`, "/minimum", "a number", ErrInvalid},
		{`{"pattern":"("}`, "/pattern", "missing closing", ErrInvalid},
		{`{"pattern":"(?=a)"}`, "/pattern", "look ahead", ErrUnsupported},
		{`{"pattern":"\\bа"}`, "/pattern", "word boundaries", ErrUnsupported},
		{`{"type":"string","format":"iri"}`, "/format", "\"iri\" is not supported; date,", ErrUnsupported},
		{`{"not":{}}`, "/not", "not supported", ErrUnsupported},
		{`{"items":{"if":{},"then":{}}}`, "/items/if", "not supported", ErrUnsupported},
		{`{"patternProperties":{"^a":{}}}`, "/patternProperties", "not supported", ErrUnsupported},
		{`{"uniqueItems":true}`, "/uniqueItems", "remembered", ErrUnsupported},
		{`{"typ":"string"}`, "/typ", "not known", ErrUnsupported},
		{`{"enum":["a"],"minLength":2}`, "/minLength", "beside enum", ErrUnsupported},
		{`{"multipleOf":0.3}`, "/multipleOf", "powers of ten", ErrUnsupported},
		{`{"type":"integer","multipleOf":1001}`, "/multipleOf", "more than 1000", ErrUnsupported},
		{`{"minimum":1e999}`, "/minimum", "too many digits", ErrUnsupported},
		{`{"$ref":"other.json#/a"}`, "/$ref", "within the document only", ErrUnsupported},
		{`{"$ref":"#/$defs/x"}`, "/$ref", "nothing at", ErrInvalid},
		{`{"$ref":"#"}`, "", "refers to itself", ErrInvalid},
		{`{"allOf":[{"$ref":"#"}]}`, "", "refers to itself", ErrInvalid},
		{`{"anyOf":[{"type":"null"},{"$ref":"#"}]}`, "", "refers to itself", ErrInvalid},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, "/$defs/a", "refers to itself", ErrInvalid},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, "/oneOf/1", "alternative 0", ErrUnsupported},
		{`{"oneOf":[{"properties":{"a":{}}},{"type":"string"}]}`, "/oneOf/1", "use anyOf", ErrUnsupported},
		{`{"oneOf":[{"type":"object","properties":{"b":{}},"required":["a"]},{"type":"object","required":["b"]}]}`, "/oneOf/1", "use anyOf", ErrUnsupported},
		{`{"additionalProperties":true,"minProperties":3}`, "/minProperties", "could be the same", ErrUnsupported},
		{`false`, "", "matches nothing", ErrEmpty},
		{`{"minItems":3,"maxItems":2}`, "", "matches nothing", ErrEmpty},
		{`{"allOf":[{"type":"string"},{"type":"null"}]}`, "", "matches nothing", ErrEmpty},
		{`{"type":"object","required":["a"],"additionalProperties":false}`, "", "matches nothing", ErrEmpty},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "", "matches nothing", ErrEmpty},
		{`{"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2}`, "", "matches nothing", ErrEmpty},
		{nested, "", "nesting", ErrLimit},
		{`{"minLength":100000}`, "", "repetitions", ErrLimit},
		{`{"properties":{"x":{}` + wide.String() + `}}`, "", "more than", ErrLimit},
		{`{"items":[` + strings.Repeat(`{"maxProperties":30000},`, 2000) + `{}]}`, "", "states", ErrLimit},
		{`{"items":[` + strings.Repeat(`{"multipleOf":997,"minimum":-1`+strings.Repeat("0", 390)+`},`, 2000) + `{}]}`, "", "states", ErrLimit},
		{`{"items":[` + strings.Repeat(`{"pattern":"^(?:\\p{L}?a?b?c?){500}$"},`, 2000) + `{}]}`, "", "states", ErrLimit},
		{`{"items":[` + strings.Repeat(`{"type":"string","format":"email","maxLength":30000},`, 2000) + `{}]}`, "", "states", ErrLimit},
		{`{"pattern":"(a{1000}){1000}"}`, "", "regular expression", ErrLimit},
	} {
		if underRace && len(c.schema) > 20000 {
			continue
		}
		_, err := Schema(background, []byte(c.schema))
		if err == nil || !strings.Contains(err.Error(), c.message) || !errors.Is(err, c.is) {
			t.Errorf("%.80s: error %v, want %q, %v", c.schema, err, c.message, c.is)
			continue
		}
		var e *SchemaError
		if errors.As(err, &e) && e.Pointer != c.pointer {
			t.Errorf("%.80s: the error points to %q, want %q", c.schema, e.Pointer, c.pointer)
		}
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := Schema(ctx, []byte(`{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Limits of numbers hold for all small numbers, compared with exact arithmetic.
func TestNumberLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	var texts []string
	for i := -130; i <= 130; i++ {
		texts = append(texts, fmt.Sprint(i))
		sign, a := "", i
		if a < 0 {
			sign, a = "-", -a
		}
		texts = append(texts, fmt.Sprintf("%s%d.%d", sign, a/10, a%10), fmt.Sprintf("%s%d.%02d", sign, a/100, a%100), fmt.Sprintf("%s%d.%d0", sign, a/10, a%10))
	}
	for range 80 {
		kind := []string{"integer", "number"}[r.IntN(2)]
		schema := map[string]any{"type": kind}
		pick := func() json.Number { return json.Number(texts[r.IntN(len(texts))]) }
		if r.IntN(4) > 0 {
			schema[[]string{"minimum", "exclusiveMinimum"}[r.IntN(2)]] = pick()
		}
		if r.IntN(4) > 0 {
			schema[[]string{"maximum", "exclusiveMaximum"}[r.IntN(2)]] = pick()
		}
		if kind == "integer" && r.IntN(3) == 0 {
			schema["multipleOf"] = json.Number(fmt.Sprint(1 + r.IntN(12)))
		}
		source, _ := json.Marshal(schema)
		g, err := Schema(background, source)
		v := &validator{}
		if errors.Is(err, ErrEmpty) {
			for _, text := range texts {
				if v.check(schema, json.Number(text)) == "" {
					t.Errorf("%s: matches nothing, not even %s", source, text)
				}
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		for _, text := range texts {
			d, _ := new(big.Rat).SetString(text)
			if strings.HasPrefix(text, "-") && d.Sign() == 0 || kind == "integer" && strings.Contains(text, ".") {
				continue // may or may not be written
			}
			if want := v.check(schema, json.Number(text)) == ""; matches(t, g, text) != want {
				t.Errorf("%s: %s matches: %v", source, text, !want)
			}
		}
	}
}
