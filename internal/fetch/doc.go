// Package fetch downloads GGUF models into a cache and finds them there.
//
// # References
//
// A reference is text from a user:
//
//	hf:OWNER/REPO:FILE[@REVISION]   a file of a Hugging Face repository
//	ollama:[NAMESPACE/]NAME[:TAG]   the weights of a model of the Ollama registry
//	https://HOST/PATH/FILE.gguf     any address, optionally with #sha256=HEX
//	NAME                            a local file, or else the name of a model in the cache
//
// Each part of a reference that becomes part of a path is checked first, by the same
// rules on every system: no empty names, "..", separators, control characters, or names
// that Windows keeps for devices. Of a split model (NAME-00001-of-0000N.gguf) any part
// stands for all.
//
// # Cache
//
// Below the cache's folder lie hf/OWNER/REPO/REVISION/FILE, ollama/NAMESPACE/NAME/TAG.gguf
// and url/HASH/FILE, and beside each model its record, FILE.json. A model is in the cache
// when its record is there and all its files have the sizes that the record tells; digests
// were checked when the files came and are not computed again. partial/HASH holds what is
// being downloaded, locks/HASH.lock is held meanwhile. Every folder may be deleted while
// nothing is being fetched.
//
// # Downloads
//
// Files are written under partial/ and renamed into place when all of them are complete,
// their digests are right and package gguf opens them, so a model's name never stands for
// half of one. A download that was cut resumes: with a digest known beforehand any server
// that honours Range will do, since the digest decides in the end; without, the file's
// ETag or date must be what it was (If-Range). Failures that may pass (cut and stalled
// connections, 408, 429, 5xx) are tried again, with growing pauses, until several attempts
// in a row brought nothing.
//
// Hugging Face tells the digest in the headers of its redirect to a storage server: SHA-256
// in X-Linked-Etag, or the Git object's SHA-1 in ETag for files kept in Git itself. The Ollama
// registry serves a manifest in the Docker format, version 2, that lists SHA-256 digests.
// The access token goes to the Hugging Face address only, never along with a redirect.
//
// # Concurrency
//
// Everything may be called concurrently, from several processes too: those who want the same
// model wait for the one who downloads it. The wait ends with its context. On systems
// without file locks (WebAssembly, Solaris) it covers one process only.
//
// # Errors
//
// What fails is an *Error with one of the package's sentinels, or the cause, inside.
//
// Sources: RFC 9110 (ranges, conditional requests, redirects), the Hugging Face Hub
// documentation, the Docker registry HTTP API v2.
package fetch
