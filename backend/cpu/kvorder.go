package cpu

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
)

// KVToRows implements backend.KVOrder.
func (d *device) KVToRows(kv *backend.KV, k, v []byte) error {
	return reorder(kernels.BlockToRows, kv, k, v)
}

// KVFromRows implements backend.KVOrder.
func (d *device) KVFromRows(kv *backend.KV, k, v []byte) error {
	return reorder(kernels.BlockFromRows, kv, k, v)
}

func reorder(f func(dst, src []byte, dim, size int, keys bool), kv *backend.KV, k, v []byte) error {
	size := kv.Type.Bytes(1)
	n := backend.KVBlock * kv.Width * size
	if kv.Width <= 0 || len(k) != n || len(v) != n {
		return fmt.Errorf("cpu: %w: %d and %d bytes for a block of %d cells of %d %v", ErrOperand, len(k), len(v), backend.KVBlock, kv.Width, kv.Type)
	}
	dst := make([]byte, n)
	f(dst, k, kv.Width, size, true)
	copy(k, dst)
	f(dst, v, kv.Width, size, false)
	copy(v, dst)
	return nil
}
