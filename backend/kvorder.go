package backend

import (
	"errors"
	"fmt"
)

// ErrBlock is wrapped by the errors of a KVOrder that was given other than a block of keys and one of values.
var ErrBlock = errors.New("backend: not a block of keys and values")

// CheckBlock returns what wraps ErrBlock unless k and v each have the bytes of KVBlock cells of the regions.
func (kv *KV) CheckBlock(k, v []byte) error {
	n := KVBlock * kv.Type.Bytes(kv.Width)
	if n <= 0 || len(k) != n || len(v) != n {
		return fmt.Errorf("%w: %d and %d bytes, want %d each for %d cells of %d %v", ErrBlock, len(k), len(v), n, KVBlock, kv.Width, kv.Type)
	}
	return nil
}

// RowOrder is KVOrder for a device whose regions are rows already, one of Width elements for each cell. Such a device embeds it.
type RowOrder struct{}

// KVToRows checks the block, and leaves it as it is.
func (RowOrder) KVToRows(kv *KV, k, v []byte) error { return kv.CheckBlock(k, v) }

// KVFromRows checks the block, and leaves it as it is.
func (RowOrder) KVFromRows(kv *KV, k, v []byte) error { return kv.CheckBlock(k, v) }
