package minfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// products is a CPU that only has products, for models on two devices. It can only be had
// where a test asks for it.
var productsAvailable atomic.Bool

func init() {
	entry, _, err := backend.Lookup("cpu")
	if err != nil {
		panic(err)
	}
	open, supports := entry.Open, entry.Capabilities.Supports
	capabilities := &backend.Capabilities{Supports: func(op graph.Op, t graph.DType) bool {
		return op.Kind() == graph.KindMatMul && supports(op, t)
	}}
	backend.Register(backend.Entry{
		Name: "products", ID: 1902, Priority: 3, Capabilities: capabilities,
		Available: func() error {
			if productsAvailable.Load() {
				return nil
			}
			return errors.New("no test asks for it")
		},
		Open: func(c backend.Config) (backend.Backend, error) {
			b, err := open(backend.Config{Name: "cpu", Threads: c.Threads})
			return &productsDevice{b, c.Name, capabilities}, err
		},
	})
}

type productsDevice struct {
	backend.Backend
	name         string
	capabilities *backend.Capabilities
}

func (d *productsDevice) Name() string                        { return d.name }
func (d *productsDevice) Capabilities() *backend.Capabilities { return d.capabilities }

func useProducts(t *testing.T) {
	productsAvailable.Store(true)
	t.Cleanup(func() { productsAvailable.Store(false) })
}

// The estimate is what a session comes to that reads a prompt of more than a batch.
func TestEstimate(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small.gguf")
	if err := os.WriteFile(small, smallModel{vocab: 257, untied: true}.bytes(t), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path           string
		context, batch int
		opts           []minfer.Option
	}{
		"defaults":    {storyteller, 0, 0, nil},
		"context":     {storyteller, 333, 0, nil},
		"small batch": {storyteller, 200, 7, nil},
		"large batch": {storyteller, 100, 1000, nil},
		"one by one":  {storyteller, 100, 1, nil},
		"F32":         {storyteller, 0, 0, []minfer.Option{minfer.WithKVType(graph.F32)}},
		"generic":     {storyteller, 64, 16, []minfer.Option{minfer.WithInstructions("generic")}},
		"in place":    {storyteller, 64, 16, []minfer.Option{minfer.WithWeightsInPlace()}},
		"not fused":   {storyteller, 64, 16, []minfer.Option{minfer.WithFusion(graph.Fusion{})}},
		"floats":      {small, 64, 16, nil},
		"rounded":     {small, 64, 16, []minfer.Option{minfer.WithRoundedFloats()}},
		"two devices": {small, 64, 16, []minfer.Option{minfer.WithBackends("products", "cpu"), minfer.WithInstructions("generic")}},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "two devices" {
				c.opts = append(c.opts, minfer.WithBackends("cpu"))
			} else {
				useProducts(t)
			}
			estimate, err := minfer.Estimate(c.path, c.context, c.batch, c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			m := openModel(t, c.path, c.opts...)
			var opts []minfer.SessionOption
			if c.context != 0 {
				opts = append(opts, minfer.WithContext(c.context))
			}
			if c.batch != 0 {
				opts = append(opts, minfer.WithBatch(c.batch))
			}
			s := newSession(t, m, opts...)
			batch := min(c.batch, s.Context())
			if batch == 0 {
				batch = min(256, s.Context())
			}
			for _, err := range s.GenerateTokens(context.Background(), someTokens(m, min(2*batch, s.Context()-3), 0), minfer.MaxTokens(3), minfer.PastEnd()) {
				if err != nil {
					t.Fatal(err)
				}
			}
			got := s.Memory()
			for i := range got.Devices {
				if got.Devices[i].Device == "products" {
					// It does not say what it makes of weights.
					if w := estimate.Devices[i].Weights; w <= 0 {
						t.Errorf("%d bytes of weights", w)
					}
					estimate.Devices[i].Weights = got.Devices[i].Weights
				}
			}
			if batch == s.Context() {
				// No prompt fills the batch and leaves room for an answer.
				if got.Devices[0].Activations > estimate.Devices[0].Activations {
					t.Errorf("activations %d, estimated %d", got.Devices[0].Activations, estimate.Devices[0].Activations)
				}
				estimate.Devices[0].Activations = got.Devices[0].Activations
			}
			if !reflect.DeepEqual(estimate, got) {
				t.Errorf("estimated %+v\n    held %+v", estimate.Devices, got.Devices)
			}
			if got.Total() <= 0 || got.Total() != s.Memory().Total() {
				t.Errorf("total %d", got.Total())
			}
			weights := m.Memory()
			if weights.Devices[0].Weights != got.Devices[0].Weights || weights.Devices[0].KV != 0 {
				t.Errorf("model %+v", weights)
			}
			m.Close()
			if s.Memory().Total() != 0 {
				t.Errorf("closed: %+v", s.Memory())
			}
		})
	}
}

func TestEstimateRefuses(t *testing.T) {
	if _, err := minfer.Estimate(filepath.Join(t.TempDir(), "none.gguf"), 0, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, c := range [][2]int{{-1, 0}, {1 << 20, 0}, {0, -1}} {
		if _, err := minfer.Estimate(storyteller, c[0], c[1]); !errors.Is(err, minfer.ErrOption) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := minfer.Estimate(storyteller, 0, 0, minfer.WithBackends("nosuch")); !errors.Is(err, minfer.ErrUnknownBackend) {
		t.Errorf("backend: %v", err)
	}
}

func TestPlacement(t *testing.T) {
	useProducts(t)
	m := openStoryteller(t, minfer.WithBackends("products", "cpu"), minfer.WithThreads(1))
	p, err := m.Placement()
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 2 || p[0].Device != "products" || p[1].Device != "cpu" {
		t.Fatalf("%+v", p)
	}
	// 4 layers of 7 products, and the logits.
	products := []minfer.OpCount{{Op: "MatMul", Nodes: 4*7 + 1}}
	if !reflect.DeepEqual(p[0].Prefill, products) || !reflect.DeepEqual(p[0].Decode, products) || p[0].Layers != nil || p[0].Tensors != 4*7+1 {
		t.Errorf("products: %+v", p[0])
	}
	if !reflect.DeepEqual(p[1].Layers, []int{0, 1, 2, 3}) || p[1].Tensors == 0 || p[1].WeightBytes <= 0 {
		t.Errorf("cpu: %+v", p[1])
	}
	for _, ops := range [][]minfer.OpCount{p[1].Prefill, p[1].Decode} {
		if ops[0] != (minfer.OpCount{Op: "Embed", Nodes: 1}) {
			t.Errorf("cpu: %+v", ops)
		}
	}
	for _, want := range []string{"products: 0 layers (none), 29 tensors", "cpu: 4 layers (0-3)", "decode: 29 MatMul\n"} {
		if !strings.Contains(p.String(), want) {
			t.Errorf("%s\nlacks %q", p, want)
		}
	}
	if got := m.Memory(); got.Devices[0].Weights != p[0].WeightBytes || got.Devices[1].Weights != p[1].WeightBytes {
		t.Errorf("memory %+v, placement %+v", got, p)
	}
	m.Close()
	if _, err := m.Placement(); !errors.Is(err, minfer.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// What is logged is what was done, once, and no text.
func TestLogger(t *testing.T) {
	var out bytes.Buffer
	m := openStoryteller(t, minfer.WithBackends("cpu"), minfer.WithLogger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	s := newSession(t, m)
	mustRead(t, s.Generate(context.Background(), "A secret", minfer.MaxTokens(5), minfer.Temperature(0)))
	built := 0
	var messages []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch msg := entry["msg"].(string); msg {
		case "graph built":
			if built++; entry["level"] != "DEBUG" || entry["nodes"].(float64) < 10 {
				t.Errorf("%v", entry)
			}
		case "model opened":
			if entry["name"] != "Storyteller" || entry["architecture"] != "qwen3" || entry["devices"] != "cpu" || entry["level"] != "INFO" {
				t.Errorf("%v", entry)
			}
			messages = append(messages, msg)
		case "device":
			if entry["device"] != "cpu" || entry["layers"] != "0-3" || entry["bytes"].(float64) <= 0 {
				t.Errorf("%v", entry)
			}
			messages = append(messages, msg)
		default:
			messages = append(messages, msg)
		}
	}
	if !reflect.DeepEqual(messages, []string{"model opened", "device"}) || uint64(built) != s.Cache().Stats().Built {
		t.Errorf("%v, and %d graphs, want %d", messages, built, s.Cache().Stats().Built)
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("text was logged: %s", out.String())
	}
}
