package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The other program of -against measures one figure at a time. It is llama.cpp's llama-bench, or one
// that is called as
//
//	COMMAND bench MODEL -p PROMPT -n GENERATE -d DEPTH -t THREADS -r 1
//
// and prints the tokens per second after "pp" and the prompt's length or "tg" and the number of
// tokens, such as "pp512 123.4" or "tg64@d2048 12.3".
func (s *settings) otherRate(f *figure) (float64, error) {
	fields := strings.Fields(s.against)
	prompt, generate := f.tokens, 0
	if f.kind == generation {
		prompt, generate = 0, f.tokens
	}
	flags := []string{"-p", strconv.Itoa(prompt), "-n", strconv.Itoa(generate), "-d", strconv.Itoa(f.depth), "-t", strconv.Itoa(f.threads), "-r", "1"}
	parse := parseRate
	if strings.HasPrefix(filepath.Base(fields[0]), "llama-bench") {
		flags = append([]string{"-m", s.model, "-o", "json"}, flags...)
		parse = parseLlamaBench
	} else {
		flags = append([]string{"bench", s.model}, flags...)
	}
	out, err := exec.Command(fields[0], append(fields[1:], flags...)...).Output()
	if err != nil {
		return 0, fmt.Errorf("-against %s: %w", s.against, err)
	}
	rate, err := parse(out)
	if err != nil {
		return 0, fmt.Errorf("-against %s: %w", s.against, err)
	}
	return rate, nil
}

var rateLine = regexp.MustCompile(`(?m)^(?:pp|tg)\d+\S* +([0-9.]+)`)

func parseRate(out []byte) (float64, error) {
	m := rateLine.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no line such as \"tg64 12.3\" in what it printed: %q", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func parseLlamaBench(out []byte) (float64, error) {
	var rows []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return 0, err
	}
	if len(rows) != 1 || rows[0].Rate <= 0 {
		return 0, fmt.Errorf("%d rows and not one with avg_ts", len(rows))
	}
	return rows[0].Rate, nil
}
