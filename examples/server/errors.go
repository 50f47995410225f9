package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/minfer/minfer"
)

// apiError is an error in the shape that clients of the OpenAI API understand.
type apiError struct {
	Status  int     `json:"-"`
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the field of the request that is to blame, such as messages[0].role
	Code    *string `json:"code"`
}

// Error returns the message.
func (e *apiError) Error() string { return e.Message }

// Types of errors.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	permission     = "permission_error"
	overloaded     = "overloaded_error"
	unsupported    = "not_supported_error"
	serverError    = "server_error"
)

func newError(status int, kind, format string, args ...any) *apiError {
	return &apiError{Status: status, Type: kind, Message: fmt.Sprintf(format, args...)}
}

func (e *apiError) param(path string) *apiError {
	if path != "" {
		e.Param = &path
	}
	return e
}

func (e *apiError) code(code string) *apiError {
	e.Code = &code
	return e
}

// badField says what is wrong with a field of the request.
func badField(path, format string, args ...any) *apiError {
	e := newError(http.StatusBadRequest, invalidRequest, format, args...)
	if path != "" {
		e.Message = path + ": " + e.Message
	}
	return e.param(path)
}

// statusClientGone is what is noted for a request whose client did not wait for the answer.
const statusClientGone = 499

// asAPIError puts any error in the API's terms.
func asAPIError(err error) *apiError {
	var api *apiError
	var full *minfer.ContextError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newError(statusClientGone, serverError, "the request was cancelled")
	case errors.As(err, &full):
		return contextExceeded(full.Have+full.More, full.Context)
	case errors.Is(err, minfer.ErrCacheFull):
		return newError(http.StatusServiceUnavailable, overloaded, "there is no room for the conversation now: %v", err)
	case errors.Is(err, minfer.ErrOption):
		return newError(http.StatusBadRequest, invalidRequest, "%v", err)
	case errors.Is(err, minfer.ErrClosed):
		return newError(http.StatusServiceUnavailable, overloaded, "the server is shutting down")
	}
	return newError(http.StatusInternalServerError, serverError, "%v", err)
}

func contextExceeded(tokens, context int) *apiError {
	return newError(http.StatusBadRequest, invalidRequest,
		"the prompt has %d tokens, and the context of %d tokens has to hold it and an answer", tokens, context).
		param("messages").code("context_length_exceeded")
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, e *apiError) {
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, e.Status, map[string]*apiError{"error": e})
}

// writeJSON answers with a JSON object. If that fails, the client is gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}
