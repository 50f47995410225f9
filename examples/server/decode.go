package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxNesting bounds how deep the brackets of a request may be nested.
const maxNesting = 100

// readBody reads the body of a request, which has to be a JSON object in UTF-8.
func (s *server) readBody(w http.ResponseWriter, r *http.Request) (value, error) {
	rc := http.NewResponseController(w)
	// A client that sends its body slowly does not hold a connection for ever. Not all
	// writers can do this; those of a real connection can.
	_ = rc.SetReadDeadline(time.Now().Add(s.settings.patience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.settings.maxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return value{}, newError(http.StatusRequestEntityTooLarge, invalidRequest, "the request has more than %d bytes", s.settings.maxBody)
	}
	if err != nil {
		return value{}, newError(http.StatusBadRequest, invalidRequest, "the request could not be read: %v", err)
	}
	return parseBody(body)
}

// parseBody checks the text of a request and returns the object that it is.
func parseBody(body []byte) (value, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return value{}, newError(http.StatusBadRequest, invalidRequest, "the request is empty, want a JSON object")
	}
	if !utf8.Valid(body) {
		return value{}, newError(http.StatusBadRequest, invalidRequest, "the request is not valid UTF-8")
	}
	if err := checkNesting(body); err != nil {
		return value{}, err
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		at := ""
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = fmt.Sprintf(" at byte %d", syntax.Offset)
		}
		return value{}, newError(http.StatusBadRequest, invalidRequest, "the request is not valid JSON: %v%s", err, at)
	}
	v := value{raw: raw, err: new(error)}
	if !v.is('{') {
		return value{}, newError(http.StatusBadRequest, invalidRequest, "the request is %s, want a JSON object", v.kind())
	}
	return v, nil
}

// checkNesting keeps the recursion of JSON decoders within bounds.
func checkNesting(body []byte) error {
	depth, inString, escaped := 0, false, false
	for _, b := range body {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = b == '\\', b != '"'
		case b == '"':
			inString = true
		case b == '{' || b == '[':
			if depth++; depth > maxNesting {
				return newError(http.StatusBadRequest, invalidRequest, "the request is nested more than %d deep", maxNesting)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}

// value is a part of a request that is read with the rules of one of its methods. A rule that
// is broken is noted in err, which all parts of the request share, unless there is an error
// there already: what is read afterwards is not used.
type value struct {
	raw  json.RawMessage // nil if absent
	path string
	err  *error
}

func (v value) fail(format string, args ...any) {
	if *v.err == nil {
		*v.err = badField(v.path, format, args...)
	}
}

// exists reports whether the field is there. Clients send null for fields that they leave out.
func (v value) exists() bool { return v.raw != nil && !v.is('n') }

func (v value) is(first byte) bool {
	t := bytes.TrimLeft(v.raw, " \t\r\n")
	return len(t) > 0 && t[0] == first
}

// kind is what the value is, in words.
func (v value) kind() string {
	for first, name := range map[byte]string{'{': "an object", '[': "an array", '"': "a string", 't': "true", 'f': "false", 'n': "null"} {
		if v.is(first) {
			return name
		}
	}
	if v.raw == nil {
		return "missing"
	}
	return "a number"
}

// need notes an error unless the value begins as one of its kind does.
func (v value) need(first byte, want string) bool {
	if !v.is(first) {
		v.fail("it is %s, want %s", v.kind(), want)
		return false
	}
	return true
}

// object returns the members of an object.
func (v value) object() object {
	o := object{value: v}
	if v.need('{', "an object") {
		// What was checked as a whole decodes in its parts.
		_ = json.Unmarshal(v.raw, &o.members)
	}
	return o
}

type object struct {
	value
	members map[string]json.RawMessage
}

// get returns a member, which need not exist.
func (o object) get(name string) value {
	path := name
	if o.path != "" {
		path = o.path + "." + name
	}
	return value{raw: o.members[name], path: path, err: o.err}
}

// names returns the names of the members in order.
func (o object) names() []string {
	var names []string
	for name := range o.members {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// list returns the elements of an array.
func (v value) list() []value {
	if !v.need('[', "an array") {
		return nil
	}
	var raw []json.RawMessage
	_ = json.Unmarshal(v.raw, &raw)
	values := make([]value, len(raw))
	for i := range raw {
		values[i] = value{raw: raw[i], path: fmt.Sprintf("%s[%d]", v.path, i), err: v.err}
	}
	return values
}

func (v value) text() string {
	var s string
	if v.need('"', "a string") {
		_ = json.Unmarshal(v.raw, &s)
	}
	return s
}

// flag returns a boolean, or false if there is none.
func (v value) flag() bool {
	if !v.exists() || v.is('f') {
		return false
	}
	return v.need('t', "true or false")
}

// integer returns a whole number, or what is given for none.
func (v value) integer(low, high, none int64) int64 {
	if !v.exists() {
		return none
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(v.raw)), 10, 64)
	switch {
	case v.kind() != "a number":
		v.fail("it is %s, want a whole number", v.kind())
	case errors.Is(err, strconv.ErrRange), err == nil && (n < low || n > high):
		v.fail("it is %s, want %d to %d", short(v.raw), low, high)
	case err != nil:
		v.fail("it is %s, want a whole number", short(v.raw))
	}
	return n
}

// number returns a number, or what is given for none.
func (v value) number(low, high, none float64) float64 {
	if !v.exists() {
		return none
	}
	x, err := strconv.ParseFloat(string(bytes.TrimSpace(v.raw)), 64)
	switch {
	case v.kind() != "a number":
		v.fail("it is %s, want a number", v.kind())
	case err != nil || math.IsNaN(x) || x < low || x > high:
		v.fail("it is %s, want %v to %v", short(v.raw), low, high)
	}
	return x
}

// refuse notes that a field cannot be honoured, if it is there.
func (v value) refuse(format string, args ...any) {
	if v.exists() {
		v.fail("not supported: "+format, args...)
	}
}

// short is the beginning of something that the client sent.
func short(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "..."
	}
	return string(raw)
}
