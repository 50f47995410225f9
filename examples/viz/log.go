package main

import (
	"bytes"
	"io"
	"sync"

	"github.com/minfer/minfer/sched/trace"
)

// log is the lines of a run, for those who watch and those who come later. It is a trace.Sink.
type log struct {
	mu     sync.Mutex
	epoch  int // grows with every reset
	lines  [][]byte
	change chan struct{} // closed at the next change
	prompt []int32       // of the run: see request.Along
	chosen []int32
}

func newLog() *log { return &log{change: make(chan struct{})} }

func (l *log) changed() {
	close(l.change)
	l.change = make(chan struct{})
}

// reset begins a new run.
func (l *log) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.lines, l.prompt, l.chosen = nil, nil, nil
	l.changed()
}

// Put appends a record.
func (l *log) Put(r trace.Record) error {
	line, err := trace.Line(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r := r.(type) {
	case *trace.PassRecord:
		if len(l.chosen) == 0 {
			l.prompt = append(l.prompt, r.Tokens...)
		}
	case *trace.ChoiceRecord:
		l.chosen = append(l.chosen, r.Token)
	}
	l.lines = append(l.lines, line)
	l.changed()
	return nil
}

// read appends the records of a trace.
func (l *log) read(r io.Reader) error {
	for record, err := range trace.Records(r) {
		if err == nil {
			err = l.Put(record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// from returns the lines from one of an epoch on, or all if that epoch is over, and what to wait
// for if there are none.
func (l *log) from(epoch, line int) (now int, lines [][]byte, change <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		line = 0
	}
	return l.epoch, l.lines[line:], l.change
}

// tokens returns the prompt and what was chosen after it.
func (l *log) tokens() (prompt, chosen []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int32(nil), l.prompt...), append([]int32(nil), l.chosen...)
}

// all returns the run as a file.
func (l *log) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join(l.lines, nil)
}
