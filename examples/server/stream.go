package main

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// stream sends events to a client (server-sent events, each a JSON object).
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
	buf   bytes.Buffer
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, rc: http.NewResponseController(w)}
}

// begin sends the header, after which errors have to be events.
func (s *stream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // or a proxy might hold events back
	s.w.WriteHeader(http.StatusOK)
	return s.flush()
}

// send sends an event at once.
func (s *stream) send(v any) error {
	s.buf.Reset()
	s.buf.WriteString("data: ")
	e := json.NewEncoder(&s.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	s.buf.WriteByte('\n') // Encode has written the first
	return s.write(s.buf.Bytes())
}

// done sends the mark by which clients know that nothing was cut off.
func (s *stream) done() error { return s.write([]byte("data: [DONE]\n\n")) }

func (s *stream) write(event []byte) error {
	if err := s.begin(); err != nil {
		return err
	}
	if _, err := s.w.Write(event); err != nil {
		return err
	}
	return s.flush()
}

func (s *stream) flush() error { return s.rc.Flush() }

// finish ends a stream that came to its end with err, or nil. It returns an error that has
// not been told to the client.
func (s *stream) finish(err error) error {
	if err == nil {
		err = s.done()
	}
	if err == nil || !s.begun {
		return err
	}
	e := asAPIError(err)
	if e.Status != statusClientGone {
		_ = s.send(map[string]*apiError{"error": e}) // the client may be gone all the same
	}
	return &told{e}
}

// told is an error that the client knows of, or cannot be told.
type told struct{ *apiError }

func (t *told) Unwrap() error { return t.apiError }
