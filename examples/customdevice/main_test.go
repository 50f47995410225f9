package main

import (
	"bytes"
	"context"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutput(t *testing.T) {
	outputs := make(map[string]string)
	for _, backends := range []string{"relay,cpu", "cpu"} {
		var out bytes.Buffer
		if err := run(context.Background(), &out, "", strings.Split(backends, ","), "What is 3 + 4?", 60); err != nil {
			t.Fatal(err)
		}
		outputs[backends] = out.String()
	}
	mixed := outputs["relay,cpu"]
	for _, want := range []string{
		"graph 0: decode of 1 token, ",
		"  split 0: cpu, ", ": 1 Embed\n",
		"  split 1: relay, ", "in embed, out blk.0.attn_q blk.0.attn_k blk.0.attn_v: 1 RMSNorm 3 MatMul\n",
		"  split 2: cpu, ", "1 KVStore 1 Attention\n",
		"\n> What is 3 + 4?\n3 plus 4 is 7.\n\n",
		"The relay ran ",
	} {
		if !strings.Contains(mixed, want) {
			t.Errorf("the output has no %q:\n%s", want, mixed)
		}
	}
	if !strings.Contains(outputs["cpu"], ", splits: 1\n") || !strings.Contains(outputs["cpu"], "3 plus 4 is 7.") {
		t.Errorf("the output of the CPU alone is\n%s", outputs["cpu"])
	}
}

// TestFromOutside checks that the example takes no more than any module can.
func TestFromOutside(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.go", "relay/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, found...)
	}
	for _, path := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.Contains(i.Path.Value, "internal") {
				t.Errorf("%s imports %s", path, i.Path.Value)
			}
		}
	}
}
