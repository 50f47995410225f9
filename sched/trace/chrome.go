package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// ChromeWriter writes records as trace events, the JSON that Perfetto (ui.perfetto.dev) and
// chrome://tracing draw as timelines: a row for the passes and the tokens chosen, and one for each
// device with the nodes that it ran. It is a Sink. Until Close, the file lacks its last bracket,
// which both readers forgive.
//
// Within a row, events follow each other without overlap, which Perfetto insists on: where the clock
// is too coarse to tell two nodes apart, the later one begins two nanoseconds later.
type ChromeWriter struct {
	w       io.Writer
	begun   bool
	nodes   map[uint64][]nodeName // by graph
	threads map[string]int        // of devices
	ends    map[int]int64         // where the last span of a row ended
}

// nodeName is what a timeline says of a node.
type nodeName struct {
	Name string `json:"name"`
	Op   string `json:"op"`
}

// NewChromeWriter returns a writer to w.
func NewChromeWriter(w io.Writer) *ChromeWriter {
	return &ChromeWriter{w: w, nodes: make(map[uint64][]nodeName), threads: make(map[string]int), ends: make(map[int]int64)}
}

// event is a trace event. Times are in microseconds.
type event struct {
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Scope    string         `json:"s,omitempty"`
	Category string         `json:"cat,omitempty"`
	Name     string         `json:"name"`
	Args     map[string]any `json:"args,omitempty"`
}

// passThread is the row of the passes; those of devices follow.
const passThread = 1

func micro(nano int64) float64 { return float64(nano) / 1e3 }

// coarsest is by how much spans are kept apart, in nanoseconds: Perfetto loses up to one of a time.
const coarsest = 2

// span is what goes on in a row for a while.
func (c *ChromeWriter) span(name, category string, start, time int64, thread int, args map[string]any) event {
	if free, ok := c.ends[thread]; ok && start < free {
		time, start = max(0, time-(free-start)), free
	}
	c.ends[thread] = start + time + coarsest
	d := micro(time)
	return event{Name: name, Category: category, Phase: "X", Time: micro(start), Duration: &d, Process: 1, Thread: thread, Args: args}
}

func label(what, name string, thread int) event {
	return event{Name: what, Phase: "M", Process: 1, Thread: thread, Args: map[string]any{"name": name}}
}

// Put writes the events of a record.
func (c *ChromeWriter) Put(r Record) error {
	events, err := c.events(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	text := json.NewEncoder(&b)
	text.SetEscapeHTML(false) // older importers know no such escapes, and tokens have the like of <|im_end|>
	for _, e := range events {
		separator := ",\n"
		if !c.begun {
			separator, c.begun = "[\n", true
		}
		b.WriteString(separator)
		if err := text.Encode(e); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		b.Truncate(b.Len() - 1) // the end of the line comes with the next
	}
	return c.write(b.Bytes())
}

func (c *ChromeWriter) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := c.w.Write(b); err != nil {
		return fmt.Errorf("trace: writing: %w", err)
	}
	return nil
}

func (c *ChromeWriter) events(r Record) ([]event, error) {
	switch r := r.(type) {
	case *Header:
		events := []event{label("process_name", "minfer "+r.Model.Name, passThread), label("thread_name", "passes", passThread)}
		for i, d := range r.Model.Devices {
			c.threads[d] = passThread + 1 + i
			events = append(events, label("thread_name", d, c.threads[d]))
		}
		return events, nil
	case *Graph:
		var s struct{ Graph struct{ Nodes []nodeName } }
		if err := json.Unmarshal(r.Raw, &s); err != nil {
			return nil, fmt.Errorf("trace: graph %d: %v: %w", r.UID, err, ErrFormat)
		}
		c.nodes[r.UID] = s.Graph.Nodes
	case *PassRecord:
		return c.pass(r), nil
	case *ChoiceRecord:
		return []event{{Name: fmt.Sprintf("token %q", r.Text), Category: "token", Phase: "i", Time: micro(r.At), Process: 1, Thread: passThread, Scope: "t",
			Args: map[string]any{"token": r.Token, "position": r.Position, "session": r.Session}}}, nil
	}
	return nil, nil
}

func (c *ChromeWriter) pass(p *PassRecord) []event {
	args := map[string]any{"pass": p.Pass, "graph": p.Graph, "tokens": len(p.Tokens)}
	if p.Error != "" {
		args["error"] = p.Error
	}
	events := []event{c.span(fmt.Sprintf("%s of %d", p.Phase, len(p.Tokens)), "pass", p.Start, p.Time, passThread, args)}
	names := c.nodes[p.Graph]
	for i := range p.Nodes {
		n := &p.Nodes[i]
		var of nodeName
		if n.Node >= 0 && n.Node < len(names) {
			of = names[n.Node]
		}
		args := map[string]any{"node": n.Node, "bytes": n.Bytes}
		if n.MultiplyAdds > 0 {
			args["macs"] = n.MultiplyAdds
		}
		if n.Stats != nil {
			args["rms"], args["nan"], args["inf"] = n.Stats.RMS, n.Stats.NaN, n.Stats.Inf
		}
		events = append(events, c.span(of.Name, of.Op, n.Start, n.Time, c.threads[n.Device], args))
	}
	return events
}

// Close ends the array of events. It does not close the writer below.
func (c *ChromeWriter) Close() error {
	if !c.begun {
		return c.write([]byte("[]\n"))
	}
	return c.write([]byte("\n]\n"))
}
