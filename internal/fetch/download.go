package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/minfer/minfer/gguf"
)

// bufferSize is how much is read before it is written and told of.
const bufferSize = 256 << 10

// magic is how a GGUF file begins.
const magic = "GGUF"

// download is one file on its way.
type download struct {
	*fetcher
	remote
	index, files int
	path         string // of the unfinished file

	file    partFile
	offset  int64 // bytes that are there
	hash    hash.Hash
	resumed bool // some of them are from an earlier call
	state   state
}

// state lies beside an unfinished file and says what it is the beginning of.
type state struct {
	Address   string // without secrets
	Size      int64
	Digest    string
	Validator string // strong ETag or date of the file
}

const stateSuffix = ".json"

// run downloads a file until it is complete and right. What is there of it stays if that
// fails, unless it is wrong.
func (d *download) run(ctx context.Context) (err error) {
	// A call that was ended while it moved files may have left the whole one.
	whole := strings.TrimSuffix(d.path, ".part")
	if err := os.Rename(whole, d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storage(err)
	}
	if d.file, err = d.open(d.path); err != nil {
		return storage(err)
	}
	defer func() {
		if e := d.file.Close(); e != nil && err == nil {
			err = storage(e)
		}
		if err != nil && (d.offset == 0 || !d.resumable()) {
			d.remove()
		}
	}()
	if err := d.resume(ctx); err != nil {
		return err
	}
	d.tell()
	return d.complete(ctx)
}

// complete makes attempts until the file is complete and right.
func (d *download) complete(ctx context.Context) error {
	p := patience{mark: d.offset}
	for {
		err := d.attempt(ctx)
		if err == nil {
			err = d.verify()
			if err == nil {
				return d.finish()
			}
			// The beginning of the file may be to blame, if it is from an earlier call.
			if d.resumed {
				if err := d.restart(); err != nil {
					return err
				}
				continue
			}
			if failed := d.restart(); failed != nil {
				return errors.Join(err, failed)
			}
			return err
		}
		if err := d.again(ctx, &p, d.offset, err); err != nil {
			return d.interrupted(err)
		}
	}
}

// resume takes up what an earlier call left, if it is known to belong to this file.
func (d *download) resume(ctx context.Context) error {
	d.state = state{}
	known := readJSON(d.path+stateSuffix, &d.state) == nil
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return storage(err)
	}
	same := known && d.state.Digest == d.wanted() && d.resumable() &&
		(d.digest.hex != "" || d.state.Address == redact(d.address)) &&
		(d.size < 0 || d.state.Size == d.size) && (d.state.Size < 0 || size <= d.state.Size)
	if !same || size == 0 {
		return d.restart()
	}
	if d.size < 0 {
		d.size = d.state.Size
	}
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return storage(err)
	}
	d.hash = d.digest.hash(d.size)
	n, err := io.Copy(d.hash, &contextReader{ctx: ctx, r: io.LimitReader(d.file, size)})
	if ctx.Err() != nil {
		d.offset = size // it stays
		return &Error{Err: ctx.Err()}
	}
	if err != nil {
		return storage(err)
	}
	d.offset, d.resumed = n, n > 0
	return nil
}

// wanted is the digest to compare states by, empty where none is known.
func (d *download) wanted() string {
	if d.digest.hex == "" {
		return ""
	}
	return d.digest.String()
}

// resumable reports whether an unfinished file can be told from the beginning of another.
func (d *download) resumable() bool { return d.digest.hex != "" || d.state.Validator != "" }

// restart begins anew with an empty file.
func (d *download) restart() error {
	err := d.file.Truncate(0)
	if err == nil {
		_, err = d.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return storage(err)
	}
	if d.digest.hex == "" {
		d.size = -1 // it was the earlier file's
	}
	d.offset, d.resumed = 0, false
	d.hash = d.digest.hash(d.size)
	return nil
}

// attempt asks for what is missing and reads it. It returns nil when the file is complete.
func (d *download) attempt(ctx context.Context) error {
	if d.offset == d.size && (d.digest.hex != "" || !d.resumed) {
		return nil
	}
	if d.offset > 0 && !d.resumable() {
		if err := d.restart(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(d.stall, func() { cancel(errStalled) })
	defer watch.Stop()
	header := make(http.Header)
	if d.offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.offset))
		// With a digest, the content decides: storage servers tag the same content differently.
		if d.digest.hex == "" {
			header.Set("If-Range", d.state.Validator)
		}
	}
	resp, err := d.request(ctx, http.MethodGet, d.address, header, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	whole, err := d.judge(resp)
	if whole || err != nil {
		return err
	}
	body := &stallReader{r: resp.Body, reset: func() { watch.Reset(d.stall) }}
	return d.copy(ctx, body, resp)
}

// judge decides from its header what an answer's body is: the rest of the file, all of it,
// or nothing to be read, because all is there already.
func (d *download) judge(resp *http.Response) (whole bool, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		if d.offset > 0 {
			if err := d.restart(); err != nil {
				return false, err
			}
		}
		return false, d.begin(resp)
	case http.StatusPartialContent:
		return false, d.continues(resp)
	case http.StatusRequestedRangeNotSatisfiable:
		if d.offset == 0 {
			break
		}
		if d.digest.hex == "" && resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.offset) {
			d.size, d.resumed = d.offset, false
			return true, nil
		}
		return false, d.mismatch("the server has nothing after byte %d", d.offset)
	}
	if d.refused != nil && sameOrigin(resp.Request.URL, d.hub) {
		return false, d.refused(resp)
	}
	return false, refusal(resp, redact(d.address))
}

// begin notes what comes, before its first byte.
func (d *download) begin(resp *http.Response) error {
	if d.size >= 0 && resp.ContentLength >= 0 && resp.ContentLength != d.size {
		return &Error{Kind: ErrSize, Detail: fmt.Sprintf("%s sends %d bytes, want %d", resp.Request.URL.Host, resp.ContentLength, d.size)}
	}
	if d.size < 0 && resp.ContentLength >= 0 {
		d.size = resp.ContentLength
	}
	d.state = state{Address: redact(d.address), Size: d.size, Digest: d.wanted(), Validator: validator(resp.Header)}
	if err := writeJSON(d.path+stateSuffix, d.state); err != nil {
		return storage(err)
	}
	d.tell()
	return nil
}

// continues checks that an answer goes on where the file ends.
func (d *download) continues(resp *http.Response) error {
	got := resp.Header.Get("Content-Range")
	rest, ok := strings.CutPrefix(got, fmt.Sprintf("bytes %d-", d.offset))
	_, total, slash := strings.Cut(rest, "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if total == "*" && d.size >= 0 {
		size, err = d.size, nil
	}
	if d.offset == 0 || !ok || !slash || err != nil || size <= d.offset || d.size >= 0 && size != d.size {
		return d.mismatch("%s sends the range %q, want all from byte %d", resp.Request.URL.Host, got, d.offset)
	}
	if tag := validator(resp.Header); d.digest.hex == "" && tag != "" && tag != d.state.Validator {
		return d.mismatch("the file on %s changed", resp.Request.URL.Host)
	}
	if resp.ContentLength >= 0 && resp.ContentLength != size-d.offset {
		return d.mismatch("%s sends %d bytes, want %d", resp.Request.URL.Host, resp.ContentLength, size-d.offset)
	}
	d.size = size
	return nil
}

// mismatch begins anew after an answer that does not fit what is there.
func (d *download) mismatch(format string, args ...any) error {
	if err := d.restart(); err != nil {
		return err
	}
	return &Error{Kind: ErrAnswer, Detail: fmt.Sprintf(format, args...), retry: true}
}

// validator is what tells a version of a file from others, byte for byte: a strong tag or,
// if there is none, a date.
func validator(h http.Header) string {
	tag := h.Get("ETag")
	if strings.HasPrefix(tag, `"`) {
		return tag
	}
	return h.Get("Last-Modified")
}

// copy writes a body to the file. However it ends, offset is what the file holds.
func (d *download) copy(ctx context.Context, body io.Reader, resp *http.Response) error {
	buffer := make([]byte, bufferSize)
	for {
		n, readErr := fill(body, buffer)
		if d.offset == 0 {
			if err := looksLikeModel(buffer[:n], readErr, d.address); err != nil {
				return err
			}
		}
		if d.size >= 0 && int64(n) > d.size-d.offset {
			err := &Error{Kind: ErrSize, Detail: fmt.Sprintf("%s sends more than the %d bytes it spoke of", resp.Request.URL.Host, d.size)}
			if failed := d.restart(); failed != nil {
				return errors.Join(err, failed)
			}
			return err
		}
		if err := d.write(buffer[:n]); err != nil {
			return err
		}
		d.tell()
		switch {
		case readErr == io.EOF && d.size >= 0 && d.offset < d.size:
			return &Error{Kind: ErrUnavailable, Detail: fmt.Sprintf("%s ended after %d of %d bytes", resp.Request.URL.Host, d.offset, d.size), retry: true}
		case readErr == io.EOF:
			d.size = d.offset
			return nil
		case readErr != nil:
			return connection(ctx, resp.Request.URL, readErr)
		}
	}
}

func (d *download) write(b []byte) error {
	n, err := d.file.Write(b)
	d.hash.Write(b[:n])
	d.offset += int64(n)
	if err != nil {
		return storage(err)
	}
	return nil
}

// fill reads until the buffer is full or there is an error, which may come with bytes.
func fill(r io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var m int
		m, err = r.Read(buffer[n:])
		n += m
	}
	return n, err
}

// looksLikeModel looks at the beginning of a file, so that a web page is found out before
// it is stored and a wrong file before all of it is downloaded.
func looksLikeModel(start []byte, readErr error, address string) error {
	if len(start) < len(magic) && readErr != nil && readErr != io.EOF || bytes.HasPrefix(start, []byte(magic)) {
		return nil
	}
	text := strings.ToLower(string(bytes.TrimSpace(start[:min(len(start), 512)])))
	detail := fmt.Sprintf("it begins with %q", start[:min(len(start), 16)])
	switch {
	case len(start) == 0:
		detail = "it is empty"
	case (strings.HasPrefix(text, "<!doctype html") || strings.HasPrefix(text, "<html")) && strings.Contains(address, "/blob/"):
		detail = "it is a web page about the file; the file itself is at the address with /resolve/ in place of /blob/"
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"):
		detail = "it is a web page, perhaps of a login or a proxy; check the address"
	case strings.HasPrefix(text, "version https://git-lfs"):
		detail = "it is a Git LFS pointer in place of the file; check the address"
	}
	return &Error{Kind: gguf.ErrNotGGUF, Detail: detail}
}

// verify holds the complete file against its digest.
func (d *download) verify() error {
	got := d.digest.of(d.hash)
	if d.digest.hex != "" && got != d.digest {
		return &Error{Kind: ErrDigest, Detail: fmt.Sprintf("%d bytes came with %s, want %s; the server's file or the way to it is damaged", d.offset, got, d.digest)}
	}
	d.digest = got
	return nil
}

// finish puts the file on the disk for good.
func (d *download) finish() error {
	if err := d.file.Sync(); err != nil {
		return storage(err)
	}
	return nil
}

// interrupted says how far a download came that may be resumed.
func (d *download) interrupted(err error) error {
	var e *Error
	if !errors.As(err, &e) || d.offset == 0 || !d.resumable() {
		return err
	}
	if e.Detail != "" {
		e.Detail += "; "
	}
	e.Detail += fmt.Sprintf("%d bytes are kept, fetch again to resume", d.offset)
	return err
}

func (d *download) remove() {
	os.Remove(d.path)
	os.Remove(d.path + stateSuffix)
}

// tell reports progress.
func (d *download) tell() {
	if d.Progress != nil {
		d.Progress(Progress{File: d.name, Index: d.index, Files: d.files, Done: d.offset, Total: d.size})
	}
}

// stallReader says that something came.
type stallReader struct {
	r     io.Reader
	reset func()
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.reset()
	}
	return n, err
}

// contextReader stops when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
