package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

//go:embed page
var page embed.FS

// contentTypes are those of the files, whatever the machine makes of their names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// handler serves the page and what it asks for.
func (v *viewer) handler(addr net.Addr) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { servePage(w, "index.html") })
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) { servePage(w, r.PathValue("file")) })
	mux.HandleFunc("GET /api/about", v.about)
	mux.HandleFunc("GET /api/events", v.events)
	mux.HandleFunc("GET /api/trace/{slot}", v.trace)
	mux.HandleFunc("POST /api/run", v.run)
	mux.HandleFunc("POST /api/stop", func(w http.ResponseWriter, _ *http.Request) {
		v.halt()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /api/watch", v.watch)
	return guard(mux, addr)
}

// guard refuses requests that come by another name than the address: a page elsewhere that has its
// own name lead here, and requests that pages elsewhere send.
func guard(h http.Handler, addr net.Addr) http.Handler {
	_, port, _ := net.SplitHostPort(addr.String())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !isAddress(r.Host, port) || origin != "" && origin != "http://"+r.Host {
			http.Error(w, "this page is served by its address only", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isAddress reports whether what a browser takes for our name is an address, of this port.
func isAddress(host, port string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil || u.Host != host {
		return false
	}
	return (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()) != nil) && cmp.Or(u.Port(), "80") == port
}

func servePage(w http.ResponseWriter, name string) {
	data, err := page.ReadFile("page/" + name)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// The page needs nothing from elsewhere, and what a model says cannot change that.
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(data) // a browser that is gone needs no answer
}

func (v *viewer) about(w http.ResponseWriter, _ *http.Request) {
	about := struct {
		Models []string `json:"models"`
		Chat   bool     `json:"chat"`
		Traced bool     `json:"traced"` // a trace is shown at the start
	}{Chat: v.models[0].m.ChatTemplate() != "", Traced: v.settings.open != ""}
	for _, m := range v.models {
		about.Models = append(about.Models, m.title)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(about) // a browser that is gone needs no answer
}

// body reads what the page sends.
func body(w http.ResponseWriter, r *http.Request, to any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// run answers when the run has ended.
func (v *viewer) run(w http.ResponseWriter, r *http.Request) {
	var q request
	if !body(w, r, &q) {
		return
	}
	if err := q.check(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, end := v.begin()
	defer end()
	if err := v.generate(ctx, &q); err != nil && ctx.Err() == nil {
		http.Error(w, strings.TrimPrefix(err.Error(), "minfer: "), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (v *viewer) watch(w http.ResponseWriter, r *http.Request) {
	var names []string
	if body(w, r, &names) {
		v.limits.set(names)
		w.WriteHeader(http.StatusNoContent)
	}
}

// trace sends a run as a file.
func (v *viewer) trace(w http.ResponseWriter, r *http.Request) {
	slot, err := strconv.Atoi(r.PathValue("slot"))
	if err != nil || slot < 0 || slot > 1 {
		http.Error(w, "no such run", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Content-Disposition", `attachment; filename="minfer.trace"`)
	_, _ = w.Write(v.runs[slot].all()) // a browser that is gone needs no answer
}

// events streams both runs: what there is of them, and what comes. An event of type "reset" says
// that a run begins, one of type "0" or "1" is a line of it.
func (v *viewer) events(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	epochs, lines := [2]int{-1, -1}, [2]int{}
	for {
		var changes [2]<-chan struct{}
		for i, l := range v.runs {
			epoch, fresh, change := l.from(epochs[i], lines[i])
			changes[i] = change
			var err error
			if epoch != epochs[i] {
				epochs[i], lines[i] = epoch, 0
				_, err = fmt.Fprintf(w, "event: reset\ndata: %d\n\n", i)
			}
			for _, line := range fresh {
				if err == nil {
					_, err = fmt.Fprintf(w, "event: %d\ndata: %s\n", i, line)
				}
			}
			lines[i] += len(fresh)
			if err = errors.Join(err, stream.Flush()); err != nil {
				return
			}
		}
		select {
		case <-changes[0]:
		case <-changes[1]:
		case <-r.Context().Done():
			return
		}
	}
}
