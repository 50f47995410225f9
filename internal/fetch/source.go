package fetch

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// remote is a file on a server.
type remote struct {
	address string
	name    string // base name here
	size    int64  // -1 if the server has not said yet
	digest  digest
	refused func(*http.Response) *Error // explains a status, or nil
}

// resolve finds the files of a model and what their servers say of them.
func (f *fetcher) resolve(ctx context.Context, r *reference) ([]remote, error) {
	switch r.kind {
	case hubKind:
		return f.resolveHub(ctx, r)
	case ollamaKind:
		return f.resolveOllama(ctx, r)
	}
	return resolveWeb(r), nil
}

// resolveWeb asks nothing: servers that sign addresses for GET refuse HEAD.
func resolveWeb(r *reference) []remote {
	var list []remote
	for _, name := range r.files() {
		u := *r.address
		if r.parts > 1 {
			u = *r.address.ResolveReference(&url.URL{Path: name})
			u.RawQuery = r.address.RawQuery
		}
		list = append(list, remote{address: u.String(), name: name, size: -1, digest: sha256Of(r.digest)})
	}
	return list
}

// resolveHub asks for the headers of each file. All are of the commit that the first is
// of, however the branch moves meanwhile.
func (f *fetcher) resolveHub(ctx context.Context, r *reference) ([]remote, error) {
	revision := r.revision
	var list []remote
	for _, name := range r.files() {
		file := remote{name: name, refused: func(resp *http.Response) *Error { return f.refusedByHub(resp, r) }}
		err := f.retry(ctx, func(ctx context.Context) error {
			file.address = f.hubAddress(r, revision, name)
			commit, err := f.headHub(ctx, &file)
			if err == nil && isHex(commit, sha1.Size) {
				revision = commit
				file.address = f.hubAddress(r, revision, name)
			}
			return err
		})
		if err != nil {
			return nil, named(err, "", name)
		}
		list = append(list, file)
	}
	return list, nil
}

func (f *fetcher) hubAddress(r *reference, revision, name string) string {
	segments := strings.Split(r.folder+name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return fmt.Sprintf("%s/%s/%s/resolve/%s/%s", f.hub, r.owner, r.repo, url.PathEscape(revision), strings.Join(segments, "/"))
}

// headHub learns a file's size, digest and commit from the answer before its content, or
// the redirect to it.
func (f *fetcher) headHub(ctx context.Context, file *remote) (commit string, err error) {
	const linkedDigest, linkedSize, commitHeader = "X-Linked-Etag", "X-Linked-Size", "X-Repo-Commit"
	note := func(resp *http.Response) {
		if c := resp.Header.Get(commitHeader); c != "" {
			commit = c
		}
	}
	resp, err := f.request(ctx, http.MethodHead, file.address, nil, func(resp *http.Response) bool {
		note(resp)
		return resp.Header.Get(linkedDigest) != ""
	})
	if err != nil {
		return "", err
	}
	defer drain(resp)
	note(resp)
	if !isRedirect(resp.StatusCode) && resp.StatusCode != http.StatusOK {
		return "", file.refused(resp)
	}
	if linked := bareTag(resp.Header.Get(linkedDigest)); isHex(linked, sha256.Size) {
		size, err := strconv.ParseInt(resp.Header.Get(linkedSize), 10, 64)
		if err != nil || size < 0 {
			return "", &Error{Kind: ErrAnswer, Detail: fmt.Sprintf("%s gives %q as the file's size", resp.Request.URL.Host, resp.Header.Get(linkedSize))}
		}
		file.size, file.digest = size, sha256Of(linked)
		return commit, nil
	}
	if tag := bareTag(resp.Header.Get("ETag")); isHex(tag, sha1.Size) && commit != "" && resp.StatusCode == http.StatusOK && resp.ContentLength >= 0 {
		file.size, file.digest = resp.ContentLength, digest{git: true, hex: tag}
		return commit, nil
	}
	return "", &Error{Kind: ErrAnswer, Detail: resp.Request.URL.Host + " gives no digest of the file, as Hugging Face does; check HF_ENDPOINT, or fetch the file by its https address"}
}

// bareTag is an entity tag without quotes and the mark of weak ones.
func bareTag(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }

// refusedByHub explains a refusal of Hugging Face. Without a token it answers 401 for
// repositories that do not exist, too, so as not to tell which private ones do.
func (f *fetcher) refusedByHub(resp *http.Response, r *reference) *Error {
	e := refusal(resp, r.folder+r.file)
	page := fmt.Sprintf("%s/%s/%s", redact(f.hub.String()), r.owner, r.repo)
	code := resp.Header.Get("X-Error-Code")
	switch {
	case e.Kind == ErrUnauthorized && f.Token == "" && code == "GatedRepo":
		e.Detail = fmt.Sprintf("the model is gated: accept its terms at %s and set HF_TOKEN to an access token of yours", page)
	case e.Kind == ErrUnauthorized && f.Token == "":
		e.Detail = fmt.Sprintf("%s does not exist, or is gated or private; check the name, or set HF_TOKEN to an access token that may read it", page)
	case e.Kind == ErrUnauthorized:
		e.Detail = fmt.Sprintf("the access token in HF_TOKEN may not read %s; accept the model's terms there, or check the token", page)
	case e.Kind == ErrNotFound && code == "RepoNotFound":
		e.Detail = "there is no repository " + page
	case e.Kind == ErrNotFound && code == "RevisionNotFound":
		e.Detail = fmt.Sprintf("%s has no revision %q", page, r.revision)
	case e.Kind == ErrNotFound:
		e.Detail = fmt.Sprintf("%s has no file %s at revision %s; its files are listed at %s/tree/%s", page, r.folder+r.file, r.revision, page, r.revision)
	}
	return e
}

// Media types of the layers of an Ollama model.
const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	modelLayer   = "application/vnd.ollama.image.model"
	adapterLayer = "application/vnd.ollama.image.adapter"
	maxManifest  = 1 << 20
)

// manifest is the part of a manifest that matters here.
type manifest struct {
	Layers []layer `json:"layers"`
}

type layer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// resolveOllama reads the manifest of a model, whose weights are one of its layers.
func (f *fetcher) resolveOllama(ctx context.Context, r *reference) ([]remote, error) {
	folder := fmt.Sprintf("%s/v2/%s/%s", f.registry, r.namespace, r.name)
	var m manifest
	err := f.retry(ctx, func(ctx context.Context) (err error) {
		m, err = f.readManifest(ctx, folder+"/manifests/"+r.tag, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	weights, err := m.weights()
	if err != nil {
		return nil, err
	}
	hex := strings.TrimPrefix(weights.Digest, "sha256:")
	return []remote{{address: folder + "/blobs/sha256:" + hex, name: r.file, size: weights.Size, digest: sha256Of(hex)}}, nil
}

func (f *fetcher) readManifest(ctx context.Context, address string, r *reference) (manifest, error) {
	var m manifest
	resp, err := f.request(ctx, http.MethodGet, address, http.Header{"Accept": {manifestType}}, nil)
	if err != nil {
		return m, err
	}
	defer drain(resp)
	if resp.StatusCode != http.StatusOK {
		e := refusal(resp, r.ollamaName())
		if e.Kind == ErrNotFound {
			e.Detail = fmt.Sprintf("the registry has no model %q with a tag %q", strings.TrimSuffix(r.ollamaName(), ":"+r.tag), r.tag)
		}
		return m, e
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err != nil {
		return m, connection(ctx, resp.Request.URL, err)
	}
	if len(data) > maxManifest {
		return m, &Error{Kind: ErrAnswer, Detail: fmt.Sprintf("the model's manifest has more than %d bytes", maxManifest)}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, &Error{Kind: ErrAnswer, Detail: "the model's manifest cannot be read", Err: err}
	}
	return m, nil
}

// weights finds the one layer that holds the whole model.
func (m manifest) weights() (layer, error) {
	var found []layer
	for _, l := range m.Layers {
		switch l.MediaType {
		case modelLayer:
			found = append(found, l)
		case adapterLayer:
			return l, &Error{Kind: ErrAnswer, Detail: "the model is an adapter on top of another, which cannot be used alone"}
		}
	}
	if len(found) != 1 {
		return layer{}, &Error{Kind: ErrAnswer, Detail: fmt.Sprintf("the model has %d layers with GGUF weights, want 1", len(found))}
	}
	l := found[0]
	hex, ok := strings.CutPrefix(l.Digest, "sha256:")
	if !ok || !isHex(hex, sha256.Size) || l.Size < 0 {
		return l, &Error{Kind: ErrAnswer, Detail: fmt.Sprintf("the model's manifest gives %q as a digest and %d as a size", l.Digest, l.Size)}
	}
	return l, nil
}
