package main

import (
	"encoding/json"

	"github.com/minfer/minfer"
)

// responseFormat is the form that an answer has to have.
type responseFormat struct {
	path   string // of the field, for errors
	json   bool   // any JSON object
	schema json.RawMessage
}

func (f responseFormat) free() bool { return !f.json && f.schema == nil }

func readFormat(v value) responseFormat {
	f := responseFormat{path: v.path}
	if !v.exists() {
		return f
	}
	o := v.object()
	switch kind := o.get("type"); kind.text() {
	case "text":
	case "json_object":
		f.json = true
		if schema := o.get("schema"); schema.exists() { // as other servers take it
			schema.need('{', "a JSON schema, which is an object")
			f.json, f.schema, f.path = false, schema.raw, schema.path
		}
	case "json_schema":
		schema := o.get("json_schema").object().get("schema")
		schema.need('{', "a JSON schema, which is an object")
		f.schema, f.path = schema.raw, schema.path
	default:
		kind.fail("it is none of text, json_object, json_schema")
	}
	return f
}

// constraint returns the options that keep an answer to its form. A schema that cannot be held
// to is an error when the answer begins.
func constraint(f responseFormat) []minfer.GenerateOption {
	switch {
	case f.json:
		return []minfer.GenerateOption{minfer.WithJSON()}
	case f.schema != nil:
		return []minfer.GenerateOption{minfer.WithJSONSchema(f.schema)}
	}
	return nil
}
