//go:build cuda

package cuda

import (
	"math"

	"github.com/minfer/minfer/internal/vocabulary"
)

const (
	// maxIn is the longest row of a weight whose sums find room in shared memory.
	maxIn = 1 << 16
	// maxHeadDim is the longest head that attention has room for.
	maxHeadDim = 256
	// maxTop is the most that TopK finds: half of the keys of kernels/top.cu.
	maxTop = topKeys / 2
	// maxPositions bounds positions to what angles are computed for with full precision.
	maxPositions = 1 << 20
)

var bounds = vocabulary.Bounds{Row: maxIn, Rows: math.MaxInt, Head: maxHeadDim, Finish: maxHeadDim, Top: maxTop}
