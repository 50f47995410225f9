package cpu

import (
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
	if err := kv.CheckBlock(k, v); err != nil {
		return err
	}
	size := kv.Type.Bytes(1)
	dst := make([]byte, len(k))
	f(dst, k, kv.Width, size, true)
	copy(k, dst)
	f(dst, v, kv.Width, size, false)
	copy(v, dst)
	return nil
}
