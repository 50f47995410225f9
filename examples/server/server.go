package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/minfer/minfer"
)

// server answers requests with a model.
type server struct {
	settings *settings
	log      *slog.Logger
	model    *minfer.Model
	modelID  string
	cache    *minfer.GraphCache
	pool     *pool
	format   minfer.ToolFormat
	started  time.Time
	metrics  metrics
}

func newServer(settings *settings, log *slog.Logger) (s *server, err error) {
	s = &server{settings: settings, log: log, started: time.Now()}
	if s.model, err = settings.open(log); err != nil {
		return nil, err
	}
	s.modelID = settings.modelID()
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.model.Close())
	}
	return s, nil
}

// blockCells is what a conversation can take beyond its tokens: memory is handed out in blocks,
// and copies of conversations share all but the last.
const blockCells = 64

func (s *server) prepare() (err error) {
	info := s.model.Info()
	if s.settings.context == 0 {
		s.settings.context = min(minfer.DefaultContext, info.ContextLength)
	}
	s.format = s.model.ToolFormat()
	if _, err := s.model.NewSampler(s.settings.sampling); err != nil {
		return err
	}
	s.cache, err = s.model.NewGraphCache(s.settings.slots*(s.settings.context+blockCells), minfer.WithBatching(s.settings.batching))
	if err != nil {
		return err
	}
	s.pool, err = newPool(s.model, s.settings.slots, s.settings.queue,
		minfer.WithCache(s.cache), minfer.WithContext(s.settings.context), minfer.WithBatch(s.settings.batch))
	return err
}

// close frees the model. No request may be under way.
func (s *server) close() error {
	return errors.Join(s.pool.close(), s.cache.Close(), s.model.Close())
}

// handler is all that the server serves.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/chat/completions": s.chat,
		"POST /v1/completions":      s.completions,
		"POST /v1/embeddings":       s.embeddings,
		"GET /v1/models":            s.models,
		"GET /v1/models/{id...}":    s.oneModel,
		"GET /metrics":              s.serveMetrics,
	} {
		_, path, _ := strings.Cut(pattern, " ")
		mux.Handle(pattern, s.guard(path, s.authorized(h)))
	}
	mux.Handle("GET /health", s.guard("/health", s.health))
	for _, name := range pageFiles {
		path := "/" + name
		if name == "index.html" {
			path = "/{$}"
		}
		mux.Handle("GET "+path, s.guard("/", servePage(name)))
	}
	mux.Handle("/", s.guard("other", s.nothing(mux)))
	return mux
}

// nothing answers for what is not served.
func (s *server) nothing(mux *http.ServeMux) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/" {
				w.Header().Set("Allow", method)
				return newError(http.StatusMethodNotAllowed, invalidRequest, "%s %s: want %s", r.Method, r.URL.Path, method).code("method_not_allowed")
			}
		}
		return newError(http.StatusNotFound, invalidRequest, "%s is not served", r.URL.Path).code("unknown_url")
	}
}

// guard surrounds a handler with what all have in common.
func (s *server) guard(path string, h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		noted := &answerWriter{ResponseWriter: w, patience: s.settings.patience}
		err := s.protect(noted, r, h)
		if err != nil {
			noted.status = s.answerError(noted, r, err)
		}
		s.metrics.request(path, noted.status)
		s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", noted.status, "time", time.Since(begun))
	})
}

// protect turns a request away that no good client sends, and keeps a panic to the request
// that it happened in.
func (s *server) protect(w http.ResponseWriter, r *http.Request, h func(http.ResponseWriter, *http.Request) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	if err := s.checkBrowser(w, r); err != nil {
		return err
	}
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		w.WriteHeader(http.StatusNoContent) // a browser asks whether it may; the header says
		return nil
	}
	return h(w, r)
}

// answerError tells the client of an error, if it can still be told, and returns the status.
func (s *server) answerError(w *answerWriter, r *http.Request, err error) int {
	e := asAPIError(err)
	if r.Context().Err() != nil && e.Status >= http.StatusInternalServerError {
		e = asAPIError(r.Context().Err())
	}
	if e.Status == http.StatusInternalServerError {
		s.log.Error("request failed", "path", r.URL.Path, "error", err)
		// What went wrong in here is not for everybody.
		e = newError(e.Status, serverError, "the server failed; its log says why")
	}
	var known *told
	if w.status == 0 && e.Status != statusClientGone && !errors.As(err, &known) {
		writeError(w, e)
	}
	return e.Status
}

// answerWriter notes the status of the answer, and has no patience with a client that does not
// read it.
type answerWriter struct {
	http.ResponseWriter
	patience time.Duration
	status   int
}

// WriteHeader notes the status.
func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.limit()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (w *answerWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.limit()
	return w.ResponseWriter.Write(p)
}

func (w *answerWriter) limit() {
	// Writers of tests have no deadlines; those of a real connection have.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience))
}

// Unwrap gives http.ResponseController what it needs.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checkBrowser keeps web pages of others out: any page that a user visits could otherwise have
// the user's browser use the model. Pages come with an origin; it has to be this server's own
// or one that was let in. A name that an attacker made to point here is no origin of its own
// either: on a local address, only local names are answered to.
func (s *server) checkBrowser(w http.ResponseWriter, r *http.Request) error {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(local.String()) && !isLoopback(r.Host) {
		return newError(http.StatusMisdirectedRequest, permission, "%s is not the name of this server", r.Host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	w.Header().Add("Vary", "Origin")
	if u, err := url.Parse(origin); err == nil && u.Host == r.Host {
		return nil
	}
	if !s.originAllowed(origin) {
		return newError(http.StatusForbidden, permission, "web pages of %s may not use this server; -cors lets them", origin)
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	return nil
}

func (s *server) originAllowed(origin string) bool {
	for _, allowed := range strings.Split(s.settings.origins, ",") {
		if allowed = strings.TrimSpace(allowed); allowed == "*" || allowed == origin && origin != "" {
			return true
		}
	}
	return false
}

// isLoopback reports whether an address or a name, with or without a port, is this machine.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// authorized asks for the key, if there is one.
func (s *server) authorized(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	if s.settings.apiKey == "" {
		return h
	}
	want := sha256.Sum256([]byte(s.settings.apiKey))
	return func(w http.ResponseWriter, r *http.Request) error {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(key)) // so that the comparison takes the same time for all
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			return newError(http.StatusUnauthorized, authentication, "the API key is missing or wrong").code("invalid_api_key")
		}
		return h(w, r)
	}
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int    `json:"context_length"` // of a conversation here; not of the API, but clients use it
}

func (s *server) modelObject() modelObject {
	return modelObject{s.modelID, "model", s.started.Unix(), "minfer", s.settings.context}
}

func (s *server) models(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelObject{s.modelObject()}})
	return nil
}

func (s *server) oneModel(w http.ResponseWriter, r *http.Request) error {
	if id := r.PathValue("id"); id != s.modelID {
		return newError(http.StatusNotFound, invalidRequest, "model: %q is not here, only %q", id, s.modelID).param("model").code("model_not_found")
	}
	writeJSON(w, http.StatusOK, s.modelObject())
	return nil
}

func (s *server) health(w http.ResponseWriter, r *http.Request) error {
	busy, waiting := s.pool.counts()
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "slots": s.settings.slots, "busy": busy, "waiting": waiting})
	return nil
}
