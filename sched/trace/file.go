package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// ErrFormat is wrapped by the errors of Records for what is no trace, or one of another version.
var ErrFormat = errors.New("not a trace that can be read")

// Sink takes records, in the order of a trace.
type Sink interface {
	Put(r Record) error
}

// Writer writes records as lines of JSON. It is a Sink.
type Writer struct{ w io.Writer }

// NewWriter returns a writer to w, which gets each line as one Write.
func NewWriter(w io.Writer) *Writer { return &Writer{w} }

// Put writes a line.
func (w *Writer) Put(r Record) error {
	line, err := Line(r)
	if err == nil {
		_, err = w.w.Write(line)
	}
	if err != nil {
		return fmt.Errorf("trace: writing: %w", err)
	}
	return nil
}

// Line returns the line of a record, with its end.
func Line(r Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, "{\"kind\":%q,", r.kind())
	return append(append(line, body[1:]...), '\n'), nil
}

// maxLine bounds a line of a trace that is read, in bytes.
const maxLine = 1 << 28

// Records reads a trace. The first record is the header; records of kinds that this version does
// not know are left out. An error, which wraps ErrFormat unless it is the reader's, is the last.
func Records(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		n := 0
		for lines.Scan() {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			n++
			record, err := parseLine(line, n == 1)
			if err != nil {
				yield(nil, fmt.Errorf("trace: record %d: %w", n, err))
				return
			}
			if record != nil && !yield(record, nil) {
				return
			}
		}
		err := lines.Err()
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing in it: %w", ErrFormat)
		}
		if err != nil {
			yield(nil, fmt.Errorf("trace: %w", err))
		}
	}
}

func parseLine(line []byte, first bool) (Record, error) {
	var head struct {
		Kind    string
		Format  string
		Version int
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("%v: %w", err, ErrFormat)
	}
	if first && (head.Kind != "header" || head.Format != Format || head.Version != Version) {
		return nil, fmt.Errorf("a %q of format %q, version %d, and not the header of a %s of version %d: %w", head.Kind, head.Format, head.Version, Format, Version, ErrFormat)
	}
	var record Record
	for _, r := range []Record{&Header{}, &Graph{}, &PassRecord{}, &ChoiceRecord{}, &LensRecord{}} {
		if r.kind() == head.Kind {
			record = r
		}
	}
	if record == nil {
		return nil, nil
	}
	if err := json.Unmarshal(line, record); err != nil {
		return nil, fmt.Errorf("%v: %w", err, ErrFormat)
	}
	return record, nil
}
