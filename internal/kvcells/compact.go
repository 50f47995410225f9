package kvcells

import (
	"cmp"

	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// Compact gathers all blocks in use at the beginning of the pool, those of each sequence one after
// the other, so that the free ones are a single hole. It is for when Append returns ErrScattered.
//
// The caller makes each copy when move asks for it; the block that it goes to is free. If move
// fails, Compact stops and returns the error. What was copied so far counts, and no sequence has
// lost anything.
func (p *Pool) Compact(move func(Copy) error) error {
	if p.free == 0 {
		return nil // nowhere to move anything to
	}
	c := newCompaction(p)
	defer c.settle()
	for to, block := range c.order {
		if c.at[block] == to {
			continue
		}
		if other := c.held[to]; other >= 0 {
			if err := c.move(other, c.hole(), move); err != nil {
				return err
			}
		}
		if err := c.move(block, to, move); err != nil {
			return err
		}
	}
	return nil
}

// compaction is a Compact under way. Blocks are called by where they were when it began.
type compaction struct {
	pool      *Pool
	sequences []*Sequence
	blocks    [][]int // of each sequence
	order     []int   // of all blocks in use, as they shall lie in the end
	at        []int   // where each block is now
	held      []int   // which block is at each place; -1 for none
	free      int     // no place above it is free
}

func newCompaction(p *Pool) *compaction {
	c := &compaction{pool: p, sequences: maps.Keys(p.holders), held: make([]int, len(p.refs)), at: make([]int, len(p.refs)), free: len(p.refs) - 1}
	// What forks share lies with the longest of them, whose runs are the fewest then.
	slices.SortFunc(c.sequences, func(a, b *Sequence) int {
		return cmp.Or(cmp.Compare(b.length, a.length), cmp.Compare(a.runs[0].Start, b.runs[0].Start), slices.CompareFunc(a.runs, b.runs, compareRuns))
	})
	for i := range c.held {
		c.held[i] = -1
	}
	for _, s := range c.sequences {
		var blocks []int
		s.eachBlock(func(b int) {
			blocks = append(blocks, b)
			if c.held[b] < 0 {
				c.held[b], c.at[b] = b, b
				c.order = append(c.order, b)
			}
		})
		c.blocks = append(c.blocks, blocks)
	}
	return c
}

func compareRuns(a, b Run) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Length, b.Length))
}

// hole returns the last free place. There is one: moves leave as many as they take.
func (c *compaction) hole() int {
	for c.held[c.free] >= 0 {
		c.free--
	}
	return c.free
}

func (c *compaction) move(block, to int, move func(Copy) error) error {
	from := c.at[block]
	if err := move(Copy{From: from * c.pool.block, To: to * c.pool.block}); err != nil {
		return err
	}
	c.held[from], c.held[to], c.at[block] = -1, block, to
	c.free = max(c.free, from)
	return nil
}

// settle writes down where everything is now.
func (c *compaction) settle() {
	p := c.pool
	clear(p.refs)
	for i, s := range c.sequences {
		left := s.length
		s.runs = s.runs[:0]
		for _, block := range c.blocks[i] {
			s.addRun(Run{Start: c.at[block] * p.block, Length: min(left, p.block)})
			left -= p.block
			p.refs[c.at[block]]++
		}
	}
}
