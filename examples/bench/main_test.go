package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMain lets the test's program be the process that -open starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-open-once" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestOpen(t *testing.T) {
	var out, errs bytes.Buffer
	if err := run([]string{"-open", "-t", "1,2", "-r", "2"}, &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	for _, threads := range []string{"1 thread", "2 threads"} {
		total := medianIn(t, out.String(), "start to first token, "+threads)
		var sum float64
		for _, step := range []string{"program started", "weights ready", "model open", "prompt encoded", "first token"} {
			sum += medianIn(t, out.String(), "  "+step+", "+threads)
		}
		// Medians of steps do not add up to that of the whole, extremes even less, but nearly.
		if !(0 < total && total < 2*sum && sum < 2*total) {
			t.Errorf("steps of %v ms and %v in all:\n%s", sum, total, out.String())
		}
	}
}

// medianIn returns the median of a row, having checked the order of median, least and most.
func medianIn(t *testing.T, table, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` +([0-9.]+) +([0-9.]+) +([0-9.]+)(?: +[0-9]+%)?$`).FindStringSubmatch(table)
	if m == nil {
		t.Fatalf("no row %q in\n%s", name, table)
	}
	median, least, most := number(t, m[1]), number(t, m[2]), number(t, m[3])
	if !(0 <= least && least <= median && median <= most) {
		t.Errorf("%s: median %v, least %v, most %v", name, median, least, most)
	}
	return median
}

func TestMeasure(t *testing.T) {
	var out, errs bytes.Buffer
	if err := run([]string{"-p", "16", "-n", "4", "-d", "0,8", "-t", "1,2", "-r", "2"}, &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	for _, name := range []string{"prompt of 16, 1 thread", "generation at 0, 1 thread", "generation at 8, 2 threads"} {
		if medianIn(t, out.String(), name) <= 0 {
			t.Errorf("%s: nothing", name)
		}
	}
}

// TestForms: the same rows as CSV and JSON, and where the time goes apart from them.
func TestForms(t *testing.T) {
	args := []string{"-p", "0", "-n", "4", "-t", "1", "-r", "1", "-profile"}
	var out, errs bytes.Buffer
	if err := run(append(args, "-o", "json"), &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	var rows []row
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v: %v", rows, err)
	}
	if r := rows[0]; r.Test != generation || r.Tokens != 4 || r.Threads != 1 || r.Median <= 0 || r.Roof < 0 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(errs.String(), "FusedFFN") || !strings.Contains(errs.String(), "between them") {
		t.Errorf("no profile in %q", errs.String())
	}
	out.Reset()
	if err := run(append(args, "-o", "csv"), &out, &errs); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(records) != 2 || records[1][1] != generation {
		t.Errorf("%v: %v", records, err)
	}
}

func TestRatesOfOthers(t *testing.T) {
	rate, err := parseRate([]byte("# header tg1\ntg24@d2048 11.80 | median 11.80 tok/s\n"))
	if err != nil || rate != 11.8 {
		t.Errorf("%v, %v", rate, err)
	}
	if _, err := parseRate([]byte("pp512\n")); err == nil {
		t.Error("a line without a rate is accepted")
	}
	rate, err = parseLlamaBench([]byte(`[{"n_gen": 64, "avg_ts": 12.5}]`))
	if err != nil || rate != 12.5 {
		t.Errorf("%v, %v", rate, err)
	}
	if _, err := parseLlamaBench([]byte(`[]`)); err == nil {
		t.Error("no row is accepted")
	}
}

// TestPerplexity: the storyteller predicts a story of its own far better than other words.
func TestPerplexity(t *testing.T) {
	story := ppl(t, "There once was a brave fox who lived in a dark forest. His name was Hugo. Every day he dreamed of one thing. He wanted to find a friend.")
	other := ppl(t, "Quarterly revenue fell short of analysts' expectations amid regulatory headwinds.")
	if !(story > 1 && story < other/5) {
		t.Errorf("perplexity of a story is %v and of other words %v", story, other)
	}
}

func ppl(t *testing.T, text string) float64 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-ppl", file}, &out, &out); err != nil {
		t.Fatal(err)
	}
	return number(t, strings.Fields(out.String())[1])
}

func TestRefused(t *testing.T) {
	for _, args := range [][]string{{"-d", "x"}, {"-r", "0"}, {"-p", "-1"}, {"extra"}, {"-m", "no such file"}, {"-ppl", "no such file"}, {"-o", "xml"}, {"-against", "x"}} {
		var out bytes.Buffer
		if err := run(args, &out, &out); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
