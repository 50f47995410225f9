package grammar

import "strings"

// typeSet is a set of JSON types.
type typeSet uint8

const (
	typeObject typeSet = 1 << iota
	typeArray
	typeString
	typeNumber
	typeInteger
	typeBoolean
	typeNull
	allTypes = typeObject | typeArray | typeString | typeNumber | typeInteger | typeBoolean | typeNull
)

// expand adds what the set implies: an integer is a number.
func (t typeSet) expand() typeSet {
	if t&typeNumber != 0 {
		t |= typeInteger
	}
	return t
}

var typeNames = map[string]typeSet{
	"object": typeObject, "array": typeArray, "string": typeString, "number": typeNumber,
	"integer": typeInteger, "boolean": typeBoolean, "null": typeNull,
}

// keyword says what is known about a key of a schema.
type keyword struct {
	kind  keywordKind
	types typeSet // that it restricts; values of other types are not affected
}

type keywordKind uint8

const (
	isUnknown     keywordKind = iota
	isSupported               // is looked at elsewhere
	isAnnotation              // does not say which values are valid
	isUnsupported             // is, unless it says nothing: see check
)

var keywords = map[string]keyword{
	"type": {kind: isSupported}, "enum": {kind: isSupported}, "const": {kind: isSupported},
	"anyOf": {kind: isSupported}, "oneOf": {kind: isSupported}, "allOf": {kind: isSupported},
	"$ref": {kind: isSupported}, "nullable": {kind: isSupported},

	"properties":           {isSupported, typeObject},
	"required":             {isSupported, typeObject},
	"additionalProperties": {isSupported, typeObject},
	"propertyNames":        {isSupported, typeObject},
	"minProperties":        {isSupported, typeObject},
	"maxProperties":        {isSupported, typeObject},

	"items":           {isSupported, typeArray},
	"prefixItems":     {isSupported, typeArray},
	"additionalItems": {isSupported, typeArray},
	"minItems":        {isSupported, typeArray},
	"maxItems":        {isSupported, typeArray},
	"uniqueItems":     {isSupported, typeArray},

	"minLength": {isSupported, typeString},
	"maxLength": {isSupported, typeString},
	"pattern":   {isSupported, typeString},
	"format":    {kind: isSupported}, // of strings or numbers, as its value says

	"minimum":          {isSupported, typeNumber},
	"maximum":          {isSupported, typeNumber},
	"exclusiveMinimum": {isSupported, typeNumber},
	"exclusiveMaximum": {isSupported, typeNumber},
	"multipleOf":       {isSupported, typeNumber},

	"title": {kind: isAnnotation}, "description": {kind: isAnnotation}, "default": {kind: isAnnotation},
	"examples": {kind: isAnnotation}, "example": {kind: isAnnotation}, "deprecated": {kind: isAnnotation},
	"readOnly": {kind: isAnnotation}, "writeOnly": {kind: isAnnotation}, "$comment": {kind: isAnnotation},
	"$schema": {kind: isAnnotation}, "$defs": {kind: isAnnotation}, "definitions": {kind: isAnnotation},
	"contentMediaType": {kind: isAnnotation}, "contentEncoding": {kind: isAnnotation},
	"contentSchema": {kind: isAnnotation}, "$vocabulary": {kind: isAnnotation},
	"discriminator": {kind: isAnnotation}, "externalDocs": {kind: isAnnotation}, "xml": {kind: isAnnotation},
	"$id": {kind: isAnnotation}, "id": {kind: isAnnotation}, "$anchor": {kind: isAnnotation},

	"not": {kind: isUnsupported}, "if": {kind: isUnsupported}, "then": {kind: isUnsupported},
	"else": {kind: isUnsupported}, "dependentSchemas": {kind: isUnsupported},
	"dependentRequired": {kind: isUnsupported}, "dependencies": {kind: isUnsupported},
	"patternProperties": {kind: isUnsupported}, "contains": {kind: isUnsupported},
	"minContains": {kind: isUnsupported}, "maxContains": {kind: isUnsupported},
	"unevaluatedProperties": {kind: isUnsupported}, "unevaluatedItems": {kind: isUnsupported},
	"$dynamicRef": {kind: isUnsupported}, "$recursiveRef": {kind: isUnsupported},
	"$dynamicAnchor": {kind: isUnsupported}, "$recursiveAnchor": {kind: isUnsupported},
}

// annotation reports whether a key does not say which values are valid.
func annotation(key string) bool {
	return keywords[key].kind == isAnnotation || strings.HasPrefix(key, "x-")
}

// keywordTypes is the types that a keyword of a schema restricts.
func keywordTypes(l located, key string) typeSet {
	if v := l.get(key); key == "format" && v.kind == 's' {
		if _, ok := numberFormats[v.text]; ok {
			return typeNumber
		}
		return typeString
	}
	return keywords[key].types
}

// check refuses a schema with keywords that cannot be held to.
func (s *schemaCompiler) check(l located) {
	for i, key := range l.keys {
		v := l.members[i]
		at := join(l.pointer, key)
		switch keywords[key].kind {
		case isUnknown:
			if !annotation(key) {
				s.unsupported(at, "the keyword %q is not known", key)
			}
		case isUnsupported:
			// Nothing undeclared is generated where these could apply.
			harmless := strings.HasPrefix(key, "unevaluated") && v.kind == 'b' ||
				key == "patternProperties" && v.kind == 'o' && len(v.keys) == 0
			if !harmless {
				s.unsupported(at, "the keyword %q is not supported", key)
			}
		}
		if (key == "$id" || key == "id") && l.pointer != "" && v.kind == 's' {
			s.unsupported(at, "a schema within another cannot have an identifier of its own")
		}
	}
}
