package tokenizer

import (
	"testing"
)

func TestSmoke(t *testing.T) {}
