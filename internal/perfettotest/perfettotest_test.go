package perfettotest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// file is a timeline of some events on thread 2.
func file(events ...string) []byte {
	head := []string{
		`{"ph":"M","ts":0,"pid":1,"tid":1,"name":"process_name","args":{"name":"p"}}`,
		`{"ph":"M","ts":0,"pid":1,"tid":2,"name":"thread_name","args":{"name":"t"}}`,
	}
	return []byte("[" + strings.Join(append(head, events...), ",") + "]")
}

func slice(name string, start, duration float64) string {
	return fmt.Sprintf(`{"ph":"X","ts":%.4f,"dur":%.4f,"pid":1,"tid":2,"name":%q}`, start, duration, name)
}

func TestPlaces(t *testing.T) {
	got, err := Import(file(slice("b", 1, 2), slice("a", 0, 10), slice("c", 3, 7), slice("d", 10, 1),
		`{"ph":"i","ts":4,"pid":1,"tid":2,"s":"t","name":"e","args":{"x":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, s := range got {
		said = append(said, fmt.Sprintf("%s/%s/%s %d+%d in %d", s.Process, s.Thread, s.Name, s.Start, s.Duration, s.Depth))
	}
	const want = "p/t/a 0+10000 in 0, p/t/b 1000+2000 in 1, p/t/c 3000+7000 in 1, p/t/e 4000+0 in 2, p/t/d 10000+1000 in 0"
	if all := strings.Join(said, ", "); all != want {
		t.Errorf("%s\nwant\n%s", all, want)
	}
}

func TestRefuses(t *testing.T) {
	for want, bad := range map[string][]byte{
		"unexpected end":   []byte("["),
		"overlaps":         file(slice("a", 0, 10), slice("b", 5, 6)),
		"has no name":      file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":3,"name":"a"}`),
		"no name":          file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":2}`),
		"of no duration":   file(`{"ph":"X","ts":0,"pid":1,"tid":2,"name":"a"}`),
		"negative":         file(slice("a", 0, -1)),
		"no time":          file(`{"ph":"X","dur":1,"pid":1,"tid":2,"name":"a"}`),
		"exponent":         file(`{"ph":"X","ts":1.5e3,"dur":1,"pid":1,"tid":2,"name":"a"}`),
		"0 is that of":     file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":0,"name":"a"}`),
		"scope t":          file(`{"ph":"i","ts":0,"pid":1,"tid":2,"name":"a","s":"q"}`),
		"phase \"B\"":      file(`{"ph":"B","ts":0,"pid":1,"tid":2,"name":"a"}`),
		"cannot unmarshal": file(`{"ph":"X","ts":"0","dur":1,"pid":1,"tid":2,"name":"a"}`),
		"unknown field":    file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":2,"name":"a","time":1}`),
		"argument":         file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":2,"name":"a","args":{"x":null}}`),
		"metadata":         file(`{"ph":"M","ts":0,"pid":1,"tid":2,"name":"colour","args":{"name":"red"}}`),
		"already":          file(`{"ph":"M","ts":0,"pid":1,"tid":2,"name":"thread_name","args":{"name":"u"}}`),
		"older importers":  file(`{"ph":"X","ts":0,"dur":1,"pid":1,"tid":2,"name":"\u003c"}`),
	} {
		if _, err := Import(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

// TestImportIsPerfettos: Import places events where Perfetto does.
func TestImportIsPerfettos(t *testing.T) {
	events := file(
		slice("outer", 0, 10), slice("inner", 1, 2.0005), slice("last", 3.5, 6.5), slice("next", 10, 1), slice("short", 11.25, 0), slice("late", 1e9+0.123, 0.456),
		`{"ph":"i","ts":4,"pid":1,"tid":2,"s":"t","cat":"token","name":"token \"\\\\n\"","args":{"text":"ü <b> \\ \"","number":1.5,"small":-2.5e-9,"whole":3}}`,
		`{"ph":"i","ts":4.001,"pid":1,"tid":2,"s":"t","name":"soon after"}`,
		`{"ph":"M","ts":0,"pid":1,"tid":3,"name":"thread_name","args":{"name":"u"}}`,
		`{"ph":"X","ts":5,"dur":20.999,"pid":1,"tid":3,"cat":"MatMul","name":"blk.0.ffn_down","args":{"rms":0.11925403300087398}}`,
	)
	got := Processed(t, events)
	want, err := Import(events)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Perfetto has\n%+v\nand Import\n%+v", got, want)
	}
}
