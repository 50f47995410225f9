package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
)

// roof is what so many threads of this machine can do at most, whatever the program: the limits
// that figures are compared with.
type roof struct {
	Read float64 `json:"read"` // bytes of memory read in a second
	Int8 float64 `json:"int8"` // multiplications of 8-bit integers in a second, in dot products of registers
	FMA  float64 `json:"fma"`  // fused multiply-adds of float32 in a second, of registers
}

// machine measures roofs.
type machine struct {
	tier   kernels.Tier
	memory *mmap.Mapping // more than caches hold, in large pages where there are any
}

// probe is how much memory is read to measure how fast that is.
const probe = 512 << 20

func newMachine() (*machine, error) {
	tier, err := kernels.DefaultTier()
	if err != nil {
		return nil, err
	}
	memory, err := mmap.Anonymous(probe)
	if err != nil {
		return nil, err
	}
	data := memory.Bytes()
	for i := range data {
		data[i] = byte(i)
	}
	return &machine{tier: tier, memory: memory}, nil
}

func (m *machine) close() error { return m.memory.Close() }

// measure returns the roof for so many threads. It takes about a tenth of a second.
func (m *machine) measure(threads int) roof {
	const registers = 200_000
	data := m.memory.Bytes()
	part := len(data) / threads
	return roof{
		Read: together(threads, func(i int) float64 {
			m.tier.ReadMemory(data[i*part : (i+1)*part])
			return float64(part)
		}),
		Int8: together(threads, func(int) float64 { return float64(m.tier.DotProducts(registers)) }),
		FMA:  together(threads, func(int) float64 { return float64(m.tier.MultiplyAdds(registers)) }),
	}
}

// together has threads do something at once, three times, and returns how much they do in a second
// at best.
func together(threads int, do func(i int) float64) (rate float64) {
	done := make([]float64, threads)
	for range 3 {
		var ready sync.WaitGroup
		begun := time.Now()
		for i := range threads {
			ready.Go(func() { done[i] = do(i) })
		}
		ready.Wait()
		var sum float64
		for _, n := range done {
			sum += n
		}
		rate = max(rate, sum/time.Since(begun).Seconds())
	}
	return rate
}

func (r roof) String() string {
	return fmt.Sprintf("reads %.1f GB/s, does %.0f GMAC/s of int8 and %.0f of float32", r.Read/1e9, r.Int8/1e9, r.FMA/1e9)
}

// medianRoof takes the median of each limit.
func medianRoof(list []roof) roof {
	pick := func(of func(roof) float64) float64 {
		values := make([]float64, len(list))
		for i, r := range list {
			values[i] = of(r)
		}
		return medianOf(values)
	}
	return roof{
		Read: pick(func(r roof) float64 { return r.Read }),
		Int8: pick(func(r roof) float64 { return r.Int8 }),
		FMA:  pick(func(r roof) float64 { return r.FMA }),
	}
}
