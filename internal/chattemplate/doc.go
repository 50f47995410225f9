// Package chattemplate renders the chat templates that model files carry (GGUF
// key tokenizer.chat_template): jinja2 as transformers sets it up, byte for
// byte.
//
// # The dialect
//
// jinja 3.1 with trim_blocks and lstrip_blocks on, autoescape off, the loop
// controls, and transformers' additions: the generation tag, tojson with
// Python's spacing and without HTML escapes, raise_exception, strftime_now.
// Behaviour is that of the immutable sandbox: lists and dicts cannot be changed,
// range stops at 100000 items. The filters random, pprint, urlize and
// tags that load other templates are refused. Names like __class__ are refused
// at once, where the sandbox would hand out an undefined value.
//
// # Hostile templates
//
// A template arrives with a model file that nobody vouches for. It can reach no
// Go value but those of its own language. Parsing takes one pass over at most
// 1 MiB; rendering has a budget of steps, of bytes allocated, of bytes written
// and of nesting, each growing with the variables where honest templates need
// that; see [Options]. The context is looked at every thousand steps.
//
// # Hostile messages
//
// What a user writes must not act as a control token. [Template.RenderSpans]
// tells which bytes of the prompt came from the variables; the tokenizer parses
// special tokens only in the others, though it pretokenizes the text as a whole.
// Every string of the variables counts as untrusted, and so do texts computed
// from one, except a [Trusted] string and the roles listed under [Options].
//
// # Errors and concurrency
//
// Parse fails with *[SyntaxError], Render with *[RenderError]. A Template is
// immutable and may be rendered by many goroutines at once; the variables are
// only read.
//
// Sources: the documentation of jinja2 and of transformers' chat templates;
// behaviour checked against jinja2 3.1.
package chattemplate
