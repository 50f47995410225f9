package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// row is a figure as it is printed: medians over the rounds.
type row struct {
	Model   string  `json:"model"`
	Test    string  `json:"test"` // "prompt" or "generation"
	Tokens  int     `json:"tokens"`
	Depth   int     `json:"depth"`
	Threads int     `json:"threads"`
	Median  float64 `json:"median"` // tokens per second
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Roof    float64 `json:"roof,omitempty"`  // fraction of what the machine can do
	Other   float64 `json:"other,omitempty"` // tokens per second of the other program
	Ratio   float64 `json:"ratio,omitempty"` // to the other program
}

// writers are the forms of -o.
var writers = map[string]func(io.Writer, []row) error{"table": writeTable, "csv": writeCSV, "json": writeJSON}

func (f *figure) row(model string) row {
	rates := slices.Clone(f.rates)
	slices.Sort(rates)
	return row{
		Model: model, Test: f.kind, Tokens: f.tokens, Depth: f.depth, Threads: f.threads,
		Median: median(rates), Least: rates[0], Most: rates[len(rates)-1],
		Roof: medianOf(f.fractions), Other: medianOf(f.others), Ratio: medianOf(f.ratios),
	}
}

// medianOf is the median of values in any order, or 0 of none.
func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return median(sorted)
}

func (r *row) name() string {
	if r.Test == generation {
		return fmt.Sprintf("generation at %d%s", r.Depth, threadsSuffix(r.Threads))
	}
	return fmt.Sprintf("prompt of %d%s", r.Tokens, threadsSuffix(r.Threads))
}

func writeTable(w io.Writer, rows []row) error {
	against := slices.ContainsFunc(rows, func(r row) bool { return r.Other > 0 })
	header := fmt.Sprintf("%-28s %10s %10s %10s %8s", "tokens per second", "median", "least", "most", "of roof")
	if against {
		header += fmt.Sprintf(" %10s %8s", "other", "ratio")
	}
	if _, err := fmt.Fprintln(w, header); err != nil {
		return err
	}
	for _, r := range rows {
		line := fmt.Sprintf("%-28s %10.1f %10.1f %10.1f %7.0f%%", r.name(), r.Median, r.Least, r.Most, 100*r.Roof)
		if against {
			line += fmt.Sprintf(" %10.1f %8.2f", r.Other, r.Ratio)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func writeCSV(w io.Writer, rows []row) error {
	c := csv.NewWriter(w)
	records := [][]string{{"model", "test", "tokens", "depth", "threads", "median", "least", "most", "roof", "other", "ratio"}}
	for _, r := range rows {
		record := []string{r.Model, r.Test, strconv.Itoa(r.Tokens), strconv.Itoa(r.Depth), strconv.Itoa(r.Threads)}
		for _, v := range []float64{r.Median, r.Least, r.Most, r.Roof, r.Other, r.Ratio} {
			record = append(record, strconv.FormatFloat(v, 'g', 5, 64))
		}
		records = append(records, record)
	}
	return c.WriteAll(records)
}

func writeJSON(w io.Writer, rows []row) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rows)
}
