package gguf

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/minfer/minfer/internal/testfiles"
)

// The sizes, put together from the fields of each block: scales, minimums,
// high bits and packed values.
func TestTypeSizes(t *testing.T) {
	const k = 256
	want := map[Type][2]int{
		TypeF32: {1, 4}, TypeF16: {1, 2}, TypeBF16: {1, 2}, TypeF64: {1, 8},
		TypeI8: {1, 1}, TypeI16: {1, 2}, TypeI32: {1, 4}, TypeI64: {1, 8},
		TypeQ4_0: {32, 2 + 16}, TypeQ4_1: {32, 2 + 2 + 16}, TypeQ5_0: {32, 2 + 4 + 16}, TypeQ5_1: {32, 2 + 2 + 4 + 16},
		TypeQ8_0: {32, 2 + 32}, TypeQ8_1: {32, 2 + 2 + 32},
		TypeQ2_K: {k, 2*2 + k/16 + k/4}, TypeQ3_K: {k, 2 + k/4 + k/8 + 12}, TypeQ4_K: {k, 2*2 + 12 + k/2},
		TypeQ5_K: {k, 2*2 + 12 + k/2 + k/8}, TypeQ6_K: {k, 2 + k/16 + 3*k/4}, TypeQ8_K: {k, 4 + k + k/16*2},
		TypeIQ2_XXS: {k, 2 + k/8*2}, TypeIQ2_XS: {k, 2 + k/8*2 + k/32}, TypeIQ2_S: {k, 2 + k/4 + k/16},
		TypeIQ3_XXS: {k, 2 + 3*(k/8)}, TypeIQ3_S: {k, 2 + 13*(k/32) + k/64}, TypeIQ1_S: {k, 2 + k/8 + k/16},
		TypeIQ1_M: {k, k/8 + k/16 + k/32}, TypeIQ4_NL: {32, 2 + 16}, TypeIQ4_XS: {k, 2 + 2 + k/64 + k/2},
		TypeTQ1_0: {k, 2 + k/64 + (k-4*k/64)/5}, TypeTQ2_0: {k, 2 + k/4},
		TypeMXFP4: {32, 1 + 16}, TypeNVFP4: {64, 4 + 32}, TypeQ1_0: {128, 2 + 16}, TypeQ2_0: {64, 2 + 16},
	}
	if len(Types()) != len(want) {
		t.Errorf("%d types are known, want %d", len(Types()), len(want))
	}
	for _, typ := range Types() {
		if got := [2]int{typ.BlockSize(), typ.BlockBytes()}; got != want[typ] {
			t.Errorf("%s: %v, want %v", typ, got, want[typ])
		}
		back, err := ParseType(strings.ToLower(typ.String()))
		if err != nil || back != typ {
			t.Errorf("%s parses as %s, %v", typ, back, err)
		}
	}
}

func TestTypesWithoutData(t *testing.T) {
	for _, typ := range []Type{4, 5, 31, 32, 33, 36, 37, 38} {
		if !typ.Removed() || typ.Known() || typ.BlockSize() != 0 || typ.BlockBytes() != 0 || strings.HasPrefix(typ.String(), "type") {
			t.Errorf("%d (%s) does not count as removed", uint32(typ), typ)
		}
	}
	for _, typ := range []Type{43, 1000, 1<<32 - 1} {
		if typ.Removed() || typ.Known() || typ.BlockSize() != 0 || typ.String() != fmt.Sprint("type ", uint32(typ)) {
			t.Errorf("%d (%s) does not count as unknown", uint32(typ), typ)
		}
	}
	for _, name := range []string{"", "Q4", "type 43"} {
		if _, err := ParseType(name); !errors.Is(err, ErrUnsupportedType) {
			t.Errorf("%q parses: %v", name, err)
		}
	}
	if got := ValueKind(77).String(); got != "kind 77" {
		t.Errorf("unknown kind is %q", got)
	}
}

// Numbers and names against ggml's own header, where the oracle has it.
func TestTypesAgainstHeader(t *testing.T) {
	text, err := os.ReadFile(testfiles.Oracle(t, "headers", "ggml", "include", "ggml.h"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^\s*(// )?GGML_TYPE_(\w+)\s*= (\d+),`).FindAllStringSubmatch(string(text), -1)
	if len(lines) < 40 {
		t.Fatalf("only %d types found in the header", len(lines))
	}
	for _, l := range lines {
		id, _ := strconv.Atoi(l[3])
		typ := Type(id)
		if l[2] == "COUNT" {
			if id != len(layouts) {
				t.Errorf("the header has %d types, this package %d", id, len(layouts))
			}
			continue
		}
		if typ.String() != l[2] || typ.Removed() != (l[1] != "") {
			t.Errorf("%d is %s (removed %v), the header says %s", id, typ, typ.Removed(), strings.TrimSpace(l[0]))
		}
	}
}
