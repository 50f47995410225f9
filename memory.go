package minfer

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/gguf"
)

// DeviceMemory is what is held on one device, in bytes.
type DeviceMemory struct {
	Device      string
	Weights     int64 // in the form in which the device computes with them
	KV          int64 // keys and values
	Activations int64 // values within a forward pass, and copies between devices
}

// Memory is what a model or a session holds, by device in the order of preference.
type Memory struct {
	Devices []DeviceMemory
}

// Total returns the bytes of all devices together.
func (m Memory) Total() (bytes int64) {
	for _, d := range m.Devices {
		bytes += d.Weights + d.KV + d.Activations
	}
	return bytes
}

// String returns a line for each device.
func (m Memory) String() string {
	var b strings.Builder
	const mega = 1e6
	for _, d := range m.Devices {
		fmt.Fprintf(&b, "%s: %.1f MB weights, %.1f MB keys and values, %.1f MB activations\n",
			d.Device, float64(d.Weights)/mega, float64(d.KV)/mega, float64(d.Activations)/mega)
	}
	return b.String()
}

// Estimate says what Open with these options and one session will take, without loading any
// weights: the file's metadata is read, the graphs are built, placed and planned as they would
// be. Context and batch are those of WithContext and WithBatch, with 0 for their defaults.
//
// Keys and values, and activations, are what a session that reads a prompt of a whole batch or
// more and answers it comes to, to the byte; EvalAll takes more. So are weights on devices that can say
// beforehand what they make of them, as the CPU can; elsewhere they are counted as the file has
// them. Not counted are the file's own pages, which the system takes back when it
// needs them, and the vocabulary.
func Estimate(path string, context, batch int, opts ...Option) (total Memory, err error) {
	defer recovered(&err, "estimating memory")
	c, err := newConfig(opts)
	if err != nil {
		return Memory{}, err
	}
	f, err := gguf.Open(path)
	if err != nil {
		return Memory{}, fmt.Errorf("minfer: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	def, err := arch.Open(f)
	if err != nil {
		return Memory{}, fmt.Errorf("minfer: %w", err)
	}
	s := newSessionConfig(def.Hyperparameters())
	if context != 0 {
		s.context = context
	}
	if batch != 0 {
		s.batch = batch
	}
	if err := s.validate(def.Hyperparameters()); err != nil {
		return Memory{}, err
	}
	e, err := openEngine(f, def, c)
	if err != nil {
		return Memory{}, err
	}
	defer func() { err = errors.Join(err, e.closeDevices()) }()
	return e.estimate(f, s)
}

func (e *engine) estimate(f *gguf.File, s sessionConfig) (Memory, error) {
	m := e.noMemory()
	lists, err := e.listWeights(f)
	if err != nil {
		return Memory{}, err
	}
	for i, list := range lists {
		if m.Devices[i].Weights, err = weightBytes(e.devices[i], list); err != nil {
			return Memory{}, fmt.Errorf("minfer: %w", err)
		}
	}
	var plans []*alloc.Plan
	for _, tokens := range slices.Compact([]int{1, s.batch}) {
		p := e.params(tokens, 1, s.context)
		if tokens == 1 {
			p.Top = e.topFor(maxTop) // as steps of an answer with common settings
		}
		g, err := e.build(p)
		if err != nil {
			return Memory{}, err
		}
		plan, err := alloc.NewPlan(g)
		if err != nil {
			return Memory{}, fmt.Errorf("minfer: %w", err)
		}
		plans = append(plans, plan)
	}
	e.addPlans(m, plans)
	return m, nil
}

// noMemory lists the devices.
func (e *engine) noMemory() Memory {
	if e == nil {
		return Memory{}
	}
	m := Memory{Devices: make([]DeviceMemory, len(e.devices))}
	for i := range m.Devices {
		m.Devices[i].Device = e.assign[i].Name
	}
	return m
}

// addPlans adds what graphs take beside one another: they have the same regions and lie in the
// same arenas, and each has its own copies of values that cross devices.
func (e *engine) addPlans(m Memory, plans []*alloc.Plan) {
	for i := range m.Devices {
		d := &m.Devices[i]
		for _, p := range plans {
			d.Activations = max(d.Activations, int64(p.Arena(d.Device)))
		}
	}
	for _, p := range plans {
		for _, s := range p.Staging {
			lines := (s.Bytes + backend.Alignment - 1) / backend.Alignment
			m.Devices[e.deviceIndex(s.Device)].Activations += int64(lines) * backend.Alignment
		}
	}
	for _, r := range plans[0].Regions {
		m.Devices[e.deviceIndex(r.Device)].KV += 2 * int64(r.Cells) * int64(r.Type.Bytes(r.Width))
	}
}

// weightBytes is what a device will hold of weights.
func weightBytes(d backend.Backend, list []backend.Weight) (bytes int64, err error) {
	if meter, ok := d.(backend.WeightMeter); ok {
		return meter.MeasureWeights(list)
	}
	for _, w := range list {
		bytes += int64(len(w.Data))
	}
	return bytes, nil
}

// Memory returns what the model's weights take. It waits for the evaluation under way, and
// returns zeros after Close.
func (m *Model) Memory() Memory {
	total := m.devices().noMemory()
	if m.devices().enterToFree() {
		defer m.engine.leave()
		for i, d := range m.engine.devices {
			total.Devices[i].Weights = d.PoolStats().WeightBytes
		}
	}
	return total
}

// Memory returns what the session's model takes, and its cache. On a shared cache, that is what
// all sessions take together.
func (s *Session) Memory() Memory {
	if s.none() {
		return Memory{}
	}
	total := s.model.Memory()
	held := s.cache.Memory()
	for i, d := range held.Devices {
		total.Devices[i].KV, total.Devices[i].Activations = d.KV, d.Activations
	}
	return total
}

// Memory returns what the cache takes, beside the model's weights. It waits for the evaluation
// under way, and returns zeros after Close.
func (c *GraphCache) Memory() Memory {
	if c.none() {
		return Memory{}
	}
	e := c.model.engine
	total := e.noMemory()
	if !e.enterToFree() {
		return total
	}
	defer e.leave()
	for i, d := range c.alloc.Stats().Devices {
		total.Devices[i].KV, total.Devices[i].Activations = d.KV, d.Arena+d.Staging
	}
	return total
}
