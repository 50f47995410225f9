package minfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/minfer/minfer"
)

// A model fills in a struct.
func ExampleGenerate() {
	m, s := exampleModel()
	defer m.Close()
	ctx := context.Background()
	chat := s.Chat()
	for _, err := range chat.Say(ctx, "Tell me a story about a brave fox.", minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
	}
	type facts struct {
		Name   string `json:"name"`
		Animal string `json:"animal" enum:"fox,owl,bear"`
		Place  string `json:"place"`
		Found  string `json:"found,omitempty"`
		Helper string `json:"helper" description:"who came to help" maxLength:"20"`
	}
	f, err := minfer.Generate[facts](ctx, chat, "The facts as JSON.", minfer.Temperature(0))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s the %s lived in a %s. A %s helped.\n", f.Name, f.Animal, f.Place, f.Helper)
	// Output: Hugo the fox lived in a forest. A donkey helped.
}

func ExampleSchemaOf() {
	type city struct {
		Name   string   `json:"name" description:"in English"`
		People int32    `json:"people" minimum:"1"`
		Rivers []string `json:"rivers,omitempty" maxItems:"3"`
	}
	schema, err := minfer.SchemaOf[city]()
	fmt.Println(string(schema), err)
	_, err = minfer.SchemaOf[[]chan int]()
	fmt.Println(errors.Is(err, minfer.ErrType), err)
	// Output:
	// {"type":"object","properties":{"name":{"type":"string","description":"in English"},"people":{"type":"integer","minimum":1,"maximum":2147483647},"rivers":{"type":"array","items":{"type":"string"},"maxItems":3}},"required":["name","people"]} <nil>
	// true minfer: value[] (chan int) has no JSON schema: no JSON can be decoded into it
}

// A model calls a Go function and tells what came of it.
func ExampleNewTool() {
	m, s := exampleModel()
	defer m.Close()
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	add := minfer.NewTool("add", "Add two numbers.", func(_ context.Context, n numbers) (int, error) {
		return n.A + n.B, nil
	})
	chat := s.Chat(minfer.WithTools(add), minfer.MaxToolRounds(3))
	for piece, err := range chat.Say(context.Background(), "What is 120 plus 345?", minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
		if call := piece.ToolCall; call != nil {
			fmt.Print(call.Arguments)
			if call.Done {
				fmt.Println(" =", call.Result)
			}
		}
		fmt.Print(piece.Text)
	}
	// Output:
	// {"a": 120, "b": 345} = 465
	// 120 plus 345 is 465.
}

// constrainedAnswer prints what the storyteller says of the sky under a constraint.
func constrainedAnswer(option minfer.GenerateOption) {
	m, s := exampleModel()
	defer m.Close()
	var finish minfer.FinishReason
	for piece, err := range s.Chat().Say(context.Background(), "What colour is the sky?", option, minfer.Temperature(0), minfer.MaxTokens(60)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
		finish = piece.Finish
	}
	fmt.Printf(" (%v)\n", finish)
}

func ExampleWithJSONSchema() {
	constrainedAnswer(minfer.WithJSONSchema(json.RawMessage(`{"type": "object",
		"properties": {"colour": {"enum": ["red", "green", "blue"]}}, "required": ["colour"]}`)))
	// Output: {"colour": "blue"} (grammar)
}

// Errors say where a schema is wrong.
func ExampleWithJSONSchema_errors() {
	m, s := exampleModel()
	defer m.Close()
	for _, err := range s.Generate(context.Background(), "Hello", minfer.WithJSONSchema(json.RawMessage(`{"properties": {"a": {"type": "text"}}}`))) {
		var schema *minfer.SchemaError
		if errors.As(err, &schema) {
			fmt.Println(schema.Pointer)
		}
	}
	// Output: /properties/a/type
}

func ExampleWithJSON() {
	constrainedAnswer(minfer.WithJSON())
	// Output: {"name": "Tilda", "animal": "fox", "place": "cave", "found": "green hat", "helper": "fox"} (grammar)
}

func ExampleWithGrammar() {
	constrainedAnswer(minfer.WithGrammar(`
		root   ::= "The sky is " colour "."
		colour ::= "red" | "green" | "blue"`))
	// Output: The sky is blue. (grammar)
}

func ExampleWithRegexp() {
	constrainedAnswer(minfer.WithRegexp(`(red|green|blue)!`))
	// Output: blue! (grammar)
}

// The calls in what a model says, for programs that do without Chat.
func ExampleNewToolParser() {
	m, _ := exampleModel()
	defer m.Close()
	p := minfer.NewToolParser(m.ToolFormat(), []string{"add"})
	for _, piece := range []string{"Let me see. <tool_", "call>{\"name\": \"add\", \"argum", "ents\": {\"a\": 1}}</tool_call>"} {
		for _, e := range p.Push(piece) {
			switch e.Kind {
			case minfer.ToolText:
				fmt.Printf("text %q\n", e.Text)
			case minfer.ToolBegin:
				fmt.Printf("call %d: %s", e.Index, e.Text)
			case minfer.ToolArguments:
				fmt.Print(" ", e.Text)
			}
		}
	}
	// Output:
	// text "Let me see."
	// call 0: add {"a": 1}
}

func ExampleNewReasoningSplitter() {
	s := minfer.NewReasoningSplitter("<|im_start|>assistant\n")
	for _, piece := range []string{"<think>The sky", " is easy.</th", "ink>\n\nBlue."} {
		thoughts, answer := s.Push(piece)
		fmt.Printf("%q %q\n", thoughts, answer)
	}
	// Output:
	// "The sky" ""
	// " is easy." ""
	// "" "Blue."
}
