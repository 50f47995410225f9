package chattemplate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// globals are the functions of jinja and of transformers. lipsum is left out.
var globals = map[string]any{
	"range":           &function{"range", globalRange},
	"dict":            &function{"dict", globalDict},
	"namespace":       &function{"namespace", globalNamespace},
	"cycler":          &function{"cycler", globalCycler},
	"joiner":          &function{"joiner", globalJoiner},
	"raise_exception": &function{"raise_exception", globalRaise},
	"strftime_now":    &function{"strftime_now", globalNow},
}

// maxRange is the sandbox's own bound.
const maxRange = 100000

func globalRange(_ *run, a *args) (any, error) {
	if len(a.names) > 0 || len(a.pos) == 0 || len(a.pos) > 3 {
		return nil, typeErrorf("range expected 1 to 3 positional arguments")
	}
	var n [3]int64
	for i, v := range a.pos {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
		value, ok := smallInt(v)
		if !ok {
			return nil, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(v))
		}
		const far = 1 << 53 // keeps every sum of them exact
		if value > far || value < -far {
			return nil, limitError("items in a range", maxRange)
		}
		n[i] = value
	}
	v := &rangeValue{0, n[0], 1}
	if len(a.pos) > 1 {
		v.start, v.stop = n[0], n[1]
	}
	if len(a.pos) > 2 {
		if v.step = n[2]; v.step == 0 {
			return nil, valueErrorf("range() arg 3 must not be zero")
		}
	}
	if items := (v.stop - v.start) / v.step; items > maxRange || v.len() > maxRange {
		return nil, limitError("items in a range", maxRange)
	}
	return v, nil
}

// globalDict is dict(mapping or pairs, name=value...).
func globalDict(r *run, a *args) (any, error) {
	if len(a.pos) > 1 {
		return nil, typeErrorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := newDict(0)
	if len(a.pos) == 1 {
		if err := d.update(r, a.pos[0]); err != nil {
			return nil, err
		}
	}
	for i, name := range a.names {
		if err := d.set(r, literal(name), a.named[i]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *dict) update(r *run, v any) error {
	if from, ok := v.(*dict); ok {
		for _, e := range from.entries {
			if err := d.set(r, e.key, e.value); err != nil {
				return err
			}
		}
		return nil
	}
	pairs, err := collect(r, v)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		pair, err := collect(r, p)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return valueErrorf("a dict is made of pairs; one item has %d elements", len(pair))
		}
		if err := d.set(r, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

func globalNamespace(r *run, a *args) (any, error) {
	d, err := globalDict(r, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*dict)}, nil
}

func globalCycler(_ *run, a *args) (any, error) {
	if len(a.pos) == 0 || len(a.names) > 0 {
		return nil, typeErrorf("cycler takes at least one item")
	}
	return &cycler{items: a.pos}, nil
}

func globalJoiner(_ *run, a *args) (any, error) {
	v, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	if v[0] == absent {
		v[0] = literal(", ")
	}
	return &joiner{sep: v[0]}, nil
}

func globalRaise(r *run, a *args) (any, error) {
	v, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return nil, err
	}
	t, err := toText(r, v[0])
	if err != nil {
		return nil, err
	}
	return nil, &RenderError{Message: t.s, Err: ErrRaised}
}

func globalNow(r *run, a *args) (any, error) {
	v, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return nil, err
	}
	format, err := textArg("strftime_now", v[0])
	if err != nil {
		return nil, err
	}
	if err := r.alloc(32 * len(format.s)); err != nil {
		return nil, err
	}
	return format.derive(strftime(r.now(), format.s)), nil
}

// strftime formats in the C locale. An unknown directive stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := true
		if format[i] == '-' && i+1 < len(format) {
			pad = false
			i++
		}
		s, ok := directive(t, format[i])
		if !ok {
			b.WriteByte('%')
			if !pad {
				b.WriteByte('-')
			}
			b.WriteByte(format[i])
			continue
		}
		if !pad {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

// layouts are the directives that Go's layouts can say.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
	'd': "02", 'e': "_2", 'D': "01/02/06", 'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01", 'M': "04",
	'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05",
	'y': "06", 'Y': "2006",
}

func directive(t time.Time, c byte) (string, bool) {
	if layout, ok := layouts[c]; ok {
		return t.Format(layout), true
	}
	year, week := t.ISOWeek()
	switch c {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'G':
		return strconv.Itoa(year), true
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'U': // weeks begin on Sunday
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7), true
	case 'W': // weeks begin on Monday
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7), true
	case 'V':
		return fmt.Sprintf("%02d", week), true
	case 'z', 'Z': // transformers' clock is naive: no zone
		return "", true
	}
	return "", false
}
