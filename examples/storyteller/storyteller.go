// Package storyteller is a very small language model, embedded in the program: 2.8 million
// weights in 3 MB, so that the examples answer on a machine with no network and no model.
//
// # What it knows
//
// It tells stories about animals ("Tell me a story about a brave fox."), answers questions
// about the story just told ("Where did she live?", "The facts as JSON."), counts, adds small
// numbers, knows colours, sounds, opposites, days and months, repeats words, takes up its
// own offers ("Yes please"), and calls four tools when they are offered to it:
// get_weather(city), roll_dice(sides), add(a, b) and get_time(). Asked about anything else it
// says that it only knows stories.
//
// # What it is
//
// A model of the qwen3 architecture: width 256, 4 layers, 4 heads over 2 key and value heads,
// byte-level BPE of 1536 tokens, weights in Q8_0, a context of 1024 tokens of which 768 were
// used in training, and a ChatML template with tools.
//
// # How to make it again
//
// Everything it was trained on comes from the grammar in corpus.py. train.py trains it,
// export.py writes the GGUF file, train_shape.py holds the sizes that both share. They need
// Python with jax, optax, tokenizers and gguf, and about 70 minutes on two cores. The model
// is under the licence of the project.
package storyteller

import _ "embed"

// Model is the GGUF file, for minfer.OpenBytes. It must not be changed.
//
//go:embed storyteller-q8_0.gguf
var Model []byte
