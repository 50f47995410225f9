//go:build cgo && (darwin || metalemu)

package metal

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// commands collects the dispatches of a split and hands them to the device as one command buffer when somebody has to
// see results. Nothing waits in between.
//
// Dispatches may run side by side: a barrier goes before one that reads or writes what an earlier one since the last
// barrier wrote, or writes what it read.
type commands struct {
	gpu    *gpu
	device string // its name, for errors

	pending batch
	running []batch
	spare   []batch // done, for their memory

	touched []touch // by pending and running commands
	since   int     // index of the first touch since the last barrier
}

// label says what a dispatch is for.
type label struct{ node, kernel string }

// batch is what goes into a command buffer.
type batch struct {
	buffer     object
	dispatches []C.metal_dispatch
	labels     []label // of dispatches
}

// touch is a use of memory by a command.
type touch struct {
	region
	write bool
}

// CommandError is the failure of commands on the device. Metal says which command buffer it was and not which dispatch. So
// the dispatches run again, one by one: the node and kernel are those that fail again, or, if none does, all that were
// in the command buffer.
type CommandError struct {
	Device      string
	First, Last string   // the nodes
	Kernels     []string // the kernels, each once
	Text        string   // Metal's
}

// Error returns the nodes, the kernels and Metal's text.
func (e *CommandError) Error() string {
	nodes := fmt.Sprintf("node %q", e.First)
	if e.First != e.Last {
		nodes = fmt.Sprintf("nodes %q to %q", e.First, e.Last)
	}
	return fmt.Sprintf("metal: %s failed at %s, in kernels %v: %s", e.Device, nodes, e.Kernels, e.Text)
}

// idle reports whether no commands are pending or running.
func (c *commands) idle() bool { return len(c.pending.dispatches) == 0 && len(c.running) == 0 }

// conflicts reports whether the host has to wait before it reads, or writes, a region.
func (c *commands) conflicts(r region, write bool) bool {
	for i := len(c.touched) - 1; i >= 0; i-- {
		if t := &c.touched[i]; (write || t.write) && t.overlaps(r) {
			return true
		}
	}
	return false
}

// flush hands the pending dispatches to the device.
func (c *commands) flush() (err error) {
	if len(c.pending.dispatches) == 0 {
		return nil
	}
	b := c.pending
	c.pending = batch{}
	if n := len(c.spare); n > 0 {
		c.pending, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	if b.buffer, err = c.commit(b.dispatches, b.labels); err == nil {
		c.running = append(c.running, b)
	}
	return err
}

// commit makes a command buffer of dispatches and commits it. The caller owns it.
func (c *commands) commit(dispatches []C.metal_dispatch, labels []label) (object, error) {
	var failure *C.char
	buffer := C.metal_commit(c.gpu.queue, &dispatches[0], C.int(len(dispatches)), &failure)
	if buffer == nil {
		return nil, c.failure(labels, taken(failure))
	}
	return buffer, nil
}

// finish waits until all commands are done, and returns the first failure among them.
func (c *commands) finish() error {
	err := c.flush()
	for _, b := range c.running {
		if text := taken(C.metal_finish(b.buffer)); text != "" && err == nil {
			err = c.locate(b, text)
		}
		c.spare = append(c.spare, batch{dispatches: b.dispatches[:0], labels: b.labels[:0]})
	}
	c.running = c.running[:0]
	c.touched, c.since = c.touched[:0], 0
	return err
}

// locate looks for the dispatch for which a command buffer failed.
func (c *commands) locate(b batch, text string) error {
	for i := range b.dispatches {
		buffer, err := c.commit(b.dispatches[i:i+1], b.labels[i:i+1])
		if err != nil {
			return err
		}
		if again := taken(C.metal_finish(buffer)); again != "" {
			return c.failure(b.labels[i:i+1], again)
		}
	}
	return c.failure(b.labels, text)
}

func (c *commands) failure(labels []label, text string) error {
	e := &CommandError{Device: c.device, First: labels[0].node, Last: labels[len(labels)-1].node, Text: text}
	seen := make(map[string]bool)
	for _, l := range labels {
		if !seen[l.kernel] {
			seen[l.kernel] = true
			e.Kernels = append(e.Kernels, l.kernel)
		}
	}
	return e
}

// dispatch is a kernel to be run: on which memory, with which grid.
type dispatch struct {
	node    string
	kernel  string
	groups  [3]int   // threadgroups
	threads int      // of a threadgroup
	shared  [2]int   // bytes of threadgroup memory
	reads   []region // bound to the first buffers, in order
	writes  []region // bound to the next
	args    []byte   // bound after them
}

// add appends a dispatch to the pending ones.
func (c *commands) add(d *dispatch) error {
	p, err := c.gpu.pipeline(d.kernel)
	if err != nil {
		return err
	}
	if d.threads > p.maxThreads {
		return fmt.Errorf("metal: kernel %s needs %d threads in a threadgroup, the device runs it with %d at most", d.kernel, d.threads, p.maxThreads)
	}
	var n C.metal_dispatch
	n.pipeline = p.state
	for _, list := range [2][]region{d.reads, d.writes} {
		for _, r := range list {
			n.buffer[n.buffers] = r.block.buffer
			n.offset[n.buffers] = C.uint64_t(r.from)
			n.buffers++
		}
	}
	if n.bytes = C.uint32_t(copy(unsafe.Slice((*byte)(&n.args[0]), C.METAL_ARGS), d.args)); int(n.bytes) < len(d.args) {
		return fmt.Errorf("metal: kernel %s takes %d bytes of arguments, there is room for %d", d.kernel, len(d.args), n.bytes)
	}
	for i, g := range d.groups {
		n.groups[i] = C.uint32_t(g)
	}
	n.threads = [3]C.uint32_t{C.uint32_t(d.threads), 1, 1}
	for i, s := range d.shared {
		n.shared[i] = C.uint32_t((s + 15) &^ 15)
	}
	if c.ordered(d) {
		n.barrier = 1
		c.since = len(c.touched)
	}
	for _, r := range d.reads {
		if !r.block.constant {
			c.touched = append(c.touched, touch{r, false})
		}
	}
	for _, r := range d.writes {
		c.touched = append(c.touched, touch{r, true})
	}
	c.pending.dispatches = append(c.pending.dispatches, n)
	c.pending.labels = append(c.pending.labels, label{d.node, d.kernel})
	return nil
}

// ordered reports whether a dispatch has to come after those since the last barrier.
func (c *commands) ordered(d *dispatch) bool {
	for i := len(c.touched) - 1; i >= c.since; i-- {
		t := &c.touched[i]
		for _, r := range d.writes {
			if t.overlaps(r) {
				return true
			}
		}
		if !t.write {
			continue
		}
		for _, r := range d.reads {
			if t.overlaps(r) {
				return true
			}
		}
	}
	return false
}
