package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/minfer/minfer"
)

// download finds the file of a model, or brings it. Ctrl+C stops; what came is kept.
func download(model string, notes *notes) (path string, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &downloadProgress{notes: notes, live: isTerminal(notes.w)}
	defer p.end()
	return minfer.Fetch(ctx, model, minfer.WithFetchProgress(p.show))
}

// repaint is how often the progress of a download is shown.
const repaint = 100 * time.Millisecond

// downloadProgress is a line that tells how far a download has come. On a terminal it is
// painted over again and again; elsewhere there is one line when a file begins and one
// when it is complete.
type downloadProgress struct {
	notes *notes
	live  bool

	file    string // that has begun
	done    bool   // and is complete
	from    int64  // bytes that were there before
	began   time.Time
	painted time.Time
	open    bool // the line has not ended
}

func (p *downloadProgress) show(now minfer.FetchProgress) {
	complete := now.Done == now.Total
	if now.File != p.file {
		p.end()
		p.file, p.done, p.from, p.began = now.File, false, now.Done, time.Now()
		p.painted = time.Time{}
	} else if !p.live && (!complete || p.done) || !complete && time.Since(p.painted) < repaint {
		return
	}
	p.done = complete
	p.painted = time.Now()
	if !p.live {
		p.notes.say("%s", p.line(now))
		return
	}
	p.open = true
	fmt.Fprintf(p.notes.w, "\r\x1b[K%s", p.line(now))
}

// line is the progress in words.
func (p *downloadProgress) line(now minfer.FetchProgress) string {
	name := now.File
	if p.live {
		name = harmless(name)
	}
	if now.Files > 1 {
		name = fmt.Sprintf("%s (%d of %d)", name, now.Index+1, now.Files)
	}
	if now.Total <= 0 {
		return fmt.Sprintf("downloading %s: %s", name, size(uint64(now.Done)))
	}
	if now.Done == now.Total {
		return fmt.Sprintf("downloaded %s: %s", name, size(uint64(now.Total)))
	}
	text := fmt.Sprintf("downloading %s: %d%% of %s", name, int(100*float64(now.Done)/float64(now.Total)), size(uint64(now.Total)))
	seconds := time.Since(p.began).Seconds()
	if rate := float64(now.Done-p.from) / seconds; seconds > 1 && rate > 0 {
		left := time.Duration(float64(now.Total-now.Done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %v left", size(uint64(rate)), left.Round(time.Second))
	}
	return text
}

// end ends the line, so that something else can be written.
func (p *downloadProgress) end() {
	if p.open {
		fmt.Fprintln(p.notes.w)
		p.open = false
	}
}
