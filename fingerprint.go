package minfer

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"runtime/debug"

	"github.com/minfer/minfer/gguf"
)

// Samples are taken from every tensor, so that the fingerprint of a large file costs
// little, and files that differ in their weights are told apart all the same.
const (
	sampleBytes   = 256
	samplesTensor = 4
)

// fingerprint identifies a model's weights: a digest of the architecture, the name, type
// and shape of every tensor, and samples of their data.
func fingerprint(f *gguf.File) (sum [sha256.Size]byte, err error) {
	// A mapped file that was cut short in the meantime faults.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err, "reading the model file")
	h := sha256.New()
	name, err := f.Architecture()
	if err != nil {
		return sum, err
	}
	fmt.Fprintf(h, "%q\n", name)
	for _, t := range f.Tensors() {
		fmt.Fprintf(h, "%q %v %v %d\n", t.Name, t.Type, t.Dims, t.Size)
		data, err := f.Data(t)
		if err != nil {
			return sum, fmt.Errorf("minfer: %w", err)
		}
		sample(h, data)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// sample writes evenly spaced pieces of data to w.
func sample(w hash.Hash, data []byte) {
	step := max(len(data)/samplesTensor, sampleBytes)
	for at := 0; at < len(data); at += step {
		w.Write(data[at:min(at+sampleBytes, len(data))])
	}
}
