package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
)

// TestEmbeddings compares the answers with what the library gives.
func TestEmbeddings(t *testing.T) {
	s := startServer(t)
	m, err := minfer.OpenBytes(storyteller.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	texts := []string{"The fox lived in Rome.", "One, two, three."}
	want, err := m.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := m.CountTokens(t.Context(), texts[0])
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage map[string]int
	}
	ask := func(request string) (a answer) {
		status, body := s.do(t, "POST", "/v1/embeddings", request)
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", request, status, body)
		}
		return a
	}

	a := ask(`{"model": "storyteller", "input": ["The fox lived in Rome.", "One, two, three."]}`)
	if a.Object != "list" || len(a.Data) != 2 {
		t.Fatalf("%+v", a)
	}
	for i, e := range a.Data {
		var got []float32
		if err := json.Unmarshal(e.Embedding, &got); err != nil {
			t.Fatal(err)
		}
		if e.Object != "embedding" || e.Index != i || !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%d: %s %d, or another vector", i, e.Object, e.Index)
		}
	}
	a = ask(`{"input": "The fox lived in Rome.", "encoding_format": "base64"}`)
	var text string
	if err := json.Unmarshal(a.Data[0].Embedding, &text); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 4*len(want[0]) {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	for i, x := range want[0] {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != x {
			t.Fatalf("base64: [%d] is %v, want %v", i, got, x)
		}
	}
	if u := a.Usage; u["prompt_tokens"] != tokens || u["total_tokens"] != tokens {
		t.Errorf("usage %v, want %d tokens", u, tokens)
	}
}
