package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Limits on patience. Pauses double from firstPause; attempts that bring at least
// worthwhile bytes do not count.
const (
	maxRedirects = 10
	maxAttempts  = 5
	firstPause   = 500 * time.Millisecond
	maxPause     = time.Minute // also of what a server asks for
	worthwhile   = 1 << 20
)

// request sends a request and follows redirects until stop says that an answer is what is
// wanted, or there is none to follow. Secrets stay with the host that they are for.
func (f *fetcher) request(ctx context.Context, method, address string, header http.Header, stop func(*http.Response) bool) (*http.Response, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, &Error{Kind: ErrAnswer, Detail: "an address that cannot be read"}
	}
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
		if err != nil {
			return nil, &Error{Kind: ErrAnswer, Detail: "an address that cannot be asked: " + redact(at.String())}
		}
		for name, values := range header {
			req.Header[name] = values
		}
		// Compressed on the way, a file's ranges and size would not be the file's.
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("User-Agent", "minfer")
		if f.Token != "" && sameOrigin(at, f.hub) {
			req.Header.Set("Authorization", "Bearer "+f.Token)
		}
		resp, err := f.client.Do(req)
		if err != nil {
			return nil, connection(ctx, at, err)
		}
		location := resp.Header.Get("Location")
		if !isRedirect(resp.StatusCode) || stop != nil && stop(resp) {
			return resp, nil
		}
		resp.Body.Close()
		next, err := at.Parse(location)
		if err != nil || location == "" || next.Scheme != "https" && next.Scheme != "http" || next.Hostname() == "" {
			return nil, &Error{Kind: ErrRedirect, Detail: fmt.Sprintf("%s redirects to no address", redact(at.String()))}
		}
		if at.Scheme == "https" && next.Scheme == "http" {
			return nil, &Error{Kind: ErrRedirect, Detail: fmt.Sprintf("%s redirects from https to http, to %s", redact(at.String()), redact(next.String()))}
		}
		at = next
	}
	return nil, &Error{Kind: ErrRedirect, Detail: fmt.Sprintf("more than %d redirects from %s, the last to %s", maxRedirects, redact(address), redact(at.String()))}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

// connection is the error of a request that got no answer, or of an answer that broke off.
func connection(ctx context.Context, at *url.URL, err error) error {
	host := at.Host
	var addressed *url.Error
	if errors.As(err, &addressed) {
		err = addressed.Err // without the address, which may hold secrets
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errStalled):
		return &Error{Kind: ErrUnavailable, Detail: host, Err: errStalled, retry: true}
	case ctx.Err() != nil:
		return &Error{Err: ctx.Err()}
	}
	var (
		certificate *tls.CertificateVerificationError
		unknown     x509.UnknownAuthorityError
		wrongHost   x509.HostnameError
		invalid     x509.CertificateInvalidError
		noTLS       tls.RecordHeaderError
		dns         *net.DNSError
	)
	switch {
	case errors.As(err, &certificate), errors.As(err, &unknown), errors.As(err, &wrongHost), errors.As(err, &invalid):
		return &Error{Kind: ErrTLS, Detail: host + " shows a certificate that cannot be verified; check the clock, the proxy and the system's root certificates", Err: err}
	case errors.As(err, &noTLS), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return &Error{Kind: ErrTLS, Detail: host + " does not speak https there; check the address", Err: err}
	case errors.As(err, &dns) && dns.IsNotFound:
		return &Error{Kind: ErrUnavailable, Detail: "check the network and the address", Err: err}
	}
	return &Error{Kind: ErrUnavailable, Detail: host, Err: err, retry: true}
}

var errStalled = errors.New("nothing came for too long")

// refusal is the error of a status that is no success.
func refusal(resp *http.Response, what string) *Error {
	e := &Error{Status: resp.StatusCode, Detail: fmt.Sprintf("%s answers %d %s", resp.Request.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode))}
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		e.Kind = ErrUnauthorized
	case s == http.StatusNotFound || s == http.StatusGone:
		e.Kind = ErrNotFound
		e.Detail += " for " + what
	case s == http.StatusRequestTimeout || s == http.StatusTooManyRequests || s >= 500 && s != http.StatusNotImplemented:
		e.Kind, e.retry = ErrUnavailable, true
		e.after = retryAfter(resp.Header.Get("Retry-After"))
	default:
		e.Kind = ErrAnswer
	}
	return e
}

// retryAfter understands seconds and dates.
func retryAfter(v string) time.Duration {
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// patience decides how long to go on after failures.
type patience struct {
	failures int
	mark     int64 // bytes there were when failures was 0
}

// again returns nil after a pause if another attempt is worth it, or the error to give up with.
func (f *fetcher) again(ctx context.Context, p *patience, done int64, err error) error {
	var e *Error
	if !errors.As(err, &e) || !e.retry {
		return err
	}
	if done >= p.mark+worthwhile {
		p.failures, p.mark = 0, done
	}
	p.failures++
	if p.failures >= maxAttempts {
		e.Detail += fmt.Sprintf(", after %d attempts; fetch again later", p.failures)
		return e
	}
	if e.after > maxPause {
		e.Detail += fmt.Sprintf(", and asks to wait for %v", e.after.Round(time.Second))
		return e
	}
	pause := firstPause << (p.failures - 1)
	pause = max(e.after, pause/2+rand.N(pause/2+1)) // so that many clients do not come back at once
	if err := f.pause(ctx, pause); err != nil {
		return &Error{Detail: "stopped while waiting to try again", Err: err}
	}
	return nil
}

// retry calls a function, with some time for each call, until it succeeds or trying is not
// worth it.
func (f *fetcher) retry(ctx context.Context, try func(context.Context) error) error {
	var p patience
	for {
		limited, cancel := context.WithTimeoutCause(ctx, f.stall, errStalled)
		err := try(limited)
		cancel()
		if err == nil {
			return nil
		}
		if err := f.again(ctx, &p, 0, err); err != nil {
			return err
		}
	}
}

// drain ends with an answer, so that its connection can be used again if little is left.
func drain(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, 4096)
	resp.Body.Close()
}
