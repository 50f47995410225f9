package toolcall

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quote is a JSON string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always has a JSON form
	}
	return string(b)
}

// call reads the JSON object of a call byte by byte, only as closely as it takes to find its
// name and its arguments and where it ends. Whether it is valid JSON is seen at its end.
type call struct {
	raw      []byte
	brackets []byte // those that are open
	inString bool
	escaped  bool
	start    int    // of the string under way, in raw
	last     string // the last string that ended at the top level, quoted
	key      string // of the member under way at the top level
	value    int    // where its value begins in raw, or 0 if it has not
	alone    bool   // the object is not the call, but its arguments

	name  string
	named bool
	// The arguments are raw[args:argsEnd], with argsEnd 0 as long as they go on.
	args, argsEnd int
	hasArgs       bool
	text          string // the arguments, if they are not to be found in raw
	checked       bool   // by finish
	given         int    // bytes of the arguments given out
	begun         bool
}

// maxDepth bounds the brackets that may be open.
const maxDepth = 200

// feed takes a byte and reports whether the object is complete.
func (c *call) feed(b byte) (done bool, err error) {
	at := len(c.raw)
	c.raw = append(c.raw, b)
	if c.inString {
		c.feedString(b)
		return false, nil
	}
	if b == ' ' || b == '\t' || b == '\r' || b == '\n' {
		return false, nil
	}
	if len(c.brackets) == 1 && c.key != "" && c.value == 0 && b != ',' && b != '}' {
		c.beginValue(at, b)
	}
	switch b {
	case '"':
		c.inString, c.start = true, at
	case '{', '[':
		if len(c.brackets) == maxDepth {
			return false, fmt.Errorf("%w: more than %d brackets are open", ErrSyntax, maxDepth)
		}
		if c.alone && at == 0 {
			c.hasArgs = true
		}
		c.brackets = append(c.brackets, b+2) // the closing one of both is two further on
	case '}', ']':
		if len(c.brackets) == 0 || c.brackets[len(c.brackets)-1] != b {
			return false, fmt.Errorf("%w: a bracket %q that does not belong there", ErrSyntax, b)
		}
		c.brackets = c.brackets[:len(c.brackets)-1]
		if len(c.brackets) == 0 {
			c.endMember(at)
			if c.alone {
				c.argsEnd = at + 1
			}
			return true, nil
		}
	case ',':
		if len(c.brackets) == 1 {
			c.endMember(at)
		}
	case ':':
		if len(c.brackets) == 1 && c.key == "" {
			c.key, c.value = c.last, 0
		}
	}
	return false, nil
}

func (c *call) feedString(b byte) {
	switch {
	case c.escaped:
		c.escaped = false
	case b == '\\':
		c.escaped = true
	case b == '"':
		c.inString = false
		if len(c.brackets) == 1 {
			c.last = string(c.raw[c.start:])
			if c.key == `"name"` && !c.alone && json.Unmarshal([]byte(c.last), &c.name) == nil {
				c.named = true
			}
		}
	}
}

func (c *call) beginValue(at int, b byte) {
	c.value = at
	if c.isArguments() && b == '{' {
		c.args, c.hasArgs = at, true
	}
}

func (c *call) isArguments() bool {
	return !c.alone && !c.hasArgs && (c.key == `"arguments"` || c.key == `"parameters"`)
}

// endMember ends a member of the object before raw[at].
func (c *call) endMember(at int) {
	if c.hasArgs && c.argsEnd == 0 && c.value == c.args && c.value > 0 {
		c.argsEnd = at
	}
	if c.isArguments() && c.value > 0 {
		c.text = otherArguments(strings.TrimSpace(string(c.raw[c.value:at])))
		c.hasArgs = c.text != ""
		c.key, c.value = "", 0
		return
	}
	c.key, c.value = "", 0
}

// otherArguments are arguments that are no object as they stand: an object in a string, or null.
func otherArguments(value string) string {
	if value == "null" {
		return "{}"
	}
	var inside string
	if json.Unmarshal([]byte(value), &inside) != nil {
		return value // not an object, which finish finds
	}
	if strings.TrimSpace(inside) == "" {
		return "{}"
	}
	return inside
}

// ready reports whether the call can be announced. Arguments that are no object as they stand
// are checked first.
func (c *call) ready() bool { return c.named && c.hasArgs && (c.text == "" || c.checked) }

// delta returns what is new of the arguments.
func (c *call) delta() string {
	all := c.text
	if all == "" {
		end := c.argsEnd
		if end == 0 {
			end = len(c.raw)
		}
		all = string(c.raw[c.args:end])
		if c.argsEnd == 0 {
			all = strings.TrimRight(all, spaces) // the space may be behind the last bracket
		} else {
			all = strings.TrimSpace(all)
		}
	}
	if len(all) <= c.given {
		return ""
	}
	d := all[c.given:]
	c.given = len(all)
	return d
}

// finish checks the object at its end.
func (c *call) finish() error {
	if !json.Valid(c.raw) {
		return fmt.Errorf("%w: it is no valid JSON", ErrSyntax)
	}
	if !c.named {
		c.unwrap()
	}
	if !c.named {
		return fmt.Errorf("%w: it has no name", ErrSyntax)
	}
	if !c.hasArgs {
		c.text, c.hasArgs = "{}", true
	}
	if c.text != "" {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(c.text), &object) != nil || object == nil {
			return fmt.Errorf("%w: %.40s", ErrArguments, c.text)
		}
	}
	c.checked = true
	return nil
}

// unwrap finds a call that is a member of the object, as in {"function": {"name": ...}}.
func (c *call) unwrap() {
	type inner struct {
		Name       *string         `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var outer struct {
		Function *inner `json:"function"`
		ToolCall *inner `json:"tool_call"`
	}
	if json.Unmarshal(c.raw, &outer) != nil {
		return
	}
	in := outer.Function
	if in == nil {
		in = outer.ToolCall
	}
	if in == nil || in.Name == nil {
		return
	}
	arguments := in.Arguments
	if arguments == nil {
		arguments = in.Parameters
	}
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	c.name, c.named, c.hasArgs = *in.Name, true, true
	c.text = string(arguments)
	if arguments[0] != '{' {
		c.text = otherArguments(c.text)
	}
}
