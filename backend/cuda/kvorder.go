//go:build cuda

package cuda

import (
	"fmt"

	"github.com/minfer/minfer/backend"
)

// KVToRows implements backend.KVOrder. Regions are rows already.
func (d *device) KVToRows(kv *backend.KV, k, v []byte) error {
	if n := backend.KVBlock * kv.Type.Bytes(kv.Width); n <= 0 || len(k) != n || len(v) != n {
		return fmt.Errorf("cuda: %w: %d and %d bytes for a block of %d cells of %d %v", ErrOperand, len(k), len(v), backend.KVBlock, kv.Width, kv.Type)
	}
	return nil
}

// KVFromRows implements backend.KVOrder.
func (d *device) KVFromRows(kv *backend.KV, k, v []byte) error { return d.KVToRows(kv, k, v) }
