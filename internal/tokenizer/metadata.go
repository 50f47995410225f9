package tokenizer

import (
	"fmt"
	"math"
)

// Metadata is the part of a GGUF file that FromMetadata reads. *gguf.File has these methods.
type Metadata interface {
	Has(key string) bool
	String(key string) (string, error)
	Strings(key string) ([]string, error)
	Float32s(key string) ([]float32, error)
	Int32s(key string) ([]int32, error)
	Uint32(key string) (uint32, error)
	Bool(key string) (bool, error)
}

const prefix = "tokenizer.ggml."

// roleKeys are the metadata keys of the roles, by Role.
var roleKeys = [numRoles]string{
	RoleBOS:       prefix + "bos_token_id",
	RoleEOS:       prefix + "eos_token_id",
	RoleEOT:       prefix + "eot_token_id",
	RoleEOM:       prefix + "eom_token_id",
	RoleUNK:       prefix + "unknown_token_id",
	RoleSEP:       prefix + "seperator_token_id", // sic
	RolePAD:       prefix + "padding_token_id",
	RoleMask:      prefix + "mask_token_id",
	RoleFIMPrefix: prefix + "fim_pre_token_id",
	RoleFIMSuffix: prefix + "fim_suf_token_id",
	RoleFIMMiddle: prefix + "fim_mid_token_id",
	RoleFIMPad:    prefix + "fim_pad_token_id",
	RoleFIMRepo:   prefix + "fim_rep_token_id",
	RoleFIMSep:    prefix + "fim_sep_token_id",
}

// Keys that older files use for three of the roles.
var oldRoleKeys = map[Role]string{
	RoleFIMPrefix: prefix + "prefix_token_id",
	RoleFIMSuffix: prefix + "suffix_token_id",
	RoleFIMMiddle: prefix + "middle_token_id",
}

// FromMetadata builds the tokenizer that a GGUF file describes. Besides the errors of New
// it returns those of m for keys that are missing or have the wrong type.
func FromMetadata(m Metadata) (*Tokenizer, error) {
	c, err := ConfigFromMetadata(m)
	if err != nil {
		return nil, err
	}
	return New(c)
}

// ConfigFromMetadata reads what FromMetadata builds from, for callers that want to change
// a part of it first.
func ConfigFromMetadata(m Metadata) (Config, error) {
	var c Config
	var err error
	if c.Model, err = m.String(prefix + "model"); err != nil {
		return c, fmt.Errorf("tokenizer: %w", err)
	}
	// Judge the model before reading arrays that an unsupported one may not have.
	if _, ok := models[c.Model]; !ok {
		return c, &UnsupportedModelError{Model: c.Model, Known: KnownModels()}
	}
	if c.Tokens, err = m.Strings(prefix + "tokens"); err != nil {
		return c, fmt.Errorf("tokenizer: %w", err)
	}
	r := optional{m: m}
	c.Pre = readOptional(&r, prefix+"pre", m.String)
	c.Name = readOptional(&r, "general.name", m.String)
	c.Merges = readOptional(&r, prefix+"merges", m.Strings)
	if models[c.Model] == kindSPM {
		c.Scores = readOptional(&r, prefix+"scores", m.Float32s)
	}
	for _, typ := range readOptional(&r, prefix+"token_type", m.Int32s) {
		c.Types = append(c.Types, Type(typ))
	}
	c.AddBOS = readFlag(&r, prefix+"add_bos_token")
	c.AddEOS = readFlag(&r, prefix+"add_eos_token")
	c.AddSpacePrefix = readFlag(&r, prefix+"add_space_prefix")
	c.IDs = r.roles()
	return c, r.err
}

// optional reads keys that may be absent and keeps the first error of those that are
// present but wrong.
type optional struct {
	m   Metadata
	err error
}

func readOptional[T any](r *optional, key string, get func(string) (T, error)) T {
	var zero T
	if r.err != nil || !r.m.Has(key) {
		return zero
	}
	v, err := get(key)
	if err != nil {
		r.err = fmt.Errorf("tokenizer: %w", err)
		return zero
	}
	return v
}

func readFlag(r *optional, key string) *bool {
	if !r.m.Has(key) {
		return nil
	}
	v := readOptional(r, key, r.m.Bool)
	return &v
}

func (r *optional) roles() map[Role]int32 {
	ids := map[Role]int32{}
	for role := range numRoles {
		key := roleKeys[role]
		if !r.m.Has(key) {
			key = oldRoleKeys[role]
		}
		if key == "" || !r.m.Has(key) {
			continue
		}
		v := readOptional(r, key, r.m.Uint32)
		switch {
		case v == math.MaxUint32: // -1: writers use it for "none"
		case v > math.MaxInt32:
			if r.err == nil {
				r.err = &ConfigError{key, fmt.Sprintf("id %d is out of range", v)}
			}
		default:
			ids[role] = int32(v)
		}
	}
	return ids
}
