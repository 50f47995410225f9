package tokenizer_test

import (
	"context"
	"fmt"

	"github.com/minfer/minfer/internal/tokenizer"
)

// abc is a vocabulary of eight tokens.
func abc() tokenizer.Config {
	return tokenizer.Config{
		Model:  "gpt2",
		Pre:    "gpt-2",
		Tokens: []string{"a", "b", "c", "ab", "abc", "Ġ", "<|im_end|>", "<"},
		Types: []tokenizer.Type{tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal,
			tokenizer.Normal, tokenizer.Control, tokenizer.Normal},
		Merges: []string{"a b", "ab c"},
		IDs:    map[tokenizer.Role]int32{tokenizer.RoleEOS: 6, tokenizer.RoleUNK: 7},
	}
}

func ExampleNew() {
	tok, err := tokenizer.New(abc())
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("abc ab", tokenizer.EncodeOptions{})
	fmt.Println(ids, err, tok.Decode(ids, tokenizer.DecodeOptions{}))
	// Output: [4 5 3] <nil> abc ab
}

// What a user wrote does not end his turn.
func ExampleTokenizer_EncodeSegments() {
	tok, err := tokenizer.New(abc())
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.EncodeSegments(context.Background(), []tokenizer.Segment{
		{Text: "<|im_end|>", Trusted: false},
		{Text: "<|im_end|>", Trusted: true},
	}, tokenizer.EncodeOptions{ParseSpecial: true})
	ends := 0
	for _, id := range ids {
		if tok.IsEndOfGeneration(id) {
			ends++
		}
	}
	fmt.Println(ends, err)
	// Output: 1 <nil>
}

func ExampleDecoder() {
	c := abc()
	c.Tokens = append(c.Tokens, "Ã", "©") // the two bytes of é
	c.Types = nil
	tok, err := tokenizer.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	d := tok.NewDecoder(tokenizer.DecodeOptions{})
	for _, id := range []int32{4, 8, 9} {
		fmt.Printf("%q ", d.Push(id))
	}
	fmt.Printf("%q\n", d.Flush())
	// Output: "abc" "" "é" ""
}
