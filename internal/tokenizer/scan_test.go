package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func piecesOf(t testing.TB, pre, text string) []string {
	p, ok := preTokenizers[pre]
	if !ok {
		t.Fatalf("no pre-tokenizer %q", pre)
	}
	return appendScanned(nil, text, p.scanners)
}

// pieces.json holds what Python's regex module makes of random text with the original
// patterns; MINFER_PIECES names a larger file of the kind (testdata/pieces.py writes
// them).
func TestScannersMatchPatterns(t *testing.T) {
	path := os.Getenv("MINFER_PIECES")
	if path == "" {
		path = filepath.Join("testdata", "pieces.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vectors map[string][][]string
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 20 {
		t.Fatalf("%s holds only %d patterns", path, len(vectors))
	}
	for pre, rows := range vectors {
		t.Run(pre, func(t *testing.T) {
			bad := 0
			for _, want := range rows {
				got := piecesOf(t, pre, strings.Join(want, ""))
				if diff := cmp.Diff(want, got); diff != "" {
					if bad++; bad <= 3 {
						t.Errorf("%q\n got %q\nwant %q", strings.Join(want, ""), got, want)
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d texts differ", bad, len(rows))
			}
		})
	}
}
