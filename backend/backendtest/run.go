package backendtest

import (
	"testing"

	"github.com/minfer/minfer/backend"
)

// Option changes what Run asks of a device.
type Option func(*suite)

// Exact asks that products of quantised weights equal the library's numerics contract
// to the last bit, which the CPU device promises.
func Exact() Option { return func(s *suite) { s.exact = true } }

// suite is what the tests share.
type suite struct {
	open  func(t *testing.T) backend.Backend
	exact bool
}

// Run tests a device. Open returns a new instance each time, which Run closes; it may
// call t.Skip where the machine has no such device.
func Run(t *testing.T, open func(t *testing.T) backend.Backend, opts ...Option) {
	s := &suite{open: open}
	for _, o := range opts {
		o(s)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"Elements", testElements},
		{"Rows", testRows},
		{"TopK", testTopK},
		{"Shapes", testShapes},
		{"Embed", testEmbed},
		{"MatMul", testMatMul},
		{"MatMulBatch", testMatMulBatch},
		{"RoPE", testRoPE},
		{"KV", testKV},
		{"KVOrder", testKVOrder},
		{"Attention", testAttention},
		{"AttentionSpans", testSpans},
		{"AttentionBatch", testAttentionBatch},
		{"Fused", testFused},
		{"RepeatedRuns", testRepeatedRuns},
		{"Memory", testMemory},
		{"CopyAcross", testCopyAcross},
		{"Weights", testWeights},
		{"WrongCalls", testWrongCalls},
		{"Close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}
