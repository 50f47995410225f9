package main

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/minfer/minfer"
)

// Bounds of what a request may ask for.
const (
	maxChoices     = 16
	maxStops       = 16
	maxTopLogprobs = 20
	maxTools       = 128
	maxPrompts     = 64
	maxBiases      = 1024
)

// params are the fields that both kinds of completions have.
type params struct {
	choices      int
	sampling     minfer.Sampling
	maxTokens    int // 0 is as many as fit
	stops        []string
	stream       bool
	includeUsage bool
	logprobs     bool
	topLogprobs  int
	score        bool // the tokens of the prompt are wanted with their log-probabilities
	nothing      bool // no tokens are to be generated
	format       responseFormat
}

// readParams reads the common fields. Fields that are not known are ignored, as clients send
// what other servers understand; those that are known and would change the answer are refused.
func (s *server) readParams(o object) params {
	p := params{
		choices: int(o.get("n").integer(1, maxChoices, 1)),
		stream:  o.get("stream").flag(),
	}
	s.checkModel(o.get("model"))
	if options := o.get("stream_options"); options.exists() {
		p.includeUsage = options.object().get("include_usage").flag()
	}
	for _, stop := range textOrList(o.get("stop")) {
		if stop == "" {
			o.get("stop").fail("a stop string is empty")
		}
		p.stops = append(p.stops, stop)
	}
	if len(p.stops) > maxStops {
		o.get("stop").fail("there are %d stop strings, want at most %d", len(p.stops), maxStops)
	}
	p.sampling = s.readSampling(o)
	if user := o.get("user"); user.exists() {
		user.text()
	}
	return p
}

// checkModel refuses requests for a model that is not here.
func (s *server) checkModel(v value) {
	if !v.exists() {
		return
	}
	if name := v.text(); *v.err == nil && name != "" && name != s.modelID {
		*v.err = newError(http.StatusNotFound, invalidRequest, "model: %q is not here, only %q", name, s.modelID).
			param(v.path).code("model_not_found")
	}
}

// textOrList is a field that is a string or an array of strings.
func textOrList(v value) []string {
	switch {
	case !v.exists():
		return nil
	case v.is('"'):
		return []string{v.text()}
	case !v.is('['):
		v.fail("it is %s, want a string or an array of strings", v.kind())
		return nil
	}
	var texts []string
	for _, e := range v.list() {
		texts = append(texts, e.text())
	}
	return texts
}

// readSampling reads how tokens are to be chosen. What is left out is as on the command line.
func (s *server) readSampling(o object) minfer.Sampling {
	p := s.settings.sampling.Clone()
	number := func(name string, to *float32, low, high float64) {
		*to = float32(o.get(name).number(low, high, float64(*to)))
	}
	number("temperature", &p.Temperature, 0, 100)
	number("top_p", &p.TopP, 0, 1)
	number("min_p", &p.MinP, 0, 1)
	number("presence_penalty", &p.Penalties.Presence, -2, 2)
	number("frequency_penalty", &p.Penalties.Frequency, -2, 2)
	number("repeat_penalty", &p.Penalties.Repeat, 0.01, 100)
	p.TopK = int(o.get("top_k").integer(0, math.MaxInt32, int64(p.TopK)))
	p.Seed = rand.Uint64()
	if seed := o.get("seed"); seed.exists() {
		p.Seed = uint64(seed.integer(math.MinInt64, math.MaxInt64, 0))
	}
	if bias := o.get("logit_bias"); bias.exists() {
		p.LogitBias = s.readBias(bias.object())
	}
	return p
}

func (s *server) readBias(o object) map[int32]float32 {
	if len(o.members) > maxBiases {
		o.fail("there are %d tokens, want at most %d", len(o.members), maxBiases)
		return nil
	}
	bias := make(map[int32]float32)
	for _, name := range o.names() {
		v := o.get(name)
		id, err := strconv.ParseInt(name, 10, 32)
		if vocab := s.model.Tokenizer().VocabSize(); err != nil || id < 0 || int(id) >= vocab {
			v.fail("%q is no token, want 0 to %d", name, vocab-1)
		}
		b := v.number(-100, 100, 0)
		if b == -100 {
			b = math.Inf(-1) // which stands for a ban
		}
		bias[int32(id)] = float32(b)
	}
	return bias
}

// chatRequest is a request for an answer in a conversation.
type chatRequest struct {
	params
	messages  []minfer.Message
	tools     []tool
	choice    toolChoice
	parallel  bool
	variables json.RawMessage // for the template, or nil
}

// tool is a tool that the model is offered.
type tool struct {
	name       string
	definition json.RawMessage // as templates take it
	parameters json.RawMessage // JSON schema, or nil
	path       string          // of parameters, for errors
	strict     bool            // a schema that calls cannot be held to is an error
}

// toolChoice says whether tools are to be called.
type toolChoice struct {
	none     bool
	required bool
	name     string // of the tool that has to be called, or ""
}

func (s *server) readChat(v value) (*chatRequest, error) {
	o := v.object()
	q := &chatRequest{params: s.readParams(o), parallel: true}
	q.maxTokens = s.readMaxTokens(o, "max_completion_tokens", "max_tokens")
	q.logprobs = o.get("logprobs").flag()
	q.topLogprobs = int(o.get("top_logprobs").integer(0, maxTopLogprobs, 0))
	if q.topLogprobs > 0 && !q.logprobs {
		o.get("top_logprobs").fail("it needs logprobs to be true")
	}
	q.format = readFormat(o.get("response_format"))
	q.readMessages(o.get("messages"))
	q.readTools(o)
	if parallel := o.get("parallel_tool_calls"); parallel.exists() {
		q.parallel = parallel.flag()
	}
	q.variables = readVariables(o)
	o.get("functions").refuse("use tools")
	o.get("function_call").refuse("use tool_choice")
	o.get("audio").refuse("this server answers in text")
	for _, m := range textOrList(o.get("modalities")) {
		if m != "text" {
			o.get("modalities").fail("not supported: this server answers in text")
		}
	}
	return q, *v.err
}

// readMaxTokens reads the limit of an answer from the first of the fields that is there.
func (s *server) readMaxTokens(o object, names ...string) int {
	limit := int64(s.settings.maxTokens)
	for i := len(names) - 1; i >= 0; i-- {
		limit = o.get(names[i]).integer(1, math.MaxInt32, limit)
	}
	return int(limit)
}

// readVariables collects what is meant for the chat template.
func readVariables(o object) json.RawMessage {
	vars := map[string]json.RawMessage{}
	if effort := o.get("reasoning_effort"); effort.exists() {
		text := effort.text()
		vars["reasoning_effort"] = effort.raw
		if text == "none" {
			vars["enable_thinking"] = json.RawMessage("false")
		}
	}
	if more := o.get("chat_template_kwargs"); more.exists() {
		for name, raw := range more.object().members {
			if name == "messages" || name == "tools" {
				more.fail("%s has a field of its own", name)
			}
			vars[name] = raw
		}
	}
	if len(vars) == 0 {
		return nil
	}
	all, _ := json.Marshal(vars) // of valid JSON
	return all
}

func (q *chatRequest) readMessages(v value) {
	if !v.exists() {
		v.fail("it is %s, want an array of messages", v.kind())
		return
	}
	list := v.list()
	if len(list) == 0 {
		v.fail("it is empty, want at least one message")
	}
	for _, e := range list {
		q.messages = append(q.messages, readMessage(e))
	}
}

// readMessage reads one turn. What the template needs besides role and text goes into Fields.
func readMessage(v value) minfer.Message {
	o := v.object()
	role := o.get("role")
	m := minfer.Message{Role: role.text()}
	content := o.get("content")
	fields := map[string]json.RawMessage{}
	keep := func(name string) {
		if f := o.get(name); f.exists() {
			f.text()
			fields[name] = f.raw
		}
	}
	keep("name")
	switch m.Role {
	case "developer": // the newer name
		m.Role = "system"
	case "system", "user":
	case "assistant":
		keep("reasoning_content")
		if calls := o.get("tool_calls"); calls.exists() {
			fields["tool_calls"] = readCalls(calls)
		}
		if !content.exists() && fields["tool_calls"] != nil {
			content.raw = json.RawMessage(`""`)
		}
	case "tool":
		keep("tool_call_id")
	default:
		role.fail("%q is not one of system, developer, user, assistant, tool", m.Role)
	}
	m.Content = readContent(content)
	if len(fields) > 0 {
		m.Fields, _ = json.Marshal(fields) // of valid JSON
	}
	return m
}

// readContent reads a text, or the parts of one.
func readContent(v value) string {
	switch {
	case v.is('"'):
		return v.text()
	case !v.is('['):
		v.fail("it is %s, want a string or an array of parts", v.kind())
		return ""
	}
	var b strings.Builder
	for _, e := range v.list() {
		part := e.object()
		switch kind := part.get("type").text(); kind {
		case "text":
			b.WriteString(part.get("text").text())
		case "refusal":
			b.WriteString(part.get("refusal").text())
		default:
			part.get("type").fail("%q is not supported, want text", kind)
		}
	}
	return b.String()
}

// readCalls reads the calls of an earlier answer. Clients give the arguments as text, and
// templates want the object.
func readCalls(v value) json.RawMessage {
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type call struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var calls []call
	for _, e := range v.list() {
		o := e.object()
		c := call{Type: "function"}
		if kind := o.get("type"); kind.exists() && kind.text() != "function" {
			kind.fail("want function")
		}
		if id := o.get("id"); id.exists() {
			c.ID = id.text()
		}
		f := o.get("function").object()
		c.Function.Name = f.get("name").text()
		arguments := f.get("arguments")
		text := arguments.text()
		if strings.TrimSpace(text) == "" {
			text = "{}"
		}
		inner, err := parseBody([]byte(text))
		if err != nil {
			arguments.fail("want a JSON object in a string")
			continue
		}
		c.Function.Arguments = inner.raw
		calls = append(calls, c)
	}
	raw, _ := json.Marshal(calls) // of valid JSON
	return raw
}

func (q *chatRequest) readTools(o object) {
	if tools := o.get("tools"); tools.exists() {
		list := tools.list()
		if len(list) > maxTools {
			tools.fail("there are %d tools, want at most %d", len(list), maxTools)
			return
		}
		seen := map[string]bool{}
		for _, e := range list {
			t := readTool(e)
			if seen[t.name] {
				e.fail("there is another tool with the name %q", t.name)
			}
			seen[t.name] = true
			q.tools = append(q.tools, t)
		}
	}
	q.readToolChoice(o.get("tool_choice"))
}

func readTool(v value) tool {
	o := v.object()
	if kind := o.get("type"); kind.text() != "function" {
		kind.fail("want function")
	}
	f := o.get("function").object()
	name := f.get("name")
	t := tool{name: name.text(), path: f.get("parameters").path, strict: f.get("strict").flag()}
	if t.name == "" {
		name.fail("it is empty")
	}
	definition := struct {
		Name        string          `json:"name"`
		Description json.RawMessage `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}{Name: t.name}
	if d := f.get("description"); d.exists() {
		d.text()
		definition.Description = d.raw
	}
	if p := f.get("parameters"); p.exists() {
		p.need('{', "a JSON schema, which is an object")
		t.parameters = schemaInOrder(p.object())
		definition.Parameters = t.parameters
	}
	// Models were trained on definitions with their members in this order.
	t.definition, _ = json.Marshal(struct {
		Type     string `json:"type"`
		Function any    `json:"function"`
	}{"function", definition})
	return t
}

// schemaInOrder is the schema of an object with its members in the order in which schemas are
// written by hand, and so in what models were trained on. Clients send them sorted by name.
func schemaInOrder(o object) json.RawMessage {
	var b strings.Builder
	write := func(name string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(name)
		b.Write(key)
		b.WriteByte(':')
		b.Write(o.members[name])
	}
	first := []string{"type", "properties", "required"}
	for _, name := range first {
		if o.members[name] != nil {
			write(name)
		}
	}
	for _, name := range o.names() {
		if name != first[0] && name != first[1] && name != first[2] {
			write(name)
		}
	}
	return json.RawMessage("{" + b.String() + "}")
}

func (q *chatRequest) readToolChoice(v value) {
	if !v.exists() {
		return
	}
	if v.is('{') {
		o := v.object()
		if kind := o.get("type"); kind.text() != "function" {
			kind.fail("want function")
		}
		name := o.get("function").object().get("name")
		q.choice = toolChoice{required: true, name: name.text()}
		if q.tool(q.choice.name) == nil {
			name.fail("%q is not one of the tools", q.choice.name)
		}
		return
	}
	switch choice := v.text(); choice {
	case "auto":
	case "none":
		q.choice.none = true
	case "required":
		q.choice.required = true
	default:
		v.fail("%q is not one of none, auto, required", choice)
	}
	if q.choice.required && len(q.tools) == 0 {
		v.fail("there are no tools")
	}
}

func (q *chatRequest) tool(name string) *tool {
	for i := range q.tools {
		if q.tools[i].name == name {
			return &q.tools[i]
		}
	}
	return nil
}

// offered are the tools that the model is told of.
func (q *chatRequest) offered() []tool {
	if q.choice.none {
		return nil
	}
	return q.tools
}

// completionRequest is a request to go on with a text.
type completionRequest struct {
	params
	texts   []string         // as the prompts are given, for echo
	prompts [][]minfer.Token // encoded
	echo    bool
}

// defaultCompletion is how many tokens a completion has unless the request says otherwise,
// which is what the API's reference says.
const defaultCompletion = 16

func (s *server) readCompletion(ctx context.Context, v value) (*completionRequest, error) {
	o := v.object()
	q := &completionRequest{params: s.readParams(o)}
	q.echo = o.get("echo").flag()
	least := int64(1)
	if q.echo {
		least = 0 // for the log-probabilities of a text alone
	}
	q.maxTokens = int(o.get("max_tokens").integer(least, math.MaxInt32, defaultCompletion))
	q.nothing = q.maxTokens == 0
	if lp := o.get("logprobs"); lp.exists() {
		q.logprobs = true
		q.topLogprobs = int(lp.integer(0, maxTopLogprobs, 0))
	}
	q.score = q.echo && q.logprobs
	if best := o.get("best_of"); best.integer(1, maxChoices, int64(q.choices)) != int64(q.choices) {
		best.fail("not supported, unless it is n")
	}
	if suffix := o.get("suffix"); suffix.exists() && suffix.text() != "" {
		suffix.fail("not supported")
	}
	q.format = readFormat(o.get("response_format"))
	s.readPrompts(ctx, q, o.get("prompt"), maxPrompts)
	return q, *v.err
}

// readPrompts reads a text, or tokens, or an array of either.
func (s *server) readPrompts(ctx context.Context, q *completionRequest, v value, most int) {
	switch {
	case v.is('"'):
		s.addPrompt(ctx, q, v)
		return
	case !v.is('['):
		v.fail("it is %s, want a string or an array", v.kind())
		return
	}
	list := v.list()
	if len(list) == 0 {
		v.fail("it is empty")
		return
	}
	if list[0].kind() == "a number" {
		s.addPrompt(ctx, q, v)
		return
	}
	if len(list) > most {
		v.fail("there are %d texts, want at most %d", len(list), most)
		return
	}
	for _, e := range list {
		s.addPrompt(ctx, q, e)
	}
}

// addPrompt adds a prompt that is a text or an array of tokens.
func (s *server) addPrompt(ctx context.Context, q *completionRequest, v value) {
	tokenizer := s.model.Tokenizer()
	var tokens []minfer.Token
	if v.is('[') {
		for _, e := range v.list() {
			if !e.exists() {
				e.fail("it is null, want a token")
			}
			tokens = append(tokens, minfer.Token(e.integer(0, int64(tokenizer.VocabSize()-1), 0)))
			if *v.err != nil {
				return
			}
		}
		q.texts = append(q.texts, tokenizer.Decode(tokens, minfer.DecodeOptions{Special: true}))
	} else {
		text := v.text()
		encoded, err := tokenizer.EncodeContext(ctx, text, minfer.EncodeOptions{AddSpecial: true})
		if err != nil {
			v.fail("%v", err)
		}
		tokens = encoded
		q.texts = append(q.texts, text)
	}
	if len(tokens) == 0 {
		v.fail("it is empty")
	}
	q.prompts = append(q.prompts, tokens)
}
