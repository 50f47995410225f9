// Package tokenizer turns text into the token ids of a GGUF vocabulary and back.
//
// # What there is
//
// Three algorithms, named as in tokenizer.ggml.model: "gpt2", byte-level BPE, which first
// cuts the text into pieces by the pattern that tokenizer.ggml.pre names; "llama",
// SentencePiece's BPE, which merges by score; and "gemma4", BPE by rank over characters.
// Each of the patterns is a scanner written by hand; they take linear time on any text.
// Merging takes n log n. A model or a pre-tokenizer that is not known is an error that
// lists the known ones (ErrUnsupported): tokens of a wrong pattern look right and are
// not.
//
// # Special tokens
//
// Control, unknown and user-defined tokens are looked for in the text before anything
// else, at each place the longest. Control and unknown ones only if
// EncodeOptions.ParseSpecial asks for it. User-defined ones always, as the vocabularies'
// own implementations do, but those that look like markup (with any of <>[]{}|｜) are not
// found in untrusted text. Nothing else yields a control token: no merge does, even if a
// text is spelled like one. So a chat marks what came from outside as untrusted
// (EncodeSegments, AppendEncode) and the only control tokens are those that its template
// wrote.
//
// BOS and EOS are added if AddSpecial asks for it and the vocabulary wants it, and never
// next to one that was parsed: a template that writes BOS itself gets one. Text that
// merely spells BOS, while special tokens are not parsed, is text, and gets BOS before
// it.
//
// # Bytes
//
// Text need not be valid UTF-8. For the scanners a stray byte is a symbol like U+FFFD,
// but its piece keeps the byte. Decode(Encode(x)) is x, byte for byte, with these
// exceptions: Qwen's vocabularies bring text to Unicode normal form C first, as Hugging
// Face does (llama.cpp does not); where spaces are written as U+2581, that character
// comes back as a space; Phi-3 drops white space after its special tokens; and a
// vocabulary without tokens for all bytes gives its unknown token for the rest.
// "Clean-up" of spaces before punctuation is never done. A Decoder hands out whole
// characters as they become complete and says there how it treats what never becomes one.
//
// # Concurrency
//
// A Tokenizer is immutable but for a bounded, lock-free cache of short pieces, and safe
// for concurrent use. A Decoder is not.
//
// # Sources
//
// Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (2016),
// for BPE; Radford et al., Language Models are Unsupervised Multitask Learners (2019),
// for its byte-level form; Kudo and Richardson, SentencePiece (2018). The patterns are
// those of the models' tokenizer.json files, the names those that llama.cpp's converter
// writes.
package tokenizer
