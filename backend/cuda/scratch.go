//go:build cuda

package cuda

// What operations leave for later ones, and room that they need in between.

// The pieces of memory that operations work in.
const (
	scratchQuants0 = iota // of two rows of activations, in turn
	scratchQuants1
	scratchKeys   // of fused projections
	scratchValues // likewise, or up of a feed-forward
	scratchParts  // of attention
	scratchTop    // keys of the greatest values of pieces
	numScratch
)

// room returns a piece of memory of at least size bytes. It grows to the largest need; when it
// does, recordings that used it are forgotten.
func (d *device) room(which, size int) (uint64, error) {
	if d.scratch[which].size >= size {
		return d.scratch[which].ptr, nil
	}
	err := d.do(func() error { return d.grow(&d.scratch[which], size) })
	return d.scratch[which].ptr, err
}

// grow replaces a block by a larger one of arbitrary contents. The context is the thread's.
func (d *device) grow(b *block, size int) error {
	if err := d.flush(); err != nil {
		return err
	}
	d.recordings.clear()
	d.forget()
	if err := freeBlock(*b); err != nil {
		return err
	}
	*b = block{}
	var err error
	*b, err = newBlock(roundUp(size, granularity))
	return err
}

// quants are the integer activations of some rows.
type quants struct {
	q, m   uint64 // quants and their scales
	supers int    // super-blocks of a row
	tokens int
	source value // what they were made from; none if they are not up to date
}

// superBlock is the number of values that a super-block of weights or activations has.
const superBlock = 256

func supersOf(in int) int { return (in + superBlock - 1) / superBlock }

// quantsRoom makes room for the quants of rows, without disturbing those made last.
func (d *device) quantsRoom(width, tokens int) (*quants, error) {
	i := 1 - d.lastQuants
	n := supersOf(width) * tokens
	bytes := n * superBlock
	p, err := d.room(scratchQuants0+i, bytes+n*8*8)
	if err != nil {
		return nil, err
	}
	d.lastQuants = i
	d.quants[i] = quants{q: p, m: p + uint64(bytes), supers: supersOf(width), tokens: tokens}
	return &d.quants[i], nil
}

// knownQuants returns quants of x if an operation has made them.
func (d *device) knownQuants(x value, width int) *quants {
	for i := range d.quants {
		if q := &d.quants[i]; q.source == x && x.n > 0 && q.tokens*width == x.n {
			d.lastQuants = i // the other one is made next
			return q
		}
	}
	return nil
}

// wrote takes note that n bytes have changed, and so what was made from them.
func (d *device) wrote(p uint64, n int) {
	end := p + uint64(n)
	for i := range d.quants {
		if s := d.quants[i].source; s.ptr < end && p < s.ptr+4*uint64(s.n) {
			d.quants[i].source = value{}
		}
	}
	for _, t := range d.ropes {
		if s := t.source; s.ptr < end && p < s.ptr+4*uint64(s.n) {
			t.source = value{}
		}
	}
}

// forget takes all that was made for not up to date.
func (d *device) forget() {
	for i := range d.quants {
		d.quants[i].source = value{}
	}
	for _, t := range d.ropes {
		t.source = value{}
	}
}
