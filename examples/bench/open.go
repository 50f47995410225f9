package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minfer/minfer"
)

// openPrompt is what the first token is predicted from.
const openPrompt = "Why is the sky blue? It is"

// opening is what a fresh process tells of one opening: moments, in the order in which
// they came, and memory.
type opening struct {
	Moments []moment
	Peak    int64 // most bytes of memory that the process had, or 0 where the system does not say
}

// moment is when a step was over.
type moment struct {
	Step string
	At   int64 // nanoseconds since 1970
}

func (o *opening) note(step string) {
	o.Moments = append(o.Moments, moment{step, time.Now().UnixNano()})
}

// tellOpening opens the model, predicts one token, and writes as JSON when which step was over.
func (s *settings) tellOpening(stdout io.Writer) error {
	var o opening
	o.note("program started")
	weights := minfer.WithProgress(func(p minfer.Progress) {
		if p.Done == p.Total {
			o.note("weights ready")
		}
	})
	m, err := s.open(s.threads[0], weights)
	if err != nil {
		return err
	}
	defer m.Close()
	o.note("model open")
	session, err := m.NewSession(minfer.WithContext(512))
	if err != nil {
		return err
	}
	tokens, err := m.Tokenizer().Encode(openPrompt, minfer.EncodeOptions{})
	if err != nil {
		return err
	}
	o.note("prompt encoded")
	if _, err := session.Eval(context.Background(), tokens); err != nil {
		return err
	}
	o.note("first token")
	o.Peak = peakMemory()
	return json.NewEncoder(stdout).Encode(o)
}

// peakMemory asks Linux how much memory the process had at most.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 if it is none
			return kilobytes << 10
		}
	}
	return 0
}

// steps collects over the rounds how long each step took.
type steps struct {
	threads int
	names   []string
	took    map[string][]float64 // milliseconds
	peaks   []float64            // MiB
}

func (t *steps) add(step string, took time.Duration) {
	if _, known := t.took[step]; !known {
		t.names = append(t.names, step)
	}
	t.took[step] = append(t.took[step], float64(took)/float64(time.Millisecond))
}

// measureOpen opens the model in processes of their own, and prints how long it took from the start of
// a process to its first token, and the steps of that.
func measureOpen(s *settings, stdout io.Writer) error {
	var tables []*steps
	for _, threads := range s.threads {
		tables = append(tables, &steps{threads: threads, took: make(map[string][]float64)})
	}
	for range s.rounds {
		for _, t := range tables {
			if err := s.openAgain(t); err != nil {
				return err
			}
		}
		if err := s.runVersus(stdout); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%-28s %10s %10s %10s\n", "milliseconds", "median", "least", "most")
	for _, t := range tables {
		suffix := threadsSuffix(t.threads)
		for _, name := range t.names {
			writeRow(stdout, name+suffix, t.took[name])
		}
		if t.peaks[0] > 0 {
			writeRow(stdout, "MiB of memory at most"+suffix, t.peaks)
		}
	}
	return nil
}

// openAgain starts a process that opens the model, and adds what it took.
func (s *settings) openAgain(t *steps) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-open-once", "-m", s.model, "-t", strconv.Itoa(t.threads), "-backends", s.backends}
	if s.inPlace {
		args = append(args, "-in-place")
	}
	if s.rounded {
		args = append(args, "-rounded")
	}
	command := exec.Command(program, args...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	begun := time.Now().UnixNano()
	if err := command.Run(); err != nil {
		return fmt.Errorf("opening in a process of its own: %w: %s", err, &errs)
	}
	var o opening
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		return fmt.Errorf("opening in a process of its own said %q: %w", &out, err)
	}
	before := begun
	for _, m := range o.Moments {
		t.add("  "+m.Step, time.Duration(m.At-before))
		before = m.At
	}
	t.add("start to first token", time.Duration(before-begun))
	t.peaks = append(t.peaks, float64(o.Peak)/(1<<20))
	return nil
}

// writeRow prints the median and the extremes of what was measured.
func writeRow(w io.Writer, name string, values []float64) {
	slices.Sort(values)
	fmt.Fprintf(w, "%-28s %10.1f %10.1f %10.1f\n", name, median(values), values[0], values[len(values)-1])
}

func threadsSuffix(threads int) string {
	if threads == 0 {
		return ""
	}
	return ", " + threadCount(threads)
}

func threadCount(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

func (s *settings) runVersus(stdout io.Writer) error {
	if s.versus == "" {
		return nil
	}
	fields := strings.Fields(s.versus)
	command := exec.Command(fields[0], fields[1:]...)
	command.Stdout, command.Stderr = stdout, stdout
	return command.Run()
}
