//go:build cuda

package cuda

import (
	"errors"

	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"golang.org/x/exp/slices"
)

// maxRecordings bounds the graphs that are kept. The scheduler keeps fewer.
const maxRecordings = 64

// recordingKey is what backend.Replayer names a run by.
type recordingKey struct {
	uid         uint64
	first, last int
}

// recording is a run that has come at least once.
type recording struct {
	graph driver.Graph
	ready bool // graph is there
	used  uint64
	sites sites // of its nodes
	start int   // of its work in the queue, while it is being made
}

// recordings are the runs that came before, by key.
type recordings struct {
	list    map[recordingKey]*recording
	current *recording // being made
	off     bool       // values of nodes are read in between
	clock   uint64
}

// Replay launches the graph of a run. A run that comes for the first time is only noted; the
// second time its work is recorded, when memory has found its place.
func (d *device) Replay(uid uint64, first, last int) (bool, error) {
	if err := d.usable(); err != nil {
		return false, err
	}
	if err := d.endRecording(); err != nil {
		return false, err
	}
	d.forget()
	r := &d.recordings
	if r.off {
		return false, nil
	}
	key := recordingKey{uid, first, last}
	rec := r.list[key]
	if rec == nil {
		rec = &recording{}
		r.keep(key, rec)
		r.touch(rec)
		return false, nil
	}
	r.touch(rec)
	if !rec.ready {
		rec.start = len(d.queue.ops)
		rec.sites = sites{base: d.sites.base + len(d.sites.nodes)}
		r.current = rec
		return false, nil
	}
	d.queue.add(driver.Replay).Fn = rec.graph.Handle()
	return true, nil
}

// Capture has no runs recorded or replayed while on.
func (d *device) Capture(on bool) {
	d.recordings.current = nil
	d.recordings.off = on
}

func (r *recordings) touch(rec *recording) {
	r.clock++
	rec.used = r.clock
}

// keep adds a recording, and lets go of the one that has not been used for the longest time if
// there are too many.
func (r *recordings) keep(key recordingKey, rec *recording) {
	if r.list == nil {
		r.list = make(map[recordingKey]*recording)
	}
	if len(r.list) >= maxRecordings {
		var oldest recordingKey
		for k, other := range r.list {
			if old := r.list[oldest]; old == nil || other.used < old.used {
				oldest = k
			}
		}
		r.list[oldest].destroy()
		delete(r.list, oldest)
	}
	r.list[key] = rec
}

// start is where in the queue the recording begins that is being made, or 0.
func (r *recordings) start() int {
	if r.current == nil {
		return 0
	}
	return r.current.start
}

// destroy gives the graph back. That the driver may refuse is of no consequence.
func (rec *recording) destroy() {
	if rec.ready {
		_ = rec.graph.Destroy()
		rec.ready = false
	}
}

// clear forgets all recordings, because memory that they use is about to move.
func (r *recordings) clear() {
	for _, rec := range r.list {
		rec.destroy()
	}
	r.list, r.current = nil, nil
}

// endRecording makes a graph of the run that has just ended, and queues it.
func (d *device) endRecording() error {
	rec := d.recordings.current
	if rec == nil {
		return nil
	}
	d.recordings.current = nil
	rec.sites.nodes = slices.Clone(d.sites.nodes[rec.sites.base-d.sites.base:])
	return d.do(func() error {
		q := &d.queue
		ops, nodes := slices.Clone(q.ops[rec.start:]), slices.Clone(q.nodes[rec.start:])
		q.ops, q.nodes = q.ops[:rec.start], q.nodes[:rec.start]
		if err := d.flush(); err != nil || len(ops) == 0 {
			return err
		}
		q.ops, q.nodes = append(q.ops, ops...), append(q.nodes, nodes...)
		g, at, err := driver.Capture(d.stream, q.ops)
		err = d.explain(err, at)
		q.ops, q.nodes = q.ops[:0], q.nodes[:0]
		if err != nil {
			return errors.Join(err, d.settle())
		}
		rec.graph, rec.ready = g, true
		q.add(driver.Replay).Fn = g.Handle()
		q.nodes[0] = nodes[0]
		return nil
	})
}
