package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// validator judges documents by schemas, written from the standard alone and knowing
// nothing of grammars. Its patterns must mean the same in Go's syntax.
type validator struct{ root any }

func decode(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q is not JSON: %v", text, err)
	}
	if d.More() {
		t.Fatalf("%q: something follows", text)
	}
	return v
}

func number(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	r, _ := new(big.Rat).SetString(n.String())
	return r
}

func equal(a, b any) bool {
	if x, y := number(a), number(b); x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func (v *validator) isType(doc any, name string) bool {
	switch d := doc.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	default:
		return name == "number" || name == "integer" && number(d).IsInt()
	}
}

// check returns what is wrong with a document, or "".
func (v *validator) check(schema, doc any) string {
	if b, ok := schema.(bool); ok {
		if b {
			return ""
		}
		return "nothing is valid"
	}
	s := schema.(map[string]any)
	if nullable, _ := s["nullable"].(bool); nullable && doc == nil {
		return ""
	}
	for _, f := range []func(map[string]any, any) string{
		v.general, v.combined, v.object, v.array, v.text, v.number,
	} {
		if problem := f(s, doc); problem != "" {
			return problem
		}
	}
	return ""
}

func (v *validator) general(s map[string]any, doc any) string {
	switch t := s["type"].(type) {
	case string:
		if !v.isType(doc, t) {
			return fmt.Sprintf("%v is no %s", doc, t)
		}
	case []any:
		ok := false
		for _, name := range t {
			ok = ok || v.isType(doc, name.(string))
		}
		if !ok {
			return fmt.Sprintf("%v is none of %v", doc, t)
		}
	}
	if c, ok := s["const"]; ok && !equal(c, doc) {
		return fmt.Sprintf("%v is not %v", doc, c)
	}
	if list, ok := s["enum"].([]any); ok {
		for _, e := range list {
			if equal(e, doc) {
				return ""
			}
		}
		return fmt.Sprintf("%v is not in %v", doc, list)
	}
	return ""
}

func (v *validator) combined(s map[string]any, doc any) string {
	if r, ok := s["$ref"].(string); ok {
		at := v.root
		r, _ := url.PathUnescape(r)
		for _, step := range strings.Split(strings.TrimPrefix(r, "#"), "/")[1:] {
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			if list, ok := at.([]any); ok {
				i, _ := strconv.Atoi(step)
				at = list[i]
			} else {
				at = at.(map[string]any)[step]
			}
		}
		if problem := v.check(at, doc); problem != "" {
			return problem
		}
	}
	count := func(key string) (int, int) {
		list, _ := s[key].([]any)
		n := 0
		for _, e := range list {
			if v.check(e, doc) == "" {
				n++
			}
		}
		return n, len(list)
	}
	if n, of := count("allOf"); n != of {
		return "not all of allOf"
	}
	if n, of := count("anyOf"); of > 0 && n == 0 {
		return "none of anyOf"
	}
	if n, of := count("oneOf"); of > 0 && n != 1 {
		return fmt.Sprintf("%d of oneOf: %v", n, doc)
	}
	return ""
}

func bound(s map[string]any, key string) (*big.Rat, bool) {
	r := number(s[key])
	return r, r != nil
}

// within checks a count by two keywords.
func within(s map[string]any, low, high string, n int) string {
	k := big.NewRat(int64(n), 1)
	if b, ok := bound(s, low); ok && k.Cmp(b) < 0 {
		return fmt.Sprintf("%d is less than %s", n, low)
	}
	if b, ok := bound(s, high); ok && k.Cmp(b) > 0 {
		return fmt.Sprintf("%d is more than %s", n, high)
	}
	return ""
}

func (v *validator) object(s map[string]any, doc any) string {
	d, ok := doc.(map[string]any)
	if !ok {
		return ""
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := d[name.(string)]; !ok {
			return fmt.Sprintf("%v is missing", name)
		}
	}
	declared, _ := s["properties"].(map[string]any)
	for name, value := range d {
		if names, ok := s["propertyNames"]; ok {
			if problem := v.check(names, name); problem != "" {
				return problem
			}
		}
		own, ok := declared[name]
		if !ok {
			own, ok = s["additionalProperties"]
		}
		if ok {
			if problem := v.check(own, value); problem != "" {
				return name + ": " + problem
			}
		}
	}
	return within(s, "minProperties", "maxProperties", len(d))
}

func (v *validator) array(s map[string]any, doc any) string {
	d, ok := doc.([]any)
	if !ok {
		return ""
	}
	prefix, _ := s["prefixItems"].([]any)
	rest := s["items"]
	if list, ok := rest.([]any); ok {
		prefix, rest = list, s["additionalItems"]
	}
	for i, item := range d {
		own := rest
		if i < len(prefix) {
			own = prefix[i]
		}
		if own != nil {
			if problem := v.check(own, item); problem != "" {
				return problem
			}
		}
	}
	return within(s, "minItems", "maxItems", len(d))
}

func (v *validator) text(s map[string]any, doc any) string {
	d, ok := doc.(string)
	if !ok {
		return ""
	}
	if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(d) {
		return fmt.Sprintf("%q does not match %s", d, p)
	}
	var err error
	switch s["format"] {
	case "date":
		_, err = time.Parse("2006-01-02", d)
	case "time":
		_, err = time.Parse("15:04:05.999999999Z07:00", d)
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, d)
	case "ipv4", "ipv6":
		_, err = netip.ParseAddr(d)
	case "uuid":
		if !regexp.MustCompile(`^[0-9a-fA-F-]{36}$`).MatchString(d) {
			err = fmt.Errorf("%q is no UUID", d)
		}
	case "email":
		if strings.Count(d, "@") != 1 || strings.ContainsAny(d, " \"") {
			err = fmt.Errorf("%q is no address", d)
		}
	}
	if err != nil {
		return err.Error()
	}
	return within(s, "minLength", "maxLength", utf8.RuneCountInString(d))
}

func (v *validator) number(s map[string]any, doc any) string {
	d := number(doc)
	if d == nil {
		return ""
	}
	for key, wrong := range map[string]func(c int) bool{
		"minimum":          func(c int) bool { return c < 0 },
		"maximum":          func(c int) bool { return c > 0 },
		"exclusiveMinimum": func(c int) bool { return c <= 0 },
		"exclusiveMaximum": func(c int) bool { return c >= 0 },
	} {
		if b, ok := bound(s, key); ok && wrong(d.Cmp(b)) {
			return fmt.Sprintf("%v is beyond %s", doc, key)
		}
	}
	if m, ok := bound(s, "multipleOf"); ok && !new(big.Rat).Quo(d, m).IsInt() {
		return fmt.Sprintf("%v is no multiple", doc)
	}
	return ""
}
