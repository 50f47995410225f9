package chattemplate

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// toText is str(v).
func toText(r *run, v any) (*text, error) {
	switch v := v.(type) {
	case *text:
		return v, nil
	case *undefined:
		return emptyText, nil
	case nil:
		return textNone, nil
	case bool:
		if v {
			return textTrue, nil
		}
		return textFalse, nil
	case int64:
		return literal(strconv.FormatInt(v, 10)), nil
	}
	return repr(r, v)
}

var (
	textNone  = literal("None")
	textTrue  = literal("True")
	textFalse = literal("False")
)

// repr is repr(v). Where it prints untrusted strings, all of it is untrusted.
func repr(r *run, v any) (*text, error) {
	p := printer{r: r}
	if err := p.value(v); err != nil {
		return nil, err
	}
	return p.text(), nil
}

// printer collects derived text: tainted as a whole if any of its sources is.
type printer struct {
	r       *run
	b       strings.Builder
	tainted bool
}

func (p *printer) text() *text {
	return &text{s: p.b.String(), tainted: p.tainted}
}

func (p *printer) write(s string) error {
	p.b.WriteString(s)
	return p.r.alloc(len(s))
}

func (p *printer) value(v any) error {
	if err := p.r.enter(); err != nil {
		return err
	}
	defer p.r.leave()
	switch v := v.(type) {
	case nil:
		return p.write("None")
	case bool:
		return p.write(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		return p.write(strconv.FormatInt(v, 10))
	case *big.Int:
		return p.write(v.String())
	case float64:
		return p.write(floatRepr(v))
	case *text:
		return p.quoted(v)
	case *list:
		return p.sequence("[", v.items, "]")
	case *tuple:
		return p.tuple(v)
	case *dict:
		return p.dict(v)
	case *dictView:
		items, err := collect(p.r, v)
		if err != nil {
			return err
		}
		return p.sequence("dict_"+v.kind+"([", items, "])")
	case *rangeValue:
		if v.step == 1 {
			return p.write(fmt.Sprintf("range(%d, %d)", v.start, v.stop))
		}
		return p.write(fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
	case *undefined:
		return p.write("Undefined")
	case *namespace:
		if err := p.write("<Namespace "); err != nil {
			return err
		}
		if err := p.dict(v.attrs); err != nil {
			return err
		}
		return p.write(">")
	case *macro:
		return p.write("<Macro '" + v.def.name + "'>")
	case *function:
		return p.write("<function " + v.name + ">")
	}
	return p.write("<" + typeName(v) + " object>")
}

func (p *printer) sequence(open string, items []any, closing string) error {
	if err := p.write(open); err != nil {
		return err
	}
	for i, item := range items {
		if i > 0 {
			if err := p.write(", "); err != nil {
				return err
			}
		}
		if err := p.value(item); err != nil {
			return err
		}
	}
	return p.write(closing)
}

func (p *printer) tuple(t *tuple) error {
	if len(t.items) == 1 {
		return p.sequence("(", t.items, ",)")
	}
	return p.sequence("(", t.items, ")")
}

func (p *printer) dict(d *dict) error {
	if err := p.write("{"); err != nil {
		return err
	}
	for i, e := range d.entries {
		if i > 0 {
			if err := p.write(", "); err != nil {
				return err
			}
		}
		if err := p.value(e.key); err != nil {
			return err
		}
		if err := p.write(": "); err != nil {
			return err
		}
		if err := p.value(e.value); err != nil {
			return err
		}
	}
	return p.write("}")
}

// quoted writes a string literal with Python's choice of quote and escapes.
func (p *printer) quoted(t *text) error {
	p.tainted = p.tainted || t.untrusted()
	if err := p.r.alloc(len(t.s)); err != nil {
		return err
	}
	if err := p.r.scan(len(t.s)); err != nil {
		return err
	}
	quote := '\''
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = '"'
	}
	open, closing := string(quote), string(quote)
	if t.safe {
		open, closing = "Markup("+open, closing+")"
	}
	p.b.WriteString(open)
	for _, c := range t.s {
		switch {
		case c == quote || c == '\\':
			p.b.WriteByte('\\')
			p.b.WriteRune(c)
		case c == '\n':
			p.b.WriteString(`\n`)
		case c == '\r':
			p.b.WriteString(`\r`)
		case c == '\t':
			p.b.WriteString(`\t`)
		case c == ' ' || unicode.IsPrint(c):
			p.b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&p.b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&p.b, `\u%04x`, c)
		default:
			fmt.Fprintf(&p.b, `\U%08x`, c)
		}
	}
	p.b.WriteString(closing)
	return nil
}

// jsonFormat are the parameters of json.dumps that templates use.
type jsonFormat struct {
	ascii     bool
	indent    string
	multiline bool
	itemSep   *text
	keySep    *text
	sortKeys  bool
	level     int
}

// json writes v as Python's json.dumps does.
func (p *printer) json(v any, f *jsonFormat) error {
	if err := p.r.enter(); err != nil {
		return err
	}
	defer p.r.leave()
	switch v := v.(type) {
	case nil:
		return p.write("null")
	case bool:
		return p.write(strconv.FormatBool(v))
	case float64:
		return p.write(jsonFloat(v))
	case int64, *big.Int:
		return p.value(v)
	case *text:
		return p.jsonString(v, f.ascii)
	case *list:
		return p.jsonArray(v.items, f)
	case *tuple:
		return p.jsonArray(v.items, f)
	case *dict:
		return p.jsonObject(v, f)
	}
	return typeErrorf("Object of type %s is not JSON serializable", typeName(v))
}

func jsonFloat(f float64) string {
	s := floatRepr(f)
	switch s {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	}
	return s
}

// newline begins a line at the current level, where lines are asked for.
func (p *printer) newline(f *jsonFormat) error {
	if !f.multiline {
		return nil
	}
	if err := p.write("\n"); err != nil {
		return err
	}
	for range f.level {
		if err := p.write(f.indent); err != nil {
			return err
		}
	}
	return nil
}

// jsonItems writes n items between brackets, each by item.
func (p *printer) jsonItems(open, closing string, n int, f *jsonFormat, item func(i int) error) error {
	if n == 0 {
		return p.write(open + closing)
	}
	if err := p.write(open); err != nil {
		return err
	}
	f.level++
	for i := range n {
		if i > 0 {
			if err := p.separator(f.itemSep); err != nil {
				return err
			}
		}
		if err := p.newline(f); err != nil {
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
	f.level--
	if err := p.newline(f); err != nil {
		return err
	}
	return p.write(closing)
}

func (p *printer) separator(t *text) error {
	p.tainted = p.tainted || t.untrusted()
	return p.write(t.s)
}

func (p *printer) jsonArray(items []any, f *jsonFormat) error {
	return p.jsonItems("[", "]", len(items), f, func(i int) error { return p.json(items[i], f) })
}

func (p *printer) jsonObject(d *dict, f *jsonFormat) error {
	entries := d.entries
	if f.sortKeys {
		var err error
		if entries, err = sortedEntries(p.r, entries); err != nil {
			return err
		}
	}
	return p.jsonItems("{", "}", len(entries), f, func(i int) error {
		key, err := jsonKey(entries[i].key)
		if err != nil {
			return err
		}
		if err := p.jsonString(key, f.ascii); err != nil {
			return err
		}
		if err := p.separator(f.keySep); err != nil {
			return err
		}
		return p.json(entries[i].value, f)
	})
}

func jsonKey(k any) (*text, error) {
	switch k := k.(type) {
	case *text:
		return k, nil
	case nil:
		return literal("null"), nil
	case bool:
		return literal(strconv.FormatBool(k)), nil
	case int64:
		return literal(strconv.FormatInt(k, 10)), nil
	case *big.Int:
		return literal(k.String()), nil
	case float64:
		return literal(jsonFloat(k)), nil
	}
	return nil, typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

func (p *printer) jsonString(t *text, ascii bool) error {
	p.tainted = p.tainted || t.untrusted()
	if err := p.r.alloc(len(t.s)); err != nil {
		return err
	}
	if err := p.r.scan(len(t.s)); err != nil {
		return err
	}
	before := p.b.Len()
	p.b.WriteByte('"')
	for _, c := range t.s {
		switch {
		case c == '"' || c == '\\':
			p.b.WriteByte('\\')
			p.b.WriteRune(c)
		case c == '\n':
			p.b.WriteString(`\n`)
		case c == '\r':
			p.b.WriteString(`\r`)
		case c == '\t':
			p.b.WriteString(`\t`)
		case c == '\b':
			p.b.WriteString(`\b`)
		case c == '\f':
			p.b.WriteString(`\f`)
		case c < ' ' || ascii && c >= 0x7f && c < 0x10000:
			fmt.Fprintf(&p.b, `\u%04x`, c)
		case ascii && c >= utf8.RuneSelf:
			c -= 0x10000
			fmt.Fprintf(&p.b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			p.b.WriteRune(c)
		}
	}
	p.b.WriteByte('"')
	return p.r.alloc(max(0, p.b.Len()-before-len(t.s)))
}
