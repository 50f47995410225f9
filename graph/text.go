package graph

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// The text form has a line for the parameters, a line for each node and a line for
// the outputs:
//
//	graph {Tokens=1 Outputs=1 Phase=decode Cells=64 KVType=F16 Devices="cpu" Fusion={SwiGLU=true}}
//	%0 = Input() "token_ids" I32 [1] @cpu
//	%1 = Embed(%0) {Weight="token_embd.weight" Type="Q8_0" Dim=256 Vocab=1536} "embed" F32 [256] @cpu
//	output %1
//
// Fields of a payload that are zero are left out. Everything but the UID is in it. Of a line,
// what follows "  ; " is a comment, and so is a line that begins with ";".

// String returns the graph's text form, which Parse reads back.
func (g *Graph) String() string { return g.Annotated(func(NodeID) string { return "" }) }

// Annotated is String with what note says of each node as a comment on its line. A note of
// several lines has all but the last above the node's.
func (g *Graph) Annotated(note func(NodeID) string) string {
	var b strings.Builder
	b.WriteString("graph ")
	writeStruct(&b, reflect.ValueOf(g.Params))
	b.WriteByte('\n')
	for i := range g.Nodes {
		lines := strings.Split(note(NodeID(i)), "\n")
		last := len(lines) - 1
		for _, l := range lines[:last] {
			b.WriteString("; " + l + "\n")
		}
		b.WriteString(g.line(NodeID(i)))
		if lines[last] != "" {
			b.WriteString(comment + lines[last])
		}
		b.WriteByte('\n')
	}
	b.WriteString("output")
	for _, id := range g.Outputs {
		fmt.Fprintf(&b, " %%%d", id)
	}
	b.WriteByte('\n')
	return b.String()
}

// line returns the text form of one node.
func (g *Graph) line(id NodeID) string {
	n := &g.Nodes[id]
	var b strings.Builder
	fmt.Fprintf(&b, "%%%d = %v(", n.ID, n.Op.Kind())
	for i, s := range n.Sources() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%%%d", s)
	}
	b.WriteByte(')')
	if payload := reflect.ValueOf(n.Op); !payload.IsZero() {
		b.WriteByte(' ')
		writeStruct(&b, payload)
	}
	fmt.Fprintf(&b, " %q %v %v", n.Name, n.Type, n.Shape)
	if n.Device != "" {
		b.WriteString(" @" + n.Device)
	}
	return b.String()
}

// OpString returns an operation with its payload as the text form has it, such as
// MatMul{Weight="output.weight" Type="Q8_0" In=896 Out=151936}.
func OpString(op Op) string {
	var b strings.Builder
	b.WriteString(op.Kind().String())
	if payload := reflect.ValueOf(op); !payload.IsZero() {
		writeStruct(&b, payload)
	}
	return b.String()
}

// writeStruct writes the fields that are not zero as {Name=value ...}.
func writeStruct(b *strings.Builder, v reflect.Value) {
	b.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		b.WriteString(v.Type().Field(i).Name + "=")
		writeValue(b, f)
	}
	b.WriteByte('}')
}

func writeValue(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		writeStruct(b, v)
	case reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.FormatInt(v.Index(i).Int(), 10))
		}
		b.WriteByte(']')
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	case reflect.Float32:
		b.WriteString(strconv.FormatFloat(v.Float(), 'g', -1, 32))
	default: // integers, booleans and enumerations, which print their names
		fmt.Fprint(b, v.Interface())
	}
}

// Parse reads the text form of a graph and verifies it. It returns a *ParseError for
// text that is not of the form, and Verify's error for a graph that breaks a rule.
func Parse(text string) (*Graph, error) {
	g := &Graph{}
	p := parser{graph: g}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, ";") {
			continue
		}
		p.rest = line
		if err := p.line(); err != nil {
			return nil, &ParseError{Line: i + 1, Column: len(line) - len(p.rest) + 1, Reason: err.Error()}
		}
	}
	if !p.sawHead || !p.sawOutputs {
		return nil, &ParseError{Line: 1, Column: 1, Reason: "the graph line or the output line is missing"}
	}
	if err := g.Verify(); err != nil {
		return nil, err
	}
	return g, nil
}

// ParseError is a place where a text departs from the text form.
type ParseError struct {
	Line, Column int // from 1; columns count bytes
	Reason       string
}

// Error returns the reason and the place.
func (e *ParseError) Error() string {
	return fmt.Sprintf("graph: line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Unwrap returns ErrInvalid.
func (e *ParseError) Unwrap() error { return ErrInvalid }

// parser reads one line at a time; rest is what is left of the line.
type parser struct {
	graph      *Graph
	rest       string
	sawHead    bool
	sawOutputs bool
}

func (p *parser) line() error {
	switch {
	case p.sawOutputs:
		return fmt.Errorf("text after the output line")
	case p.take("graph "):
		if p.sawHead {
			return fmt.Errorf("second graph line")
		}
		p.sawHead = true
		return p.all(p.structure(reflect.ValueOf(&p.graph.Params).Elem(), 0))
	case p.take("output"):
		p.sawOutputs = true
		ids, err := p.ids()
		p.graph.Outputs = ids
		return p.all(err)
	case strings.HasPrefix(p.rest, "%"):
		return p.all(p.node())
	}
	return fmt.Errorf("line starts with none of graph, output and %%")
}

// comment begins what a line says to people only.
const comment = "  ; "

// all insists that the line is used up, but for a comment.
func (p *parser) all(err error) error {
	if err == nil && p.rest != "" && !strings.HasPrefix(p.rest, comment) {
		return fmt.Errorf("text after the end: %q", p.rest)
	}
	return err
}

func (p *parser) node() error {
	var n Node
	var err error
	if n.ID, err = p.id(); err != nil {
		return err
	}
	if err := p.want(" = "); err != nil {
		return err
	}
	zero, err := opNamed(p.word("("))
	if err != nil {
		return err
	}
	if err := p.want("("); err != nil {
		return err
	}
	sources, err := p.ids()
	if err != nil {
		return err
	}
	if err := n.SetSources(sources...); err != nil {
		return err
	}
	if err := p.want(") "); err != nil {
		return err
	}
	if n.Op, err = p.payload(zero); err != nil {
		return err
	}
	if n.Name, err = p.quoted(); err != nil {
		return err
	}
	if err := p.want(" "); err != nil {
		return err
	}
	if n.Type, err = ParseDType(p.word(" ")); err != nil {
		return err
	}
	if err := p.want(" "); err != nil {
		return err
	}
	n.Shape = ShapeOf()
	if err := p.numbers(n.Shape[:]); err != nil {
		return err
	}
	if p.take(" @") {
		n.Device = p.word(" ")
	}
	p.graph.Nodes = append(p.graph.Nodes, n)
	if n.Op.Kind() == KindInput {
		p.graph.Inputs = append(p.graph.Inputs, n.ID)
	}
	return nil
}

func opNamed(name string) (Op, error) {
	for k := range traits {
		if traits[k].Name == name {
			return traits[k].zero, nil
		}
	}
	return nil, fmt.Errorf("unknown operation %q", name)
}

func (p *parser) payload(zero Op) (Op, error) {
	if !strings.HasPrefix(p.rest, "{") {
		return zero, nil
	}
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	if err := p.structure(v, 0); err != nil {
		return nil, err
	}
	return v.Interface().(Op), p.want(" ")
}

// maxNesting bounds how deep structures nest: an operation within an operation.
const maxNesting = 3

func (p *parser) structure(v reflect.Value, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("structures nest deeper than %d", maxNesting)
	}
	if err := p.want("{"); err != nil {
		return err
	}
	for !p.take("}") {
		name := p.word("=")
		f := v.FieldByName(name)
		if !f.IsValid() || !f.CanSet() {
			return fmt.Errorf("%v has no field %q", v.Type().Name(), name)
		}
		if err := p.want("="); err != nil {
			return err
		}
		if err := p.value(f, depth); err != nil {
			return err
		}
		if !p.take(" ") && !strings.HasPrefix(p.rest, "}") {
			return fmt.Errorf("want a space or } after field %s", name)
		}
	}
	return nil
}

func (p *parser) value(v reflect.Value, depth int) error {
	switch dst := v.Addr().Interface().(type) {
	case *DType:
		return parseEnum(dst, "element type", dtypeNames[:], p.scalar())
	case *Phase:
		return parseEnum(dst, "phase", phaseNames[:], p.scalar())
	case *Result:
		return parseEnum(dst, "result", resultNames[:], p.scalar())
	case *RoPEStyle:
		return parseEnum(dst, "rotary style", ropeStyleNames[:], p.scalar())
	case *AttentionMode:
		return parseEnum(dst, "attention mode", attentionModeNames[:], p.scalar())
	case *string:
		s, err := p.quoted()
		*dst = s
		return err
	case *bool:
		b, err := strconv.ParseBool(p.scalar())
		*dst = b
		return err
	case *float32:
		f, err := strconv.ParseFloat(p.scalar(), 32)
		*dst = float32(f)
		return err
	case *int:
		i, err := strconv.Atoi(p.scalar())
		*dst = i
		return err
	case *uint64:
		u, err := strconv.ParseUint(p.scalar(), 10, 64)
		*dst = u
		return err
	case *Shape:
		return p.numbers(dst[:])
	case *[4]int:
		return p.numbers(dst[:])
	}
	return p.structure(v, depth+1)
}

func parseEnum[E ~uint8](dst *E, what string, names []string, name string) error {
	i, err := enumValue(what, names, name)
	*dst = E(i)
	return err
}

// numbers reads [1 2 3] into the front of dst.
func (p *parser) numbers(dst []int) error {
	if err := p.want("["); err != nil {
		return err
	}
	fields := strings.Fields(p.word("]"))
	if len(fields) == 0 || len(fields) > len(dst) {
		return fmt.Errorf("%d numbers, want 1 to %d", len(fields), len(dst))
	}
	for i, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil {
			return err
		}
		dst[i] = n
	}
	return p.want("]")
}

func (p *parser) ids() ([]NodeID, error) {
	var ids []NodeID
	for {
		p.take(" ")
		if !strings.HasPrefix(p.rest, "%") {
			return ids, nil
		}
		id, err := p.id()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
}

func (p *parser) id() (NodeID, error) {
	if err := p.want("%"); err != nil {
		return None, err
	}
	digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
	n, err := strconv.Atoi(p.rest[:digits])
	p.rest = p.rest[digits:]
	return NodeID(n), err
}

func (p *parser) quoted() (string, error) {
	q, err := strconv.QuotedPrefix(p.rest)
	if err != nil {
		return "", fmt.Errorf("want a quoted string")
	}
	p.rest = p.rest[len(q):]
	return strconv.Unquote(q)
}

// scalar takes the text up to the end of a field.
func (p *parser) scalar() string { return p.word(" }") }

// word takes the text before the first of the characters in stops.
func (p *parser) word(stops string) string {
	i := strings.IndexAny(p.rest, stops)
	if i < 0 {
		i = len(p.rest)
	}
	w := p.rest[:i]
	p.rest = p.rest[i:]
	return w
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) want(prefix string) error {
	if !p.take(prefix) {
		return fmt.Errorf("want %q", prefix)
	}
	return nil
}
