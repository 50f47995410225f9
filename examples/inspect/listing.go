package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
)

// listing writes what a file holds, section by section.
type listing struct {
	file *gguf.File
	all  bool              // nothing is shortened
	w    *bufio.Writer     // keeps its first error
	t    *tabwriter.Writer // columns of the section under way
}

func writeListing(w io.Writer, f *gguf.File, path string, all bool) error {
	buffered := bufio.NewWriter(w)
	l := &listing{file: f, all: all, w: buffered, t: tabwriter.NewWriter(buffered, 0, 0, 2, ' ', 0)}
	l.overview(path)
	l.metadata()
	l.tokenizer()
	l.tensors()
	l.types()
	l.parts()
	return l.w.Flush()
}

// section begins one, with its own columns.
func (l *listing) section(title string) {
	l.t.Flush()
	fmt.Fprintf(l.w, "%s\n", title)
}

// row writes a row of columns.
func (l *listing) row(columns ...any) {
	for i, c := range columns {
		end := "\t"
		if i == len(columns)-1 {
			end = "\n"
		}
		start := ""
		if i == 0 {
			start = "  "
		}
		fmt.Fprintf(l.t, "%s%v%s", start, c, end)
	}
}

// end ends a section.
func (l *listing) end() {
	l.t.Flush()
	fmt.Fprintln(l.w)
}

func (l *listing) overview(path string) {
	l.section("File")
	l.row("path", path)
	l.row("format", fmt.Sprintf("GGUF version %d, tensors aligned to %d bytes", l.file.Version(), l.file.Alignment()))
	l.row("size", fmt.Sprintf("%s (%d bytes)", size(uint64(l.file.Size())), l.file.Size()))
	l.row("weights", fmt.Sprintf("%d in %d tensors", l.weights(), len(l.file.Tensors())))
	l.architecture()
	if err := l.file.Check(); err != nil {
		l.row("tensors", "not usable: "+oneLine(err))
	}
	l.end()
}

func (l *listing) weights() (n uint64) {
	for _, t := range l.file.Tensors() {
		n += t.Elements()
	}
	return n
}

func (l *listing) architecture() {
	def, err := arch.Open(l.file)
	if err != nil {
		l.row("architecture", "not usable: "+oneLine(err))
		return
	}
	name, err := l.file.Architecture()
	if err != nil {
		name = oneLine(err)
	}
	h := def.Hyperparameters()
	l.row("architecture", printable(name))
	l.row("", fmt.Sprintf("%d layers of width %d, feed-forward %d", h.Layers, h.Embedding, h.FFN))
	l.row("", fmt.Sprintf("%d heads over %d key and value heads of %d", h.Heads, h.KVHeads, h.HeadDim))
	l.row("", fmt.Sprintf("context %d", h.ContextLength))
}

func (l *listing) metadata() {
	l.section(fmt.Sprintf("Metadata (%d keys)", len(l.file.Keys())))
	for _, key := range l.file.Keys() {
		kind, _ := l.file.KindOf(key)
		name := kind.String()
		if elem, isArray := l.file.ElemKindOf(key); isArray {
			n, err := l.file.ArrayLen(key)
			if err != nil {
				name = oneLine(err)
			} else {
				name = fmt.Sprintf("[%d]%s", n, elem)
			}
		}
		value := "not readable"
		if v, ok := l.file.Value(key); ok {
			value = l.value(v)
		}
		l.row(printable(key), name, value)
	}
	l.end()
}

// What is shown of long values.
const (
	shownElements = 6
	shownRunes    = 60
)

func (l *listing) value(v any) string {
	switch v := v.(type) {
	case string:
		return l.text(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	}
	// Every kind of array is a slice of its own type.
	if array := reflect.ValueOf(v); array.Kind() == reflect.Slice {
		return l.array(array)
	}
	return fmt.Sprint(v)
}

func (l *listing) array(array reflect.Value) string {
	shown := array.Len()
	if !l.all {
		shown = min(shown, shownElements)
	}
	elements := make([]string, 0, shown+1)
	for i := range shown {
		elements = append(elements, l.value(array.Index(i).Interface()))
	}
	if shown < array.Len() {
		elements = append(elements, "...")
	}
	return "[" + strings.Join(elements, " ") + "]"
}

func (l *listing) text(s string) string {
	if runes := []rune(s); !l.all && len(runes) > shownRunes {
		return fmt.Sprintf("%q... (%d bytes)", string(runes[:shownRunes]), len(s))
	}
	return strconv.Quote(s)
}

func (l *listing) tokenizer() {
	l.section("Tokenizer")
	defer l.end()
	if !l.file.Has("tokenizer.ggml.model") {
		l.row("none")
		return
	}
	t, err := minfer.NewTokenizer(l.file)
	if err != nil {
		l.row("not usable: " + oneLine(err))
		return
	}
	l.row("model", printable(t.Model()))
	if t.Pre() != "" {
		l.row("pre-tokenizer", printable(t.Pre()))
	}
	l.row("vocabulary", fmt.Sprintf("%d tokens: %s", t.VocabSize(), tokenTypes(t)))
	l.row("begins with BOS", yesNo(t.AddBOS()))
	l.row("ends with EOS", yesNo(t.AddEOS()))
	l.row("space before text", yesNo(t.AddSpacePrefix()))
	l.specialTokens(t)
	var ends []string
	for _, id := range t.EndOfGeneration() {
		ends = append(ends, token(t, id))
	}
	l.row("answers end with", strings.Join(ends, ", "))
}

// tokenTypes counts the tokens of each type, the most frequent first.
func tokenTypes(t *minfer.Tokenizer) string {
	counts := make(map[string]int)
	for id := range minfer.Token(t.VocabSize()) {
		counts[t.Type(id).String()]++
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}

// specialTokens lists the tokens that the file gives a role, and the end-of-turn token
// if the library had to find it.
func (l *listing) specialTokens(t *minfer.Tokenizer) {
	listed := false
	for _, key := range l.file.Keys() {
		role, isRole := strings.CutSuffix(strings.TrimPrefix(key, "tokenizer.ggml."), "_token_id")
		if !isRole {
			continue
		}
		value := "not usable"
		if id, err := l.file.Int32(key); err == nil {
			value = token(t, id)
		}
		l.row(printable(role), value)
		listed = listed || role == "eot"
	}
	if !listed && t.EOT() >= 0 {
		l.row("eot", token(t, t.EOT())+", found by its text")
	}
}

// token is an id with its text.
func token(t *minfer.Tokenizer, id minfer.Token) string {
	return fmt.Sprintf("%d %q", id, t.TokenBytes(id))
}

func (l *listing) tensors() {
	l.section(fmt.Sprintf("Tensors (%d)", len(l.file.Tensors())))
	for _, t := range l.file.Tensors() {
		l.row(printable(t.Name), t.Type, fmt.Sprint(t.Dims), size(t.Size))
	}
	l.end()
}

// group is the tensors of one type.
type group struct {
	name            string
	tensors         int
	elements, bytes uint64
}

func (l *listing) types() {
	byType := make(map[gguf.Type]*group)
	var groups []*group
	var total uint64
	for _, t := range l.file.Tensors() {
		g := byType[t.Type]
		if g == nil {
			g = &group{name: t.Type.String()}
			byType[t.Type] = g
			groups = append(groups, g)
		}
		g.tensors++
		g.elements += t.Elements()
		g.bytes += t.Size
		total += t.Size
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.bytes, a.bytes) })
	l.section("Types")
	for _, g := range groups {
		if g.bytes == 0 {
			l.row(g.name, fmt.Sprintf("%d tensors", g.tensors), fmt.Sprintf("%d weights", g.elements), "of unknown size")
			continue
		}
		l.row(g.name, fmt.Sprintf("%d tensors", g.tensors), fmt.Sprintf("%d weights", g.elements), size(g.bytes),
			fmt.Sprintf("%.2f bits each", 8*float64(g.bytes)/float64(g.elements)), fmt.Sprintf("%.1f %%", 100*float64(g.bytes)/float64(total)))
	}
	l.end()
}

// parts lists the files of a split model.
func (l *listing) parts() {
	if l.file.Parts() == 1 {
		return
	}
	groups := make([]group, l.file.Parts())
	for _, t := range l.file.Tensors() {
		groups[t.Part].tensors++
		groups[t.Part].bytes += t.Size
	}
	l.section("Parts")
	for i, g := range groups {
		l.row(fmt.Sprintf("%d of %d", i+1, len(groups)), fmt.Sprintf("%d tensors", g.tensors), size(g.bytes))
	}
	l.end()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// oneLine is an error that may have several lines, in one, without the name of the library.
func oneLine(err error) string {
	return strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "minfer: ")
}

// printable is a name as it stands, or quoted if that could steer a terminal.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// size is a number of bytes, rounded.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.2f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
