package grammar_test

import (
	"context"
	"fmt"

	"github.com/minfer/minfer/internal/grammar"
)

// A model that wants to answer at length is held to a schema.
func Example() {
	tokens := []string{"Sure", "! ", `{"`, "city", "name", `"`, ": ", "Paris", "}", "42", "<end>"}
	vocabulary := grammar.NewVocabulary(len(tokens), func(id int32) []byte { return []byte(tokens[id]) }, []int32{10})
	schema, err := grammar.Schema(context.Background(), []byte(`{
		"type": "object", "properties": {"city": {"enum": ["Paris", "London"]}}, "required": ["city"]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	matcher := schema.Bind(vocabulary).Matcher()
	for !matcher.Complete() {
		logits := []float32{9, 8, 1, 2, 7, 3, 1, 6, 2, 5, 4} // the same in each step
		if err := matcher.Mask(logits); err != nil {
			fmt.Println(err)
			return
		}
		best := int32(0)
		for id, x := range logits {
			if x > logits[best] {
				best = int32(id)
			}
		}
		if err := matcher.Accept(best); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s|", tokens[best])
	}
	// Output: {"|city|"|: |"|Paris|"|}|
}
