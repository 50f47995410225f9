package cpu_test

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cpu"
)

// TestAllocMoreThanThereIs asks for more memory than any machine has. The program lives.
func TestAllocMoreThanThereIs(t *testing.T) {
	if bits.UintSize == 32 {
		t.Skip("a machine may have all that can be asked for")
	}
	b, err := backend.Open("cpu", backend.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, exponent := range []int{62, 56, 50, 46} {
		size := 1 << (exponent % bits.UintSize)
		if _, err := b.Alloc(size); !errors.Is(err, cpu.ErrSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := b.Alloc(1 << 20); err != nil {
		t.Error(err)
	}
}
