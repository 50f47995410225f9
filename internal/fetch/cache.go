package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A record lies beside the first file of each model.
const (
	recordSuffix  = ".json"
	recordVersion = 1
	maxRecord     = 1 << 20
)

// record is what the cache knows of a model.
type record struct {
	Version int
	Key     string // of the reference
	Name    string
	Source  string
	Files   []recordFile
	Time    time.Time
}

type recordFile struct {
	Name   string
	Size   int64
	Digest string
}

// Model is a model in the cache.
type Model struct {
	Name   string    // short name
	Path   string    // of the first file
	Size   int64     // bytes of all files
	Source string    // reference it came by, without secrets
	Time   time.Time // of its download

	record record
}

// Cached lists the models in the cache, by name and source. A cache that does not exist yet
// has none.
func Cached(c Config) ([]Model, error) {
	cache, err := cacheDir(c)
	if err != nil {
		return nil, err
	}
	var models []Model
	for _, top := range []string{"hf", "ollama", "url"} {
		err := filepath.WalkDir(filepath.Join(cache, top), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return storage(err)
			}
			if !d.IsDir() && strings.HasSuffix(path, ".gguf"+recordSuffix) {
				if m, ok := readModel(strings.TrimSuffix(path, recordSuffix)); ok {
					models = append(models, m)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(models, func(a, b Model) int {
		if order := strings.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return strings.Compare(a.Source, b.Source)
	})
	return models, nil
}

// find looks a reference up.
func (f *fetcher) find(r *reference) (Model, bool) {
	m, ok := readModel(filepath.Join(f.cache, filepath.FromSlash(r.dir()), r.file))
	// The key differs where a file system does not tell upper case from lower.
	if !ok || m.record.Key != r.key() {
		return Model{}, false
	}
	if r.digest != "" && m.record.Files[0].Digest != sha256Of(r.digest).String() {
		return Model{}, false
	}
	return m, true
}

// readModel reads the record of a model and holds its files against it. What does not fit
// is not in the cache, for whatever reason.
func readModel(path string) (Model, bool) {
	rec, err := readRecord(path + recordSuffix)
	if err != nil || rec.Version != recordVersion || len(rec.Files) == 0 || rec.Files[0].Name != filepath.Base(path) {
		return Model{}, false
	}
	m := Model{Name: rec.Name, Path: path, Source: rec.Source, Time: rec.Time, record: rec}
	for _, file := range rec.Files {
		if fileName(file.Name) != nil {
			return Model{}, false
		}
		info, err := os.Stat(filepath.Join(filepath.Dir(path), file.Name))
		if err != nil || !info.Mode().IsRegular() || info.Size() != file.Size {
			return Model{}, false
		}
		m.Size += file.Size
	}
	return m, true
}

func readRecord(path string) (record, error) {
	var r record
	return r, readJSON(path, &r)
}

func (r record) write(path string) error { return writeJSON(path, r) }

// readJSON reads a small file.
func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("%s has more than %d bytes", path, maxRecord)
	}
	return json.Unmarshal(data, v)
}

// writeJSON replaces a file as a whole or not at all.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// isCalled reports whether text is one of the model's short names: NAME:TAG, where the
// latest is also called NAME, or a file with or without its suffix.
func (m Model) isCalled(text string) bool {
	return text == m.Name || text+":latest" == m.Name ||
		!strings.HasPrefix(m.Source, "ollama:") && (text == filepath.Base(m.Path) || text+".gguf" == filepath.Base(m.Path))
}

// isCurrent reports whether the server still has what is in the cache, as far as it tells.
func (m Model) isCurrent(remotes []remote) bool {
	if len(remotes) != len(m.record.Files) {
		return false
	}
	for i, r := range remotes {
		file := m.record.Files[i]
		if r.name != file.Name || r.digest.hex == "" || r.digest.String() != file.Digest {
			return false
		}
	}
	return true
}
