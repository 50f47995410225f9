// Package minfer runs large language models inside the host program: it opens a GGUF
// file and turns prompts into text. There is no server, no cgo and no toolchain but Go's.
//
// # Opening and generating
//
// Open maps a model file into memory. OpenBytes takes one that is embedded in the program,
// OpenReader one from anywhere else, and Fetch downloads one for Open. A Session is a sequence of tokens; Session.Generate
// appends a prompt to it and streams what the model says next:
//
//	m, err := minfer.Open("model.gguf")
//	...
//	defer m.Close()
//	s, err := m.NewSession()
//	...
//	for piece, err := range s.Generate(ctx, "Once upon a time", minfer.MaxTokens(100)) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(piece.Text)
//	}
//
// Session.Chat speaks with a model by its own chat template, and evaluates only what is new
// in each turn. What users write never becomes a control token there.
//
// # Answers with a form, and tools
//
// WithJSON, WithJSONSchema, WithGrammar and WithRegexp hold an answer to a form, whatever the model
// would rather say: of its tokens, those that lead out of the form are never chosen. Generate fills in
// a Go value, whose type SchemaOf describes to the model's sampler:
//
//	city, err := minfer.Generate[City](ctx, chat, "Describe Lisbon.")
//
// NewTool makes a tool of a Go function, WithTools offers it in a Chat, and what Say streams then
// includes the calls and their results (Piece.ToolCall). The thoughts of models that think come
// apart from their answers (Piece.Reasoning). DropOldest has a conversation outlive its context, and
// Chat.Save and Model.RestoreChat have it outlive the program.
//
// # Sooner, and with numbers
//
// WithPromptLookup and WithDraft guess tokens and check several in one pass: the answer is the
// same to the last token, and comes sooner where guesses are right. LogProbs and TopLogProbs
// report probabilities of what is generated, Session.Score those of a given text,
// and Model.Embed makes vectors of texts. Estimate says what memory a file will take before it
// is loaded, Session.Memory what is held, Model.Placement which device runs what;
// Model.CountTokens and CountChatTokens say what a prompt will take.
// OnPromptProgress and WithProgress report how far long things are, and WithLogger takes a logger;
// without one nothing is ever logged.
//
// # Looking inside
//
// Explain shows what a forward pass will execute, and where each of its values lies. Model.Observe
// has an Observer told of every node as it runs, WithTrace writes a trace of all of them,
// WithProfiling marks them for Go's own tools, and Model.Head says what a row of activations
// would lead to.
//
// # The lower level
//
// Session.Eval takes tokens and returns logits; Model.Tokenizer and Model.NewSampler make
// the tokens. Session.Fork, Session.Rewind and Session.SetTokens take sequences apart
// without evaluating them again, and Session.Save and Model.Restore keep them in files.
// Sessions on a common GraphCache share memory, and can share forward passes. Model.Graph
// shows the graph that is executed. Packages arch and backend are where other modules add
// architectures and devices.
//
// # Concurrency
//
// A Model and a GraphCache are safe for concurrent use. A Session and a Chat are one
// goroutine's at a time, and a call that meets another one returns ErrBusy. Everything can be
// closed at any time: calls under way end with ErrClosed. A Close waits for them, so that
// nothing is in flight when it returns. Handles that are nil or zero values are closed ones, and a
// nil context never ends.
//
// # Errors
//
// Errors work with errors.Is and errors.As; the values and types are listed here. A call
// that fails or is cancelled leaves its session as it was or says where it stands. No
// panic gets out: it becomes a *PanicError, and its model refuses further work, unless it was
// the panic of a function of the host. A mapped file that is cut short is ErrFault.
//
// # The same bits every time
//
// On the CPU, logits are a function of the model file and the tokens before them, to the last
// bit: not of threads, batch sizes, the cutting of prompts, what was cached, saved or
// forked, or the instructions that the processor has.
//
// # Environment
//
// These supply defaults, and options have the last word: MINFER_BACKENDS (names of
// devices, separated by commas), MINFER_THREADS, MINFER_CPU (an instruction set, see
// WithInstructions), MINFER_CACHE (the folder of Fetch), MINFER_GRAPH_TRACE=1 (an overview of
// every graph goes to standard error), and MINFER_NO_FUSE_SWIGLU, _QKV, _QKV_NORM,
// _QKV_STORE, _FFN and _FFN_DOWN, each of which set to 1 turns a fused operation off.
package minfer
