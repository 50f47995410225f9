package chattemplate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// hostile templates must end in an error, or in an end, within the budgets.
var hostile = map[string]string{
	"long loop":            `{% for i in range(1000000000) %}x{% endfor %}`,
	"long string":          `{{ 'x' * 10000000000 }}`,
	"nested loops":         `{% for i in range(25000) %}{% for j in range(25000) %}{% endfor %}{% endfor %}`,
	"nested loops, output": `{% for i in range(25000) %}{% for j in range(25000) %}xxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}`,
	"indent":               `{{ 'a'|indent(10000000000) }}`,
	"indent lines":         `{{ ('a\n' * 100000)|indent(100000) }}`,
	"macro":                `{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`,
	"macro, filtered":      `{% macro m(x) %}{% filter upper %}{{ m(x ~ 'x') }}{% endfilter %}{% endmacro %}{{ m('') }}`,
	"call block":           `{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}`,
	"recursive loop":       `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`,
	"class":                `{{ ''.__class__ }}`,
	"class by item":        `{{ ''['__class__'] }}`,
	"class by filter":      `{{ ''|attr('__class__') }}`,
	"class by format":      `{{ '{0.__class__}'.format('') }}`,
	"class by path":        `{{ ['']|map(attribute='__class__')|list }}`,
	"append":               `{{ [].append(1) }}`,
	"list doubling":        `{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`,
	"string doubling":      `{% set ns = namespace(x='xx') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`,
	"replace":              `{% set ns = namespace(x='xx') %}{% for i in range(100) %}{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}`,
	"replace nothing":      `{{ ('x' * 1000000).replace('', 'y' * 1000000) }}`,
	"join":                 `{{ ('x' * 100000)|join('y' * 100000) }}`,
	"list times":           `{{ [1] * 10000000000 }}`,
	"power":                `{{ 2 ** 100000000 }}`,
	"tower":                `{{ 9 ** 9 ** 9 ** 9 }}`,
	"big product":          `{% set ns = namespace(x=3) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x %}{% endfor %}`,
	"center":               `{{ 'x'|center(10000000000) }}`,
	"ljust":                `{{ 'x'.ljust(10000000000) }}`,
	"zfill":                `{{ 'x'.zfill(10000000000) }}`,
	"printf width":         `{{ '%10000000000s' % 'x' }}`,
	"printf precision":     `{{ '%.1000000000f' % 1.5 }}`,
	"format width":         `{{ '{:10000000000}'.format(1) }}`,
	"format zeros":         `{{ '{:0100000000,}'.format(1) }}`,
	"format precision":     `{{ '{:.1000000000f}'.format(1.5) }}`,
	"deep list":            `{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}`,
	"deep json":            `{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}`,
	"deep equality":        `{% set ns = namespace(x=[], y=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}`,
	"deep key":             `{% set ns = namespace(x=()) %}{% for i in range(100000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}`,
	"wide key":             `{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}`,
	"wide print":           `{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}`,
	"wide equality":        `{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}`,
	"json indent":          `{{ [[[[1]]]]|tojson(indent=10000000000) }}`,
	"generators":           `{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}`,
	"self in namespace":    `{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}`,
	"slow search":          `{% set a = 'a' * 3000000 %}{% for i in range(100000) %}{{ 'b' in a }}{% endfor %}`,
	"slow compare":         `{% set a = 'a' * 3000000 %}{% set b = 'a' * 3000000 %}{% for i in range(100000) %}{% if a != b %}{% endif %}{% endfor %}`,
	"slow length":          `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if a|length == 1 %}{% endif %}{% endfor %}`,
	"slow truth":           `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if a %}{% endif %}{% endfor %}`,
	"slow test":            `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if a is lower %}{% endif %}{% endfor %}`,
	"slow list":            `{% set a = [1] * 300000 %}{% for i in range(100000) %}{% if 2 in a %}{% endif %}{% endfor %}`,
	"slow index":           `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if a[i] %}{% endif %}{% endfor %}`,
	"slow hash":            `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if {}[a] %}{% endif %}{% endfor %}`,
	"slow sort":            `{% for i in range(10000) %}{% set x = range(100000)|sort(reverse=true) %}{% endfor %}`,
	"wordwrap":             `{{ ('x' * 1000000)|wordwrap(1) }}`,
	"batch fill":           `{{ [1]|batch(10000000000, 0)|list }}`,
	"slices":               `{{ [1]|slice(10000000000)|list }}`,
	"split":                `{{ ('a,' * 1000000).split(',')|length }}`,
	"lines":                `{{ ('a\n' * 2000000).splitlines()|length }}`,
	"cycler":               `{% set c = cycler(1,2) %}{% for i in range(100000) %}{% for j in range(100000) %}{% set x = c.next() %}{% endfor %}{% endfor %}`,
	"strip set":            `{% set a = 'é' * 3000000 %}{% for i in range(100000) %}{% if 'x'.strip(a) %}{% endif %}{% endfor %}`,
	"raise long":           `{{ raise_exception('x' * 10000000) }}`,
	"strftime":             `{{ strftime_now('%c' * 1000000) }}`,
	"many parameters":      "{% macro m(" + manyNames(20000) + ") %}{% endmacro %}{% set d = dict(" + strings.Repeat("x", 900) + "=1) %}{% for i in range(100000) %}{{ m(**d) if i else '' }}{% endfor %}",
	"star arguments":       `{% macro m() %}{{ varargs|length }}{% endmacro %}{% set a = [1] * 200000 %}{% for i in range(100000) %}{{ m(*a) }}{% endfor %}`,
	"long path":            `{% set p = 'a.' * 1000000 %}{% for i in range(100000) %}{{ [1]|map(attribute=p)|list }}{% endfor %}`,
	"long attribute":       `{% set p = 'a.' * 1000000 %}{% for i in range(100000) %}{{ [1][p] }}{% endfor %}`,
	"long filter":          `{% set p = 'a.' * 1000000 %}{% for i in range(100000) %}{{ [1]|map(p)|list }}{% endfor %}`,
	"long name":            "{{ " + strings.Repeat("x", 1<<19) + " }}",
	"long flags":           `{% set p = '%' + '0' * 1000000 + 'd' %}{% for i in range(100000) %}{{ p % 1 }}{% endfor %}`,
	"big products":         `{% set x = 3 ** 4000 %}{% for i in range(100000) %}{% if x * 3 // 7 % x %}{% endif %}{% if x * x * 0 %}{% endif %}{% endfor %}`,
	"powers":               `{% for i in range(100000) %}{% for j in range(100) %}{% if 3 ** 8000 %}{% endif %}{% endfor %}{% endfor %}`,
	"big digits":           `{% set x = 3 ** 8000 %}{% for i in range(100000) %}{% if '%d' % x %}{% endif %}{% endfor %}`,
	"undefined names":      `{% for i in range(100000) %}{% for j in range(1000) %}{% if q %}{% endif %}{% if q.r is defined %}{% endif %}{% endfor %}{% endfor %}`,
	"marks":                `{% for i in range(100000) %}{% set x = ((add_generation_prompt|string) ~ '<>') * 1000 %}{% for c in x %}{% endfor %}{% endfor %}`,
	"source of {{":         strings.Repeat("{{", 1<<19),
	"source of (":          "{{ " + strings.Repeat("(", 1<<20-8),
	"source of [":          "{{ " + strings.Repeat("[", 1<<20-8),
	"source of not":        "{{ " + strings.Repeat("not ", 1<<18-8),
	"source of -":          "{{ " + strings.Repeat("- ", 1<<19-8),
	"source of if":         strings.Repeat("{% if 1 %}", 1<<16),
	"source of for (":      "{% for " + strings.Repeat("(", 1<<19),
	"source of items":      "{{ [" + strings.Repeat("a,", 1<<19-8) + "] }}",
	"source of +":          "{{ " + strings.Repeat("1+", 1<<19-8) + "1 }}",
	"source of |":          "{{ 'x'" + strings.Repeat("|e", 1<<19-8) + " }}",
	"source of .":          "{{ x" + strings.Repeat(".a", 1<<19-8) + " }}",
	"source of is":         "{{ x is a" + strings.Repeat(".a", 1<<19-8) + " }}",
	"source of else":       "{{ 1" + strings.Repeat(" if 1 else 1", 1<<16) + " }}",
	"source of {%":         strings.Repeat("{%", 1<<19),
	"source of {#":         strings.Repeat("{#", 1<<19),
	"source of raw":        "{% raw %}" + strings.Repeat("{% ", 1<<18),
	"source of spaces":     strings.Repeat("{%-  ", 1<<17),
	"source too long":      strings.Repeat("x", 1<<21),
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d, ", i)
	}
	return b.String() + "b"
}

// harmless are those that may end without an error.
var harmless = map[string]bool{"split": true, "lines": true, "self in namespace": true, "tower": true, "slow truth": true}

// Case B16: templates that eat the machine, or reach out of their box.
func TestHostileTemplates(t *testing.T) {
	const mostMemory = 64 << 20
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			var err error
			start := time.Now()
			grown := peakHeap(func() { err = parseAndRender(source) })
			t.Logf("%v, %d MiB, %.200v", time.Since(start), grown>>20, err)
			if grown > mostMemory {
				t.Errorf("%d MiB more in use", grown>>20)
			}
			var se *SyntaxError
			var re *RenderError
			switch {
			case err == nil && !harmless[name]:
				t.Errorf("no error")
			case err != nil && !errors.As(err, &se) && !errors.As(err, &re):
				t.Errorf("error of type %T: %v", err, err)
			}
		})
	}
}

func parseAndRender(source string) error {
	tmpl, err := Parse(source)
	if err != nil {
		return err
	}
	_, err = tmpl.Render(context.Background(), NewObject())
	return err
}

// peakHeap samples how far the heap grows while f runs.
func peakHeap(f func()) int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	read := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
	}
	runtime.GC()
	before := read()
	peak := before
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			peak = max(peak, read())
			select {
			case <-done:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return peak - before
}

// TestCancellation ends a rendering that would take long from outside.
func TestCancellation(t *testing.T) {
	all := Options{MaxSteps: 1 << 50}
	tmpl, err := Parse(`{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}`, WithOptions(all))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err = tmpl.Render(ctx, NewObject()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = tmpl.Render(canceled, NewObject()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancellation", err)
	}
}

func TestErrorKinds(t *testing.T) {
	for source, want := range map[string]error{
		`{{ ''.__class__ }}`:          ErrSecurity,
		`{{ [].append(1) }}`:          ErrSecurity,
		`{{ {}.update(a=1) }}`:        ErrSecurity,
		`{{ raise_exception('no') }}`: ErrRaised,
		`{{ a.b }}`:                   ErrUndefined,
		`{{ 1 + 'a' }}`:               ErrType,
		`{{ 1 // 0 }}`:                ErrValue,
		`{{ [1][::0] }}`:              ErrValue,
		`{{ range(100001) }}`:         ErrLimit,
		`{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`: ErrLimit,
	} {
		if err := parseAndRender(source); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", source, err, want)
		}
	}
	err := parseAndRender("a\n{{ b }}\n  {{ raise_exception('no ' ~ 1) }}")
	var re *RenderError
	if !errors.As(err, &re) || re.Message != "no 1" || re.Line != 3 || re.Column != 21 {
		t.Errorf("got %#v", err)
	}
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct {
		source       string
		line, column int
		message      string
	}{
		{"{{ a b }}", 1, 6, "unexpected 'b', expected '}}'"},
		{"x\n{% if %}", 2, 7, "unexpected '%}', expected an expression"},
		{"{% if a %}", 1, 11, "the template ends where {% elif %} or {% else %} or {% endif %} is due"},
		{"{% include 'a' %}", 1, 4, "{% include %} is not supported: a chat template stands alone"},
		{"{% extends 'a' %}", 1, 4, "{% extends %} is not supported: a chat template stands alone"},
		{"{% what %}", 1, 4, "unknown tag 'what'"},
		{"{{ a|what }}", 1, 6, "no filter named 'what'"},
		{"{{ a is what }}", 1, 9, "no test named 'what'"},
		{"{{ (a] }}", 1, 6, "unexpected ']', expected ')'"},
		{"{{ 'a }}", 1, 4, "string without its closing quote"},
		{"{{ '\\xg' }}", 1, 5, "bad escape in a string"},
		{"{# a", 1, 1, "comment without its end '#}'"},
		{"{% raw %}", 1, 1, "raw block without its endraw"},
		{"{{ a ! b }}", 1, 6, "unexpected character ! b }}"},
		{"{% break %}", 1, 4, "'break' outside of a loop"},
		{"{% endif %}", 1, 4, "unknown tag 'endif'"},
		{"{% set none = 1 %}", 1, 8, "cannot assign to 'none'"},
		{"{{ f(a=1, 2) }}", 1, 12, "a positional argument follows a named or starred one"},
	} {
		_, err := Parse(c.source)
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("%s: got %v", c.source, err)
			continue
		}
		if se.Line != c.line || se.Column != c.column || se.Message != c.message {
			t.Errorf("%s: got %v\nwant line %d, column %d: %s", c.source, err, c.line, c.column, c.message)
		}
	}
}
