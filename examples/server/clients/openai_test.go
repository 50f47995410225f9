package clients

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// These tests call the server by the official Go client, as programs do that were written for
// another service.

func (s *server) openai() openai.Client {
	return openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("none"), option.WithHTTPClient(s.client), option.WithMaxRetries(0))
}

func chatParams(messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "storyteller", Messages: messages, Temperature: openai.Float(0)}
}

// ask returns the answer to a question.
func (s *server) ask(t testing.TB, question string) string {
	t.Helper()
	client := s.openai()
	answer, err := client.Chat.Completions.New(context.Background(), chatParams(openai.UserMessage(question)))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Choices[0].Message.Content
}

const threeAndFour = "3 plus 4 is 7."

func TestOpenAIChat(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.SystemMessage("Be brief."), openai.UserMessage("What is 3 + 4?"))
	first, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	choice := first.Choices[0]
	if choice.Message.Content != threeAndFour || choice.FinishReason != "stop" || choice.Message.Role != "assistant" {
		t.Errorf("%s", first.RawJSON())
	}
	if first.Model != "storyteller" || first.Object != "chat.completion" || !strings.HasPrefix(first.ID, "chatcmpl-") || first.Created == 0 {
		t.Errorf("%s", first.RawJSON())
	}
	u := first.Usage
	if u.PromptTokens == 0 || u.CompletionTokens != 9 || u.TotalTokens != u.PromptTokens+9 || u.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("usage %s", u.RawJSON())
	}

	// The next turn costs only what is new.
	p.Messages = append(p.Messages, choice.Message.ToParam(), openai.UserMessage("What is 1 + 1?"))
	second, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if kept := second.Usage.PromptTokensDetails.CachedTokens; kept < u.TotalTokens-1 {
		t.Errorf("%d tokens of the first turn's %d were kept", kept, u.TotalTokens)
	}
}

func TestOpenAIParts(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	answer, err := client.Chat.Completions.New(t.Context(), chatParams(openai.DeveloperMessage("Be brief."), openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart("What is "), openai.TextContentPart("3 + 4?"),
	})))
	if err != nil || answer.Choices[0].Message.Content != threeAndFour {
		t.Errorf("%v: %s", err, answer.RawJSON())
	}
}

func TestOpenAIStream(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("What is 3 + 4?"))
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(t.Context(), p)
	var sum openai.ChatCompletionAccumulator
	pieces := 0
	for stream.Next() {
		chunk := stream.Current()
		if !sum.AddChunk(chunk) {
			t.Fatalf("does not fit: %s", chunk.RawJSON())
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			pieces++
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if sum.Choices[0].Message.Content != threeAndFour || pieces < 5 || sum.Choices[0].FinishReason != "stop" || sum.Usage.CompletionTokens != 9 {
		t.Errorf("%d pieces: %+v, usage %+v", pieces, sum.Choices, sum.Usage)
	}
}

func function(name, description string, parameters shared.FunctionParameters) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Description: openai.String(description), Parameters: parameters})
}

var weather = function("get_weather", "Get the current weather in a city.", shared.FunctionParameters{
	"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
})

var clock = function("get_time", "Get the current time.", shared.FunctionParameters{"type": "object", "properties": map[string]any{}, "required": []string{}})

func TestOpenAITools(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("What is the weather in Oslo?"))
	p.Tools = []openai.ChatCompletionToolUnionParam{weather, clock}
	first, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	m := first.Choices[0].Message
	if first.Choices[0].FinishReason != "tool_calls" || m.Content != "" || len(m.ToolCalls) != 1 {
		t.Fatalf("%s", first.RawJSON())
	}
	call := m.ToolCalls[0]
	if call.Function.Name != "get_weather" || call.Type != "function" || call.ID == "" || !sameJSON(call.Function.Arguments, `{"city": "Oslo"}`) {
		t.Errorf("%s", call.RawJSON())
	}
	p.Messages = append(p.Messages, m.ToParam(), openai.ToolMessage(`{"weather": "sunny", "degrees": 21}`, call.ID))
	second, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := second.Choices[0].Message.Content; got != "In Oslo it is sunny and 21 degrees." {
		t.Errorf("%q", got)
	}
	if kept := second.Usage.PromptTokensDetails.CachedTokens; kept < first.Usage.TotalTokens-2 {
		t.Errorf("%d of %d tokens were kept", kept, first.Usage.TotalTokens)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	x2, _ := json.Marshal(x)
	y2, _ := json.Marshal(y)
	return string(x2) == string(y2)
}

func TestOpenAIToolsStreamed(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("What is the weather in Oslo?"))
	p.Tools = []openai.ChatCompletionToolUnionParam{weather}
	stream := client.Chat.Completions.NewStreaming(t.Context(), p)
	var sum openai.ChatCompletionAccumulator
	pieces := 0
	finished := openai.FinishedChatCompletionToolCall{}
	for stream.Next() {
		sum.AddChunk(stream.Current())
		if c := stream.Current().Choices; len(c) > 0 && len(c[0].Delta.ToolCalls) > 0 {
			pieces++
		}
		if call, ok := sum.JustFinishedToolCall(); ok {
			finished = call
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if finished.Name != "get_weather" || !sameJSON(finished.Arguments, `{"city": "Oslo"}`) || pieces < 4 || sum.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("%+v in %d pieces, %s", finished, pieces, sum.Choices[0].FinishReason)
	}
}

func TestOpenAIToolChoice(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	ask := func(choice openai.ChatCompletionToolChoiceOptionUnionParam) openai.ChatCompletionChoice {
		t.Helper()
		p := chatParams(openai.UserMessage("What time is it?"))
		p.Tools = []openai.ChatCompletionToolUnionParam{weather, clock}
		p.ToolChoice = choice
		answer, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Choices[0]
	}
	mode := func(m string) openai.ChatCompletionToolChoiceOptionUnionParam {
		return openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String(m)}
	}
	if c := ask(mode("none")); len(c.Message.ToolCalls) != 0 || c.Message.Content == "" {
		t.Errorf("none: %s", c.RawJSON())
	}
	if c := ask(mode("required")); len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Name != "get_time" {
		t.Errorf("required: %s", c.RawJSON())
	}
	named := openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "get_time"})
	if c := ask(named); len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Name != "get_time" || c.Message.ToolCalls[0].Function.Arguments != "{}" {
		t.Errorf("named: %s", c.RawJSON())
	}
}

func TestOpenAILogprobs(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("What is 3 + 4?"))
	p.Logprobs = openai.Bool(true)
	plain, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	p.TopLogprobs = openai.Int(3)
	answer, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i, token := range answer.Choices[0].Logprobs.Content {
		text += token.Token
		if len(token.TopLogprobs) != 3 || token.TopLogprobs[0].Token != token.Token || token.Logprob > 0 ||
			token.TopLogprobs[1].Logprob > token.TopLogprobs[0].Logprob || len(token.Bytes) != len(token.Token) {
			t.Errorf("%s", token.RawJSON())
		}
		if other := plain.Choices[0].Logprobs.Content[i]; math.Abs(other.Logprob-token.TopLogprobs[0].Logprob) > 1e-5 || len(other.TopLogprobs) != 0 {
			t.Errorf("%s without the likeliest, %s with them", other.RawJSON(), token.RawJSON())
		}
	}
	if text != threeAndFour {
		t.Errorf("the tokens make %q", text)
	}
	p.Stop = openai.ChatCompletionNewParamsStopUnion{OfString: openai.String("4 is")}
	stopped, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	text = ""
	for _, token := range stopped.Choices[0].Logprobs.Content {
		text += token.Token
	}
	if text != "3 plus " || stopped.Choices[0].Message.Content != text {
		t.Errorf("stopped: the tokens make %q, the answer is %q", text, stopped.Choices[0].Message.Content)
	}
}

func TestOpenAIChoices(t *testing.T) {
	for _, slots := range []string{"1", "4"} {
		s := startServer(t, "-slots", slots)
		client := s.openai()
		p := chatParams(openai.UserMessage("Tell me a story about a brave fox."))
		p.Temperature, p.Seed, p.N, p.MaxCompletionTokens = openai.Float(1.5), openai.Int(11), openai.Int(3), openai.Int(24)
		answer, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Choices) != 3 || answer.Usage.CompletionTokens > 72 {
			t.Fatalf("%s", answer.RawJSON())
		}
		seen := map[string]bool{}
		for i, c := range answer.Choices {
			seen[c.Message.Content] = true
			if c.Index != int64(i) || c.Message.Content != again.Choices[i].Message.Content {
				t.Errorf("choice %d: %q and then %q", c.Index, c.Message.Content, again.Choices[i].Message.Content)
			}
		}
		if len(seen) != 3 {
			t.Errorf("%d of 3 choices are different", len(seen))
		}
		// Each choice is what it would be alone.
		p.Seed, p.N = openai.Int(13), openai.Int(1)
		alone, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil || alone.Choices[0].Message.Content != answer.Choices[2].Message.Content {
			t.Errorf("%v: alone %q, as the third %q", err, alone.Choices[0].Message.Content, answer.Choices[2].Message.Content)
		}

		p.Seed, p.N = openai.Int(11), openai.Int(3)
		stream := client.Chat.Completions.NewStreaming(t.Context(), p)
		texts := make([]string, 3)
		for stream.Next() {
			for _, c := range stream.Current().Choices {
				texts[c.Index] += c.Delta.Content
			}
		}
		for i, text := range texts {
			if text != answer.Choices[i].Message.Content {
				t.Errorf("streamed choice %d is %q, want %q", i, text, answer.Choices[i].Message.Content)
			}
		}
	}
}

func TestOpenAIStopsAndLimits(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	for _, test := range []struct {
		change func(*openai.ChatCompletionNewParams)
		text   string
		reason string
	}{
		{func(p *openai.ChatCompletionNewParams) { p.Stop.OfString = openai.String(", three") }, "One, two", "stop"},
		{func(p *openai.ChatCompletionNewParams) { p.Stop.OfStringArray = []string{"nine", "four"} }, "One, two, three, ", "stop"},
		{func(p *openai.ChatCompletionNewParams) { p.MaxTokens = openai.Int(5) }, "One, two, three", "length"},
		{func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(3) }, "One, two", "length"},
		{func(p *openai.ChatCompletionNewParams) {
			p.MaxCompletionTokens, p.MaxTokens = openai.Int(3), openai.Int(5)
		}, "One, two", "length"},
		{func(p *openai.ChatCompletionNewParams) { p.User, p.Store = openai.String("me"), openai.Bool(false) }, "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.", "stop"},
	} {
		p := chatParams(openai.UserMessage("Count to 12."))
		test.change(&p)
		answer, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Error(err)
		} else if c := answer.Choices[0]; c.Message.Content != test.text || string(c.FinishReason) != test.reason {
			t.Errorf("%q (%s), want %q (%s)", c.Message.Content, c.FinishReason, test.text, test.reason)
		}
	}
	p := chatParams(openai.UserMessage("What is 3 + 4?"))
	model, err := minfer.OpenBytes(storyteller.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	three, _ := model.Tokenizer().ID("3")
	p.LogitBias = map[string]int64{itoa(three): -100}
	answer, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil || strings.HasPrefix(answer.Choices[0].Message.Content, "3") {
		t.Errorf("%v: with 3 banned: %q", err, answer.Choices[0].Message.Content)
	}
}

func itoa(t int32) string {
	b, _ := json.Marshal(t)
	return string(b)
}

func TestOpenAICompletions(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	answer, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "storyteller", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"One, two, three,", "one"}},
		MaxTokens: openai.Int(4), Temperature: openai.Float(0), Echo: openai.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Choices) != 2 || answer.Object != "text_completion" || answer.Choices[1].Index != 1 || answer.Choices[0].FinishReason != "length" ||
		!strings.HasPrefix(answer.Choices[0].Text, "One, two, three, four") || !strings.HasPrefix(answer.Choices[1].Text, "one") {
		t.Errorf("%s", answer.RawJSON())
	}
	stream := client.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{
		Model: "storyteller", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("One, two, three,")},
		MaxTokens: openai.Int(4), Temperature: openai.Float(0), Logprobs: openai.Int(2),
	})
	text, tokens := "", ""
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text += c.Text
			tokens += strings.Join(c.Logprobs.Tokens, "")
		}
	}
	if err := stream.Err(); err != nil || "One, two, three,"+text != answer.Choices[0].Text || tokens != text {
		t.Errorf("%v: streamed %q of tokens %q, whole %q", err, text, tokens, answer.Choices[0].Text)
	}
}

func TestOpenAIErrors(t *testing.T) {
	s := startServer(t, "-ctx", "64")
	client := s.openai()
	for _, test := range []struct {
		change func(*openai.ChatCompletionNewParams)
		status int
		param  string
		code   string
	}{
		{func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-5" }, 404, "model", "model_not_found"},
		{func(p *openai.ChatCompletionNewParams) { p.Messages = nil }, 400, "messages", ""},
		{func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(-1) }, 400, "temperature", ""},
		{func(p *openai.ChatCompletionNewParams) { p.TopLogprobs = openai.Int(2) }, 400, "top_logprobs", ""},
		{func(p *openai.ChatCompletionNewParams) {
			p.Messages[0] = openai.UserMessage(strings.Repeat("Hello. ", 100))
		}, 400, "messages", "context_length_exceeded"},
		{func(p *openai.ChatCompletionNewParams) {
			p.Messages = append(p.Messages, openai.SystemMessage("late"))
		}, 400, "messages", ""},
		{func(p *openai.ChatCompletionNewParams) {
			p.Messages[0] = openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:,"})})
		}, 400, "messages[0].content[0].type", ""},
	} {
		p := chatParams(openai.UserMessage("Hello"))
		test.change(&p)
		for _, streamed := range []bool{false, true} {
			var err error
			if streamed {
				stream := client.Chat.Completions.NewStreaming(t.Context(), p)
				for stream.Next() {
				}
				err = stream.Err()
			} else {
				_, err = client.Chat.Completions.New(t.Context(), p)
			}
			var api *openai.Error
			if !errors.As(err, &api) || api.StatusCode != test.status || api.Param != test.param || api.Code != test.code || api.Message == "" {
				t.Errorf("%v, want %d %q %q", err, test.status, test.param, test.code)
			}
		}
	}
	list, err := client.Models.List(t.Context())
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != "storyteller" {
		t.Errorf("%v: %+v", err, list)
	}
}

func TestOpenAIEmbeddings(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	answer, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "storyteller", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a brave fox", "a brave fox", "seven"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	product := func(a, b int) (sum float64) {
		for i, x := range answer.Data[a].Embedding {
			sum += x * answer.Data[b].Embedding[i]
		}
		return sum
	}
	if len(answer.Data) != 3 || len(answer.Data[0].Embedding) != 256 || math.Abs(product(0, 1)-1) > 1e-5 || product(0, 2) > 0.99 || answer.Usage.PromptTokens == 0 {
		t.Errorf("%d vectors of %d, products %v and %v", len(answer.Data), len(answer.Data[0].Embedding), product(0, 1), product(0, 2))
	}
}

func TestOpenAISchema(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("Tell me about a fox."))
	p.MaxTokens = openai.Int(100)
	p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "facts", Strict: openai.Bool(true), Schema: map[string]any{
			"type": "object", "additionalProperties": false, "required": []string{"animal", "brave"},
			"properties": map[string]any{"animal": map[string]any{"enum": []string{"fox", "owl"}}, "brave": map[string]any{"type": "boolean"}},
		},
	}}}
	answer, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Animal string
		Brave  *bool
	}
	if err := json.Unmarshal([]byte(answer.Choices[0].Message.Content), &facts); err != nil || facts.Brave == nil || facts.Animal != "fox" && facts.Animal != "owl" {
		t.Errorf("%v: %s", err, answer.RawJSON())
	}
	p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	answer, err = client.Chat.Completions.New(t.Context(), p)
	if err != nil || answer.Choices[0].FinishReason == "stop" && !json.Valid([]byte(answer.Choices[0].Message.Content)) {
		t.Errorf("%v: %s", err, answer.RawJSON())
	}
}

// TestOpenAIConcurrent streams to 32 clients at once: all get what they would get alone.
func TestOpenAIConcurrent(t *testing.T) {
	s := startServer(t, "-slots", "4", "-ctx", "256")
	client := s.openai()
	questions := []string{"What is 3 + 4?", "Count to 12.", "What is the opposite of hot?", "Repeat: key fox Rome seven shy Nora"}
	want := map[string]string{}
	for _, q := range questions {
		want[q] = s.ask(t, q)
	}
	var wait sync.WaitGroup
	for i := range 32 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			q := questions[i%len(questions)]
			stream := client.Chat.Completions.NewStreaming(context.Background(), chatParams(openai.UserMessage(q)))
			text := ""
			for stream.Next() {
				if c := stream.Current().Choices; len(c) > 0 {
					text += c[0].Delta.Content
				}
			}
			if stream.Err() != nil || text != want[q] {
				t.Errorf("%q: %v: %q, want %q", q, stream.Err(), text, want[q])
			}
		}()
	}
	wait.Wait()
	s.idle(t)
}

func TestOpenAIPenalties(t *testing.T) {
	s := startServer(t)
	client := s.openai()
	p := chatParams(openai.UserMessage("Count to 12."))
	p.FrequencyPenalty, p.PresencePenalty = param.NewOpt(2.0), param.NewOpt(2.0)
	answer, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil || answer.Choices[0].Message.Content == s.ask(t, "Count to 12.") {
		t.Errorf("%v: penalties change nothing: %q", err, answer.Choices[0].Message.Content)
	}
}
