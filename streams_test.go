package minfer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/minfer/minfer"
)

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
