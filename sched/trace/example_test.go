package trace_test

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/minfer/minfer/sched/trace"
)

// file is the beginning of a trace.
const file = `{"kind":"header","format":"minfer-trace","version":1,"model":{"name":"Storyteller","devices":["cpu"]}}
{"kind":"graph","uid":1,"schedule":{"graph":{"nodes":[{"name":"token_ids","op":"Input"},{"name":"embed","op":"Embed"}]}}}
{"kind":"pass","pass":1,"graph":1,"phase":"decode","start":0,"time":90000,"tokens":[12],"positions":[0],"sessions":[1],"nodes":[{"node":1,"device":"cpu","start":1000,"time":25000,"bytes":1024,"stats":{"min":-2,"max":2.5,"mean":0.01,"rms":0.9}}]}
`

func ExampleRecords() {
	for record, err := range trace.Records(strings.NewReader(file)) {
		if err != nil {
			log.Fatal(err)
		}
		if p, ok := record.(*trace.PassRecord); ok {
			for _, n := range p.Nodes {
				fmt.Printf("node %d on %s: %d ns, rms %g\n", n.Node, n.Device, n.Time, n.Stats.RMS)
			}
		}
	}
	// Output: node 1 on cpu: 25000 ns, rms 0.9
}

// A trace that was kept becomes a timeline for Perfetto.
func ExampleChromeWriter() {
	timeline := trace.NewChromeWriter(os.Stdout)
	for record, err := range trace.Records(strings.NewReader(file)) {
		if err == nil {
			err = timeline.Put(record)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := timeline.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [
	// {"ph":"M","ts":0,"pid":1,"tid":1,"name":"process_name","args":{"name":"minfer Storyteller"}},
	// {"ph":"M","ts":0,"pid":1,"tid":1,"name":"thread_name","args":{"name":"passes"}},
	// {"ph":"M","ts":0,"pid":1,"tid":2,"name":"thread_name","args":{"name":"cpu"}},
	// {"ph":"X","ts":0,"dur":90,"pid":1,"tid":1,"cat":"pass","name":"decode of 1","args":{"graph":1,"pass":1,"tokens":1}},
	// {"ph":"X","ts":1,"dur":25,"pid":1,"tid":2,"cat":"Embed","name":"embed","args":{"bytes":1024,"inf":0,"nan":0,"node":1,"rms":0.9}}
	// ]
}

func ExampleDescribe() {
	fmt.Printf("%+v\n", *trace.Describe([]float32{1, 2, 3, -4}))
	// Output: {Min:-4 Max:3 Mean:0.5 RMS:2.7386127875258306 NaN:0 Inf:0}
}

func ExampleLikeliest() {
	words := []string{"sea", "sky", "sun"}
	for _, c := range trace.Likeliest([]float32{1, 3, 2}, 2, func(t int32) string { return words[t] }) {
		fmt.Printf("%s %.2f\n", c.Text, c.Prob)
	}
	// Output:
	// sky 0.67
	// sun 0.24
}
