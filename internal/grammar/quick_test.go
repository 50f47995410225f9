package grammar

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"os"
)

func byteVocab() *Vocabulary {
	return NewVocabulary(257, func(id int32) []byte { return []byte{byte(id)} }, []int32{256})
}

func TestQuick(t *testing.T) {
	for _, c := range []struct{ g, ok, no string }{
		{`root ::= "a" root "b" | ""`, "aaabbb", "aaab"},
		{`root ::= ("a" | "ab") "c"?`, "abc", "acc"},
		{`root ::= x{2,3}
x ::= [a-c] | [^a-z]`, "aé", "a"},
	} {
		g, err := GBNF(context.Background(), c.g)
		if err != nil {
			t.Fatal(err)
		}
		m := g.Bind(byteVocab()).Matcher()
		if err := m.AcceptText(c.ok); err != nil || !m.CanEnd() {
			t.Errorf("%q: %v %v", c.ok, err, m.CanEnd())
		}
		m.Reset()
		if err := m.AcceptText(c.no); err == nil && m.CanEnd() {
			t.Errorf("%q accepted", c.no)
		}
	}
	for _, f := range []string{"json", "chess", "arithmetic", "c", "english", "japanese", "list", "json_arr"} {
		src, err := os.ReadFile(os.Getenv("HOME")+"/.cache/minfer-oracle/headers/grammars/" + f + ".gbnf")
		if err != nil {
			t.Skip()
		}
		if _, err := GBNF(context.Background(), string(src)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestQuickJSON(t *testing.T) {
	g, err := JSON(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(g.program.nodes), len(g.program.entries), g.program.classes)
	mk := g.Bind(byteVocab())
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := mk.Matcher()
		var out []byte
		for n := 0; n < 3000; n++ {
			l := make([]float32, 257)
			if err := m.Mask(l); err != nil {
				t.Fatal(err)
			}
			var ids []int
			for i, x := range l {
				if x == 0 {
					ids = append(ids, i)
				}
			}
			id := ids[r.IntN(len(ids))]
			for _, e := range []int{256, '}', ']', '"'} {
				if l[e] == 0 && r.IntN(4) == 0 {
					id = e
				}
			}
			if err := m.Accept(int32(id)); err != nil {
				t.Fatal(err)
			}
			if id == 256 {
				break
			}
			out = append(out, byte(id))
		}
		if m.done && !json.Valid(out) {
			t.Fatalf("%q", out)
		}
	}
}
