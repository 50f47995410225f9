// Package perfettotest reads timelines as Perfetto does, for tests of what is written for it.
//
// # What it holds to
//
// The trace event format, as Google's "Trace Event Format" (2016) has it, and what Perfetto's
// importer does with it: src/trace_processor/importers/json takes events apart, and
// importers/common/slice_tracker.cc places them in rows. The importer is forgiving: it drops
// events that it cannot place, gives names to what has none, and counts that in its statistics. Here
// all of that is an error. Only what a timeline of this library has is known: complete events,
// instants of a thread, and names of processes and threads.
//
// [Processed] has Perfetto's own importer read a file, where that is to be had.
package perfettotest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"sort"
)

// Slice is an event where Perfetto draws it. Times are in nanoseconds.
type Slice struct {
	Process, Thread string // their names
	Name, Category  string
	Start, Duration int64 // the latter 0 for an instant
	Depth           int   // how many slices it is within
	Args            map[string]any
}

// event is an event as the file has it.
type event struct {
	Phase    string         `json:"ph"`
	Time     *float64       `json:"ts"`
	Duration *float64       `json:"dur"`
	Process  uint32         `json:"pid"`
	Thread   uint32         `json:"tid"`
	Scope    string         `json:"s"`
	Category string         `json:"cat"`
	Name     string         `json:"name"`
	Args     map[string]any `json:"args"`
}

// Import reads a file of trace events: a JSON array, complete.
func Import(file []byte) ([]Slice, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(file, &raw); err != nil {
		return nil, fmt.Errorf("perfettotest: %w", err)
	}
	names := map[string]map[uint32]string{"process_name": {}, "thread_name": {}}
	var drawn []event
	for i, text := range raw {
		e, err := parse(text)
		if err == nil && e.Phase == "M" {
			err = e.names(names)
		} else if err == nil {
			drawn = append(drawn, e)
		}
		if err != nil {
			return nil, fmt.Errorf("perfettotest: event %d, %s: %w", i, text, err)
		}
	}
	sort.SliceStable(drawn, func(i, j int) bool { return drawn[i].start() < drawn[j].start() })
	return place(drawn, names)
}

// parse reads an event and checks it by itself.
func parse(text []byte) (e event, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, err
	}
	switch {
	case e.Name == "":
		return e, fmt.Errorf("no name")
	case e.Process == 0 || e.Thread == 0:
		return e, fmt.Errorf("pid %d and tid %d: 0 is that of the kernel", e.Process, e.Thread)
	case e.Time == nil || *e.Time < 0:
		return e, fmt.Errorf("no time, or one before the beginning")
	case exponent.Match(outer(text)):
		return e, fmt.Errorf("a time with an exponent, which Perfetto leaves out")
	case bytes.Contains(outer(text), []byte(`\u`)):
		return e, fmt.Errorf("an escape that older importers refuse")
	}
	for key, value := range e.Args {
		switch value.(type) {
		case string, float64, bool:
		default:
			return e, fmt.Errorf("argument %q is %T", key, value)
		}
	}
	switch {
	case e.Phase == "M":
	case e.Phase == "X" && (e.Duration == nil || *e.Duration < 0):
		return e, fmt.Errorf("a complete event of no duration, or of a negative one")
	case e.Phase == "X" && e.Scope != "":
		return e, fmt.Errorf("a complete event has no scope")
	case e.Phase == "i" && (e.Duration != nil || e.Scope != "t"):
		return e, fmt.Errorf("an instant has no duration, and scope t")
	case e.Phase != "X" && e.Phase != "i":
		return e, fmt.Errorf("an event of phase %q", e.Phase)
	}
	return e, nil
}

var exponent = regexp.MustCompile(`"(ts|dur)":[0-9.]+[eE]`)

// outer is an event without its arguments, which are the last of it, and without escaped backslashes.
func outer(text []byte) []byte {
	if at := bytes.LastIndex(text, []byte(`,"args":{`)); at >= 0 {
		text = text[:at]
	}
	return bytes.ReplaceAll(text, []byte(`\\`), nil)
}

// names takes what a metadata event names.
func (e *event) names(names map[string]map[uint32]string) error {
	given, known := names[e.Name]
	name, _ := e.Args["name"].(string)
	id := e.Thread // which is unique among all processes
	if e.Name == "process_name" {
		id = e.Process
	}
	switch {
	case !known:
		return fmt.Errorf("metadata %q", e.Name)
	case name == "":
		return fmt.Errorf("an empty name")
	case given[id] != "" && given[id] != name:
		return fmt.Errorf("%d is called %q already", id, given[id])
	}
	given[id] = name
	return nil
}

// start and duration are how the importer makes nanoseconds of microseconds: a time it reads digit by digit,
// a duration it computes, and truncates.
func (e *event) start() int64 { return int64(math.Round(*e.Time * 1000)) }

func (e *event) duration() int64 {
	if e.Duration == nil {
		return 0
	}
	return int64(*e.Duration * 1000)
}

// place puts events, by time, in the rows of their threads. Within a row, one is after another or wholly
// within it.
func place(events []event, names map[string]map[uint32]string) ([]Slice, error) {
	var all []Slice
	open := make(map[uint32][]Slice) // by thread, the outermost first
	for _, e := range events {
		s := Slice{
			Process: names["process_name"][e.Process], Thread: names["thread_name"][e.Thread],
			Name: e.Name, Category: e.Category, Args: e.Args, Start: e.start(), Duration: e.duration(),
		}
		if s.Process == "" || s.Thread == "" {
			return nil, fmt.Errorf("perfettotest: %q is of process %d and thread %d, and one has no name", s.Name, e.Process, e.Thread)
		}
		row := open[e.Thread]
		for len(row) > 0 && row[len(row)-1].over(&s) {
			row = row[:len(row)-1]
		}
		for _, outer := range row {
			if s.Start < outer.end() && s.end() > outer.end() {
				return nil, fmt.Errorf("perfettotest: %q, %d to %d, overlaps %q, %d to %d", s.Name, s.Start, s.end(), outer.Name, outer.Start, outer.end())
			}
		}
		s.Depth = len(row)
		open[e.Thread] = append(row, s)
		all = append(all, s)
	}
	return all, nil
}

func (s *Slice) end() int64 { return s.Start + s.Duration }

// over says whether a slice has ended when another begins. Instants at the same time are within one another.
func (s *Slice) over(next *Slice) bool {
	return s.end() < next.Start || s.end() == next.Start && (s.Duration > 0 || next.Duration > 0)
}
