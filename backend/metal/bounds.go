package metal

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/vocabulary"
)

var capabilities = backend.Capabilities{
	Supports:     bounds.Supports,
	ExplicitSpan: true,
	PackedKV:     true,
}

func init() {
	backend.Register(backend.Entry{
		Name:         "metal",
		ID:           backend.Metal,
		Priority:     backend.PriorityMetal,
		Available:    available,
		Capabilities: &capabilities,
		Open:         open,
	})
}

const (
	// widestHead is the widest head that attention has a kernel for.
	widestHead = 256
	// widestFinish is the widest head that fits the memory of a threadgroup.
	widestFinish = 4096
	// maxIndex bounds what kernels count in 32 bits.
	maxIndex = 1 << 31
	// topKeys is what a threadgroup has room for in kernels/top.metal. TopK keeps half of it at most.
	topKeys    = 2048
	topThreads = 256
)

var bounds = vocabulary.Bounds{Row: maxIndex - 1, Rows: maxIndex - 1, Head: widestHead, Finish: widestFinish, Top: topKeys / 2}
