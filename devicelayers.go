package minfer

import (
	"fmt"
	"sort"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// WithDeviceLayers has the first n layers run on the preferred device, and those beyond on the
// next that is named, for a model that does not fit on the first. With more layers than the model
// has, all run there, and what comes after the last layer runs where that does. Unless it is said, a device that
// can tell how much memory it has left gets as many layers as fit beside the keys, values and
// activations of one session with the default context. Model.Placement reports what came of it.
func WithDeviceLayers(n int) Option { return func(c *config) { c.deviceLayers = &n } }

// settleLayers decides how many layers the preferred device gets, and where keys and values lie.
func (e *engine) settleLayers(f *gguf.File, c *config) (err error) {
	defer recovered(&err, "preparing the model")
	all := e.def.Hyperparameters().Layers
	if c.deviceLayers != nil {
		return e.keepLayers(min(*c.deviceLayers, all))
	}
	meter, ok := e.devices[0].(backend.MemoryMeter)
	if !ok || len(e.devices) == 1 {
		return nil
	}
	free, err := meter.FreeMemory()
	if err != nil {
		return fmt.Errorf("minfer: memory of %s: %w", e.devices[0].Name(), err)
	}
	free -= free / 16 // for what the driver and others take meanwhile
	fits := func(n int) bool {
		var m Memory
		if err == nil {
			err = e.keepLayers(n)
		}
		if err == nil {
			m, err = e.estimate(f, newSessionConfig(e.def.Hyperparameters()))
		}
		if err != nil {
			return false
		}
		d := m.Devices[0]
		return d.Weights+d.KV+d.Activations <= free
	}
	if fits(all) || err != nil {
		return err
	}
	over := sort.Search(all, func(n int) bool { return !fits(n) })
	if err != nil {
		return err
	}
	return e.keepLayers(max(0, over-1))
}

// keepLayers leaves the preferred device the first n layers.
func (e *engine) keepLayers(n int) (err error) {
	e.kept = n
	e.layers, err = e.placeLayers(e.fusion)
	return err
}

// splitsLayers reports whether some layers are kept from the preferred device.
func (e *engine) splitsLayers() bool {
	return len(e.assign) > 1 && e.kept < e.def.Hyperparameters().Layers
}

// placeRest places the nodes of layers that the preferred device does not get on the first of the
// others that runs them.
func (e *engine) placeRest(g *graph.Graph) {
	if !e.splitsLayers() {
		return
	}
	for i, layer := range sched.LayersOf(g) {
		n := &g.Nodes[i]
		if layer < e.kept || n.Device != "" || !graph.Computed(n.Op) {
			continue
		}
		for _, d := range e.assign[1:] {
			if d.Capabilities.Supports(n.Op, n.Type) {
				n.Device = d.Name
				break
			}
		}
	}
}
