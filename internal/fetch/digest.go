package fetch

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// digest is what a publisher says of a file's content; hex is empty where nothing is said.
type digest struct {
	git bool // SHA-1 of the Git object, else SHA-256
	hex string
}

func sha256Of(hex string) digest { return digest{hex: hex} }

// String is the algorithm and the digest.
func (d digest) String() string {
	if d.git {
		return "gitsha1:" + d.hex
	}
	return "sha256:" + d.hex
}

// hash computes such a digest of a file of the given size.
func (d digest) hash(size int64) hash.Hash {
	if !d.git {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size) // a hash never fails
	return h
}

// of is the digest that a hash has come to.
func (d digest) of(h hash.Hash) digest {
	return digest{git: d.git, hex: hex.EncodeToString(h.Sum(nil))}
}
