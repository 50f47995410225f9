package kernels

import (
	"errors"
	"testing"
)

func TestTiers(t *testing.T) {
	tiers := Tiers()
	if tiers[0] != Generic {
		t.Fatalf("the first of %v is not the definition", tiers)
	}
	t.Logf("this machine: %v", tiers)
	for _, tier := range tiers {
		t.Setenv(TierVariable, tier.String())
		if got, err := DefaultTier(); got != tier || err != nil {
			t.Errorf("%s: %v, %v", tier, got, err)
		}
	}
	best := tiers[len(tiers)-1]
	t.Setenv(TierVariable, "")
	if got, err := DefaultTier(); got != best || err != nil {
		t.Errorf("no limit: %v, %v", got, err)
	}
	for _, name := range tierNames {
		tier, err := ParseTier(name)
		if err != nil || tier.String() != name {
			t.Errorf("%s: %v, %v", name, tier, err)
		}
		t.Setenv(TierVariable, name)
		if got, err := DefaultTier(); !tier.Available() && (got != best || !errors.Is(err, ErrTier)) {
			t.Errorf("%s is lacking: %v, %v", name, got, err)
		}
	}
	t.Setenv(TierVariable, "sse9")
	if got, err := DefaultTier(); got != best || !errors.Is(err, ErrTier) {
		t.Errorf("unknown name: %v, %v", got, err)
	}
}
