package quant

import "testing"

func TestLookupKnowsItsOwn(t *testing.T) {
	for _, f := range Formats() {
		if g, err := Lookup(f.Name); err != nil || g != f {
			t.Errorf("Lookup(%q) = %v, %v", f.Name, g, err)
		}
	}
}
