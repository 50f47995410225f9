// Package gguf reads and writes GGUF files, the container in which models of
// the ggml family are distributed: a header, metadata (typed key/value pairs),
// tensor descriptions, and aligned tensor data, all little-endian. Versions 2
// and 3 are read and written; version 1 and big-endian files are refused.
//
// # Opening
//
// [Open] maps a file, [NewReader] reads through an io.ReaderAt, [NewBytes] uses
// memory (an embedded model). All three run the same parser and give the same
// verdict. Opening takes milliseconds whatever the size: tensor data is not
// touched, and arrays such as vocabularies are checked but decoded only when
// asked for. The first part of a split model opens all of it.
//
// # Metadata
//
// Accessors return an error where the value is missing or of the wrong kind,
// never a silent zero. Integer accessors take any integer kind whose value fits.
//
// # Tensors
//
// Dimensions are in ggml's order, the fastest first. Offsets and sizes are bytes.
// A [Type] says how many values make a block, and how many bytes a block takes;
// this package moves blocks and never looks into them.
//
// # Writing
//
// A [Writer] collects keys and tensors and writes them in that order, each tensor
// padded to the alignment. It refuses what a reader would refuse.
//
// # Lifetime
//
// From a mapped file, [File.Data] returns the mapping itself. After [File.Close]
// the slice is invalid and touching it crashes the program, beyond recover: close
// last. Dropping a File without Close keeps the mapping. Everything else that
// methods return is a copy. Where a mapped file was truncated by another process, methods
// return [ErrFault], but whoever touches a lost page of [File.Data] gets a SIGBUS: replace
// model files by renaming, or open them [WithoutMmap].
//
// # Security
//
// Files are untrusted input. Every count, length, size and offset is held
// against the file's size before it is used, so that opening a file of N bytes
// takes less than N + 16 MiB of memory and time linear in N; nothing panics, and
// what is wrong is a [*FormatError] with its byte offset. Names are bounded
// ([MaxKeys], [MaxTensors], [MaxKeyLen], [MaxTensorNameLen], [MaxArrayDepth]).
// Tensors lie inside the file, aligned, and do not overlap. general.alignment has
// to be a power of two and a multiple of 8: the intersection of what the format's
// description and other readers ask for, so 1 and 24 are refused. What strings
// say, and the values of weights, are not judged here. A dimension has to fit an
// int, so a tensor may be refused on a 32-bit platform that a 64-bit one takes.
//
// A tensor of an unknown or removed type, or with rows that are not whole
// blocks, does not keep the file from opening, so that it can be inspected:
// [File.CheckTensor], [File.Check] and [File.Data] refuse it.
//
// Source: the GGUF description in the ggml repository (docs/gguf.md), and the
// type sizes of ggml's headers.
package gguf
