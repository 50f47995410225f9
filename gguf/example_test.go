package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/minfer/minfer/gguf"
)

// newModel writes a small model file and returns its path.
func newModel() (path string, remove func()) {
	w := gguf.NewWriter()
	w.SetString("general.architecture", "qwen3")
	w.SetUint32("qwen3.block_count", 28)
	w.SetStrings("tokenizer.ggml.tokens", []string{"!", "\"", "#"})
	w.AddTensor("output_norm.weight", gguf.TypeF32, []uint64{2}, []byte{0, 0, 128, 63, 0, 0, 0, 64})
	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "model.gguf")
	out, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.WriteTo(out); err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}
	return path, func() { os.RemoveAll(dir) }
}

func ExampleOpen() {
	path, remove := newModel()
	defer remove()

	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	arch, err := f.Architecture()
	if err != nil {
		log.Fatal(err)
	}
	layers, err := f.Int(arch + ".block_count")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(arch, layers, "layers")
	for _, t := range f.Tensors() {
		data, err := f.Data(t) // a slice of the mapping: valid until Close
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t, len(data), "bytes")
	}
	// Output:
	// qwen3 28 layers
	// output_norm.weight F32 [2] 8 bytes
}

func ExampleNewWriter() {
	w := gguf.NewWriter()
	w.SetString("general.architecture", "demo")
	w.SetFloat32("demo.attention.layer_norm_rms_epsilon", 1e-6)
	// Four float32 in the format's byte order, as a matrix of 2 rows of 2.
	w.AddTensor("w", gguf.TypeF32, []uint64{2, 2}, make([]byte, 16))

	var file bytes.Buffer
	n, err := w.WriteTo(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "bytes, beginning with", string(file.Bytes()[:4]))
	// Output:
	// 224 bytes, beginning with GGUF
}

func ExampleNewBytes() {
	var file bytes.Buffer
	w := gguf.NewWriter(gguf.WithVersion(2))
	w.SetBool("tokenizer.ggml.add_bos_token", true)
	if _, err := w.WriteTo(&file); err != nil {
		log.Fatal(err)
	}
	f, err := gguf.NewBytes(file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("version", f.Version(), f.Keys())

	_, err = f.String("tokenizer.chat_template")
	fmt.Println(errors.Is(err, gguf.ErrMissingKey), err)
	// Output:
	// version 2 [tokenizer.ggml.add_bos_token]
	// true gguf: key "tokenizer.chat_template" (string): missing key
}

func ExampleNewReader() {
	file := bytes.NewReader([]byte("GGUF\x01\x00\x00\x00"))
	_, err := gguf.NewReader(file, file.Size())
	fmt.Println(err)
	// Output:
	// gguf: header: version 1 not supported, want 2 or 3: unsupported version (at byte 4)
}

func ExampleType() {
	t, err := gguf.ParseType("q4_k")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t, t.BlockSize(), "values in", t.BlockBytes(), "bytes")
	// Output:
	// Q4_K 256 values in 144 bytes
}
