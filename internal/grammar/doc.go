// Package grammar holds generated text to a grammar: of all tokens, it says which can
// follow.
//
// # Grammars
//
// A Grammar is compiled from a GBNF grammar (GBNF), a JSON schema (Schema), a regular
// expression (Regexp), or "any JSON object" (JSON); Literal, Concat, Choice and Repeat
// put grammars together. Texts match from their first to their last byte. What a
// language has and this package does not is an error when it is compiled, never a
// grammar that is wider.
//
// A Grammar bound to a Vocabulary is a Masker, and a Matcher follows one text: Mask sets
// the logits of tokens that cannot follow to -Inf, Accept takes the token that was
// chosen. End-of-generation tokens can follow exactly where the text may end. Tokens are
// bytes here, and may begin or end within a character.
//
// # How it works
//
// A grammar becomes a pushdown automaton over bytes: a finite automaton for each rule,
// whose edges are bytes or calls of rules. A text is a set of positions in these, each
// with a stack of calls to return to; equal stacks are shared, and a call at the end of
// a rule takes no stack. Sets are numbered and remembered with what each byte makes of
// them, so after a while following a text is one look-up for each byte. A mask comes of
// walking the trie of all tokens along these sets, and is remembered with its set. For a
// set within one call of a rule, the tokens that do not leave the rule are found once,
// whatever the call returns to: strings in different places of a document share that.
//
// # Limits
//
// Grammars come from outside. Compiling, and what any call does, is bounded in time and
// memory; a grammar that would need more is refused with ErrLimit, and calls nest to a
// depth of 1000. Rules that call themselves before consuming anything are refused. From
// wherever a text can get to, its end can be reached; if every byte is a token, as in the
// vocabularies of language models, generation never gets stuck.
//
// # Sources
//
// llama.cpp's description of GBNF; JSON Schema 2020-12; RFC 8259 for JSON. The stacks are
// those of Tomita's generalised LR parsing (1985); that most tokens can be decided from
// the position within the rule is an observation of XGrammar (Dong et al. 2024,
// arXiv:2411.15100); finding the automaton's states when they are first needed is from
// Thompson's (1968) matcher and its successors.
package grammar
