package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minfer/minfer"
)

// TestPromptsAreFair has an answer go on while a long prompt is read on the same cache.
func TestPromptsAreFair(t *testing.T) {
	m := openStoryteller(t)
	for _, batching := range []bool{true, false} {
		cache, err := m.NewGraphCache(2048, minfer.WithBatching(batching))
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var said atomic.Int32
		talking := make(chan error)
		go func() {
			s := newSession(t, m, minfer.WithCache(cache))
			for _, err := range s.GenerateTokens(ctx, someTokens(m, 3, 1), minfer.PastEnd()) {
				if err != nil {
					talking <- err
					return
				}
				said.Add(1)
			}
			talking <- context.Canceled // it ran out of context
		}()
		for said.Load() == 0 {
			runtime.Gosched()
		}
		var before, chunks, after int32
		s := newSession(t, m, minfer.WithCache(cache))
		mustRead(t, s.GenerateTokens(t.Context(), someTokens(m, 900, 2), minfer.MaxTokens(1), minfer.OnPromptProgress(func(done, total int) {
			if done == 0 {
				before = said.Load()
			} else if done < total {
				chunks++
			}
			after = said.Load()
		})))
		cancel()
		if err := <-talking; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if chunks < 10 || after-before < chunks/3 {
			t.Errorf("batching %t: while a prompt was read in %d parts, the other answer got %d tokens", batching, chunks, after-before)
		}
	}
}

// BenchmarkStreams has sessions on one cache answer at the same time, with and without common passes.
func BenchmarkStreams(b *testing.B) {
	const tokens = 48
	for _, name := range []string{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "smollm2-135m-instruct-q4_1.gguf"} {
		m := openModel(b, fetchedModel(name)(b))
		for _, streams := range []int{1, 2, 4, 8} {
			for _, batching := range []bool{false, true} {
				b.Run(fmt.Sprintf("%.7s/streams=%d/batching=%t", name, streams, batching), func(b *testing.B) {
					cache, err := m.NewGraphCache(streams*256, minfer.WithBatching(batching))
					if err != nil {
						b.Fatal(err)
					}
					defer cache.Close()
					var took time.Duration
					for range b.N {
						sessions := make([]*minfer.Session, streams)
						for i := range sessions {
							sessions[i] = newSession(b, m, minfer.WithCache(cache), minfer.WithContext(256))
							eval(b, sessions[i], encode(b, m, chatML(fmt.Sprintf("Write a function with %d arguments.", i)))...)
						}
						begun := time.Now()
						var wait sync.WaitGroup
						for _, s := range sessions {
							wait.Add(1)
							go func() {
								defer wait.Done()
								_, err := read(s.GenerateTokens(context.Background(), nil, minfer.Temperature(0), minfer.MaxTokens(tokens), minfer.PastEnd()))
								if err != nil {
									b.Error(err)
								}
							}()
						}
						wait.Wait()
						took += time.Since(begun)
						for _, s := range sessions {
							s.Close()
						}
					}
					b.ReportMetric(float64(b.N*streams*tokens)/took.Seconds(), "tokens/s")
				})
			}
		}
	}
}
