package main

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// metrics are counters in the form that Prometheus collects.
type metrics struct {
	promptTokens, cachedTokens, generatedTokens, malformed atomic.Int64
	queueTime, promptTime, answerTime                      histogram

	mu       sync.Mutex
	requests map[requestKind]int64
}

type requestKind struct {
	path   string
	status int
}

func (m *metrics) request(path string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests = make(map[requestKind]int64)
	}
	m.requests[requestKind{path, status}]++
}

func (m *metrics) count(c counts) {
	m.promptTokens.Add(int64(c.prompt))
	m.cachedTokens.Add(int64(c.cached))
	m.generatedTokens.Add(int64(c.generated))
}

// bounds are the upper ends of a histogram's buckets, in seconds.
var bounds = [...]float64{0.005, 0.02, 0.1, 0.5, 2, 10, 60}

// histogram counts durations.
type histogram struct {
	mu     sync.Mutex
	counts [len(bounds) + 1]int64
	sum    float64
}

func (h *histogram) observe(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := sort.SearchFloat64s(bounds[:], d.Seconds())
	h.counts[i]++
	h.sum += d.Seconds()
}

func (h *histogram) write(b *strings.Builder, name, help string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	describe(b, name, "histogram", help)
	total := int64(0)
	for i, n := range h.counts {
		total += n
		bound := "+Inf"
		if i < len(bounds) {
			bound = fmt.Sprint(bounds[i])
		}
		fmt.Fprintf(b, "%s_bucket{le=%q} %d\n", name, bound, total)
	}
	fmt.Fprintf(b, "%s_sum %g\n%s_count %d\n", name, h.sum, name, total)
}

func describe(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// serveMetrics answers with all counters.
func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	var b strings.Builder
	single := func(name, kind, help string, n int64) {
		describe(&b, name, kind, help)
		fmt.Fprintf(&b, "%s %d\n", name, n)
	}
	m := &s.metrics
	m.writeRequests(&b)
	single("minfer_prompt_tokens_total", "counter", "Tokens of prompts.", m.promptTokens.Load())
	single("minfer_prompt_cached_tokens_total", "counter", "Tokens of prompts that were evaluated before.", m.cachedTokens.Load())
	single("minfer_generated_tokens_total", "counter", "Tokens of answers.", m.generatedTokens.Load())
	single("minfer_malformed_tool_calls_total", "counter", "Calls of tools that were given back as text.", m.malformed.Load())
	busy, waiting := s.pool.counts()
	single("minfer_slots", "gauge", "Requests that can be answered at the same time.", int64(s.settings.slots))
	single("minfer_slots_busy", "gauge", "Slots that are in use.", int64(busy))
	single("minfer_requests_waiting", "gauge", "Requests that wait for a slot.", int64(waiting))
	m.queueTime.write(&b, "minfer_queue_seconds", "Time that requests waited for a slot.")
	m.promptTime.write(&b, "minfer_prompt_seconds", "Time to evaluate a prompt.")
	m.answerTime.write(&b, "minfer_answer_seconds", "Time to generate an answer.")
	cache := s.cache.Stats()
	single("minfer_cache_cells", "gauge", "Tokens that all conversations together can hold.", int64(cache.Cells))
	single("minfer_cache_free_cells", "gauge", "Of these, the ones that are free.", int64(cache.FreeCells))
	single("minfer_cache_bytes", "gauge", "Memory of conversations and of computing.", cache.Bytes)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write([]byte(b.String()))
	return err
}

func (m *metrics) writeRequests(b *strings.Builder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kinds []requestKind
	for k := range m.requests {
		kinds = append(kinds, k)
	}
	sort.Slice(kinds, func(i, j int) bool {
		return kinds[i].path < kinds[j].path || kinds[i].path == kinds[j].path && kinds[i].status < kinds[j].status
	})
	describe(b, "minfer_requests_total", "counter", "Requests by path and status.")
	for _, k := range kinds {
		fmt.Fprintf(b, "minfer_requests_total{path=%q,status=\"%d\"} %d\n", k.path, k.status, m.requests[k])
	}
}
