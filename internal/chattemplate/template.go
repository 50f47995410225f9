package chattemplate

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/exp/slices"
)

// Options set a template's budgets and its clock. The zero value means the
// defaults.
type Options struct {
	// MaxSteps is the number of operations a rendering may take: 4 million and
	// 64 for each byte of the variables by default, well under a second.
	MaxSteps int64
	// MaxMemory is the number of bytes that strings and containers may take in
	// all, garbage included: 12 MiB and 64 for each byte of the variables.
	MaxMemory int64
	// MaxOutput is the size of the text: 8 MiB and 8 for each byte of the variables.
	MaxOutput int64
	// Now gives strftime_now its time; time.Now by default.
	Now func() time.Time
	// Roles are the values of messages[i].role that count as trusted, so that
	// '<|' + role + '|>' may form a control token. By default: system,
	// developer, user, assistant, tool, function, ipython, model.
	Roles []string
}

// Option changes one of the Options.
type Option func(*Options)

// WithClock sets the time that strftime_now prints.
func WithClock(now func() time.Time) Option { return func(o *Options) { o.Now = now } }

// WithOptions replaces all options at once.
func WithOptions(all Options) Option { return func(o *Options) { *o = all } }

var defaultRoles = []string{"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"}

// Template is a parsed template.
type Template struct {
	source  string
	body    []stmt
	options Options
}

// Parse reads a template's source. One line break at its very end is dropped,
// as jinja does. The error is a *SyntaxError.
func Parse(source string, opts ...Option) (*Template, error) {
	if len(source) > maxSource {
		cause := &LimitError{What: "source bytes", Limit: maxSource}
		return nil, &SyntaxError{Line: 1, Column: 1, Message: cause.Error(), Err: cause}
	}
	t := &Template{source: normalSource(source)}
	for _, o := range opts {
		o(&t.options)
	}
	if t.options.Now == nil {
		t.options.Now = time.Now
	}
	if t.options.Roles == nil {
		t.options.Roles = defaultRoles
	}
	var err error
	t.body, err = parse(t.source)
	if err != nil {
		return nil, err
	}
	return t, nil
}

var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func normalSource(s string) string {
	if strings.Contains(s, "\r") {
		s = lineBreaks.Replace(s)
	}
	return strings.ToValidUTF8(strings.TrimSuffix(s, "\n"), "\uFFFD")
}

// Output is a rendered prompt.
type Output struct {
	Text string
	// Untrusted are the byte ranges of Text that came from the variables,
	// sorted, disjoint, not empty.
	Untrusted []Span
}

// Render is RenderSpans without the spans.
func (t *Template) Render(ctx context.Context, vars *Object) (string, error) {
	out, err := t.RenderSpans(ctx, vars)
	return out.Text, err
}

// RenderSpans renders the template. The values of vars, and what they contain,
// are nil, bool, string, [Trusted], Go's integers and floats, *big.Int, []any,
// []string, *Object, []*Object: what [Decode] returns and a little more. Go
// maps are refused, as they have no order. As in transformers, tools and
// documents are None and add_generation_prompt is False unless vars has them.
// Strings that are not UTF-8 get U+FFFD for the bytes that are not.
func (t *Template) RenderSpans(ctx context.Context, vars *Object) (Output, error) {
	size, err := sizeOf(vars, 0)
	if err != nil {
		return Output{}, err
	}
	r := t.newRun(ctx, size)
	if err := r.ctx.Err(); err != nil {
		return Output{}, &RenderError{Message: err.Error(), Err: err}
	}
	root := &scope{}
	root.set("tools", nil)
	root.set("documents", nil)
	root.set("add_generation_prompt", false)
	for name, v := range vars.All() {
		converted, err := t.fromGo(v, name == "messages")
		if err != nil {
			return Output{}, err
		}
		root.set(name, converted)
	}
	r.scope = &scope{parent: root}
	text, err := r.capture(func() error { return r.exec(t.body) })
	if err != nil {
		return Output{}, err
	}
	out := Output{Text: text.s, Untrusted: text.marks}
	if text.tainted {
		out.Untrusted = []Span{{0, len(text.s)}}
	}
	return out, nil
}

func (t *Template) newRun(ctx context.Context, size int64) *run {
	budget := func(set, base, perByte int64) int64 {
		if set > 0 {
			return set
		}
		return base + perByte*size
	}
	return &run{
		ctx:      ctx,
		tmpl:     t,
		now:      t.options.Now,
		maxSteps: budget(t.options.MaxSteps, 4_000_000, 64),
		maxMem:   budget(t.options.MaxMemory, 12<<20, 64),
		maxOut:   budget(t.options.MaxOutput, 8<<20, 8),
	}
}

// sizeOf is the approximate number of bytes in v; it also refuses nesting that
// is too deep, or has no end.
func sizeOf(v any, depth int) (int64, error) {
	const overhead = 16
	if depth > maxDecodeDepth {
		return 0, limitError("levels of nesting in the variables", maxDecodeDepth)
	}
	total := int64(overhead)
	add := func(v any) error {
		n, err := sizeOf(v, depth+1)
		total += n
		return err
	}
	switch v := v.(type) {
	case string:
		total += int64(len(v))
	case Trusted:
		total += int64(len(v))
	case []string:
		for _, s := range v {
			total += overhead + int64(len(s))
		}
	case []any:
		for _, item := range v {
			if err := add(item); err != nil {
				return 0, err
			}
		}
	case []*Object:
		for _, item := range v {
			if err := add(item); err != nil {
				return 0, err
			}
		}
	case *Object:
		for k, item := range v.All() {
			total += int64(len(k))
			if err := add(item); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

// fromGo converts a variable. messages says that v is the list of messages,
// whose roles may be trusted.
func (t *Template) fromGo(v any, messages bool) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, nil
	case string:
		return fromString(v), nil
	case Trusted:
		return literal(strings.ToValidUTF8(string(v), "\uFFFD")), nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case uint32:
		return int64(v), nil
	case uint64:
		return normalInt(new(big.Int).SetUint64(v)), nil
	case float32:
		return float64(v), nil
	case *big.Int:
		if v.BitLen() > maxIntBits {
			return nil, limitError("integer bits", maxIntBits)
		}
		return normalInt(new(big.Int).Set(v)), nil
	case []string:
		return fromSlice(t, v, false)
	case []any:
		return fromSlice(t, v, messages)
	case []*Object:
		return fromSlice(t, v, messages)
	case *Object:
		if v == nil {
			return nil, nil
		}
		return t.fromObject(v, false)
	}
	return nil, typeErrorf("a variable is of Go type %T; use nil, bool, string, int64, float64, []any or *Object", v)
}

func fromString(s string) *text {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return &text{s: s, tainted: s != ""}
}

func fromSlice[T any](t *Template, items []T, messages bool) (any, error) {
	l := &list{make([]any, len(items))}
	for i, item := range items {
		var err error
		if o, ok := any(item).(*Object); ok && messages && o != nil {
			l.items[i], err = t.fromObject(o, true)
		} else {
			l.items[i], err = t.fromGo(item, false)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (t *Template) fromObject(o *Object, message bool) (any, error) {
	d := newDict(o.Len())
	for k, v := range o.All() {
		value, err := t.fromGo(v, false)
		if err != nil {
			return nil, fmt.Errorf("%w (under key %q)", err, clip(k))
		}
		if role, ok := v.(string); ok && message && k == "role" && slices.Contains(t.options.Roles, role) {
			value = literal(role)
		}
		key := fromString(k)
		if i, ok := d.index[key.s]; ok { // keys that differ in invalid bytes only
			d.entries[i].value = value
			continue
		}
		d.index[key.s] = len(d.entries)
		d.entries = append(d.entries, entry{key, value})
	}
	return d, nil
}
