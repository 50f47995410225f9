package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on what users may write. maxName leaves room for the suffixes of records and
// unfinished files in the 255 bytes of a file name.
const (
	maxReference = 4096
	maxName      = 200
	maxDepth     = 8
	maxParts     = 1000
)

// forms is what an error says would be right.
const forms = "want hf:OWNER/REPO:FILE.gguf, ollama:NAME:TAG, https://HOST/FILE.gguf, a local file, or the name of a cached model"

// kind is where a reference leads to.
type kind int

const (
	localKind kind = iota // a path or a short name
	hubKind               // Hugging Face
	ollamaKind
	webKind
)

// reference is a parsed reference. Of a split model it names the first part.
type reference struct {
	kind kind
	text string // for localKind

	owner, repo, revision string // for hubKind
	folder                string // of the file in its repository, or ""
	file                  string // base name
	parts                 int    // files of the model

	namespace, name, tag string // for ollamaKind

	address *url.URL // for webKind, without the digest
	digest  string   // SHA-256 in hex, or ""
}

// parse understands a reference. What has no scheme may still be a path or a short name.
func parse(text string) (*reference, error) {
	fault := func(format string, args ...any) error {
		ref := strconv.Quote(text[:min(len(text), 200)])
		if strings.Contains(text, "://") {
			ref = strconv.Quote(redact(text))
		}
		return &Error{Ref: ref, Kind: ErrReference, Detail: fmt.Sprintf(format, args...)}
	}
	if text == "" {
		return nil, fault("it is empty; %s", forms)
	}
	if len(text) > maxReference {
		return nil, fault("it has %d bytes, at most %d are allowed", len(text), maxReference)
	}
	scheme, rest, _ := strings.Cut(text, ":")
	var r *reference
	var err error
	switch {
	case scheme == "hf":
		r, err = parseHub(rest)
	case scheme == "ollama":
		r, err = parseOllama(rest)
	case scheme == "https" || scheme == "http":
		r, err = parseWeb(text)
	case strings.HasPrefix(rest, "//"):
		err = fmt.Errorf("there is no downloading by %s; %s", scheme, forms)
	default:
		return &reference{kind: localKind, text: text}, nil
	}
	if err != nil {
		return nil, fault("%v", err)
	}
	return r, nil
}

// parseHub understands OWNER/REPO:FILE with a revision after the repository or the file.
func parseHub(s string) (*reference, error) {
	repo, file, found := strings.Cut(s, ":")
	if !found {
		return nil, fmt.Errorf("want hf:OWNER/REPO:FILE.gguf")
	}
	r := &reference{kind: hubKind, revision: "main"}
	repo, early, givenEarly := strings.Cut(repo, "@")
	late, givenLate := "", false
	if i := strings.LastIndex(file, ".gguf@"); i >= 0 {
		file, late, givenLate = file[:i+len(".gguf")], file[i+len(".gguf@"):], true
	}
	switch {
	case givenEarly && givenLate:
		return nil, fmt.Errorf("it has two revisions, %q and %q", early, late)
	case givenEarly:
		r.revision = early
	case givenLate:
		r.revision = late
	}
	var ok bool
	if r.owner, r.repo, ok = strings.Cut(repo, "/"); !ok {
		return nil, fmt.Errorf("%q is no repository, want OWNER/REPO", repo)
	}
	if err := plainName("owner", r.owner); err != nil {
		return nil, err
	}
	if err := plainName("repository", r.repo); err != nil {
		return nil, err
	}
	segments := strings.Split(r.revision, "/")
	if len(segments) > maxDepth || len(r.revision) > maxName {
		return nil, fmt.Errorf("revision %q is too long", r.revision)
	}
	for _, s := range segments {
		if err := plainName("revision", s); err != nil {
			return nil, err
		}
	}
	return r, r.setFile(file)
}

// parseOllama understands [NAMESPACE/]NAME[:TAG].
func parseOllama(s string) (*reference, error) {
	name, tag, tagged := strings.Cut(s, ":")
	if !tagged {
		tag = "latest"
	}
	r := &reference{kind: ollamaKind, namespace: "library", name: name, tag: tag, parts: 1, file: tag + ".gguf"}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		r.namespace, r.name = namespace, name
	}
	if err := plainName("namespace", r.namespace); err != nil {
		return nil, err
	}
	if err := plainName("name", r.name); err != nil {
		return nil, err
	}
	return r, plainName("tag", r.tag)
}

// parseWeb understands an address with a file name at its end and perhaps a digest.
func parseWeb(s string) (*reference, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("it is no address, want https://HOST/PATH/FILE.gguf")
	}
	r := &reference{kind: webKind, address: u}
	if u.Fragment != "" {
		digest, ok := strings.CutPrefix(u.Fragment, "sha256=")
		digest = strings.ToLower(digest)
		if !ok || !isHex(digest, sha256.Size) {
			return nil, fmt.Errorf("after # it has %q, want sha256= and 64 hexadecimal digits", u.Fragment)
		}
		r.digest = digest
	}
	u.Fragment, u.RawFragment = "", ""
	if u.Hostname() == "" {
		return nil, fmt.Errorf("it names no host, want https://HOST/PATH/FILE.gguf")
	}
	if u.Scheme == "http" && r.digest == "" && !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("over http anybody on the way could change the file; use https, or add #sha256= and the file's digest")
	}
	file := path.Base("/" + u.Path)
	if file == "/" {
		return nil, fmt.Errorf("it names no file; want https://HOST/PATH/NAME.gguf")
	}
	if err := r.setFile(file); err != nil {
		return nil, err
	}
	r.folder = ""
	if r.parts > 1 && r.digest != "" {
		return nil, fmt.Errorf("one digest cannot hold for the %d files of a split model", r.parts)
	}
	return r, nil
}

// setFile checks the path of a file in its repository, and finds the first part of a split model.
func (r *reference) setFile(file string) error {
	segments := strings.Split(file, "/")
	if len(segments) > maxDepth {
		return fmt.Errorf("file %q lies %d folders deep, at most %d are allowed", file, len(segments), maxDepth)
	}
	for _, s := range segments {
		if err := fileName(s); err != nil {
			return err
		}
	}
	if !strings.HasSuffix(file, ".gguf") {
		return fmt.Errorf("file %q is not named like a GGUF file, want NAME.gguf", file)
	}
	r.folder, r.file = path.Split(file)
	r.parts = 1
	if prefix, count, ok := splitName(r.file); ok {
		if count > maxParts {
			return fmt.Errorf("file %q is one of %d parts, at most %d are allowed", file, count, maxParts)
		}
		r.file, r.parts = partName(prefix, 1, count), count
	}
	return nil
}

// splitName takes apart NAME-00001-of-00002.gguf, the name of a part of a split model.
func splitName(file string) (prefix string, count int, ok bool) {
	const tail = "-00001-of-00002.gguf"
	if len(file) <= len(tail) {
		return "", 0, false
	}
	prefix = file[:len(file)-len(tail)]
	digits := file[len(prefix):]
	no, err := strconv.Atoi(digits[1:6])
	if err != nil {
		return "", 0, false
	}
	count, err = strconv.Atoi(digits[10:15])
	if err != nil || no < 1 || no > count || partName(prefix, no, count) != file {
		return "", 0, false
	}
	return prefix, count, true
}

func partName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no, count)
}

// files lists the base names of the model's files.
func (r *reference) files() []string {
	prefix, count, ok := splitName(r.file)
	if !ok || r.parts == 1 {
		return []string{r.file}
	}
	list := make([]string, count)
	for i := range list {
		list[i] = partName(prefix, i+1, count)
	}
	return list
}

// canonical is the same for all ways to write the reference, and may hold secrets.
func (r *reference) canonical() string {
	switch r.kind {
	case hubKind:
		s := "hf:" + r.owner + "/" + r.repo + ":" + r.folder + r.file
		if r.revision != "main" {
			s += "@" + r.revision
		}
		return s
	case ollamaKind:
		return "ollama:" + r.ollamaName()
	case webKind:
		return r.address.String()
	}
	return r.text
}

// String is the reference to show and to keep.
func (r *reference) String() string {
	if r.kind == webKind {
		return redact(r.address.String())
	}
	return r.canonical()
}

func (r *reference) ollamaName() string {
	s := r.name + ":" + r.tag
	if r.namespace != "library" {
		s = r.namespace + "/" + s
	}
	return s
}

// shortName is what a cached model is called by.
func (r *reference) shortName() string {
	if r.kind == ollamaKind {
		return r.ollamaName()
	}
	return shortFile(r.file)
}

// shortFile is a file's name without its suffix, and without a part's number.
func shortFile(file string) string {
	if prefix, _, ok := splitName(file); ok {
		return prefix
	}
	return strings.TrimSuffix(file, ".gguf")
}

// key identifies a reference in names of files.
func (r *reference) key() string {
	sum := sha256.Sum256([]byte(r.canonical()))
	return hex.EncodeToString(sum[:16])
}

// dir is the folder of the model's files below the cache, with slashes.
func (r *reference) dir() string {
	switch r.kind {
	case hubKind:
		// A revision's slashes are escaped, so that it is one folder and cannot be confused
		// with folders of the repository.
		return path.Join("hf", r.owner, r.repo, url.PathEscape(r.revision), r.folder)
	case ollamaKind:
		return path.Join("ollama", r.namespace, r.name)
	}
	return path.Join("url", r.key())
}

// plainName checks a name that can only have letters, digits and -._ in it.
func plainName(what, s string) error {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return fmt.Errorf("%s %q has a character besides letters, digits, - _ and .", what, s)
		}
	}
	if s == "" || s[0] == '.' || s[0] == '-' {
		return fmt.Errorf("%s %q has to begin with a letter, a digit or _", what, s)
	}
	return safeName(what, s)
}

// fileName checks a name of a file or folder, which can be in any script.
func fileName(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("file name %q is not valid UTF-8", s)
	}
	for _, c := range s {
		if unicode.IsControl(c) || strings.ContainsRune(`\:*?"<>|`, c) {
			return fmt.Errorf("file name %q has the character %q, which is not allowed", s, c)
		}
	}
	if s == "" || s[0] == '.' {
		return fmt.Errorf("file name %q is empty or begins with a dot", s)
	}
	return safeName("file name", s)
}

// safeName refuses names that some system does not take, or takes for something else.
func safeName(what, s string) error {
	if len(s) > maxName {
		return fmt.Errorf("%s %q... has %d bytes, at most %d are allowed", what, s[:20], len(s), maxName)
	}
	if last := s[len(s)-1]; last == '.' || last == ' ' {
		return fmt.Errorf("%s %q ends with a dot or a space", what, s)
	}
	stem, _, _ := strings.Cut(strings.ToLower(s), ".")
	stem = strings.TrimRight(stem, " ")
	device := stem == "con" || stem == "prn" || stem == "aux" || stem == "nul" || stem == "conin$" || stem == "conout$"
	if rest, ok := strings.CutPrefix(stem, "com"); ok {
		device = device || isPort(rest)
	}
	if rest, ok := strings.CutPrefix(stem, "lpt"); ok {
		device = device || isPort(rest)
	}
	if device {
		return fmt.Errorf("%s %q is the name of a device on Windows", what, s)
	}
	return nil
}

func isPort(s string) bool {
	return len(s) == 1 && '0' <= s[0] && s[0] <= '9' || s == "¹" || s == "²" || s == "³"
}

// redact takes secrets out of an address: the user's password, and the query, which holds
// signatures and tokens.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	u.User = nil
	u.RawQuery, u.ForceQuery = "", false
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

func isHex(s string, bytes int) bool {
	return len(s) == 2*bytes && strings.Trim(s, "0123456789abcdef") == ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
