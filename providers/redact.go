package providers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// Redact wraps the error of a call to a tenant's URL. The text of the result is safe to log: it contains no
// URL, host, address or text from the response. errors.Is and errors.As still find err.
func Redact(err error) error { return redacted{safeReason(err), err} }

// redacted is an error with a safe text.
type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.cause }

// safeReason returns the reason of a failed call, without data of the request or the response.
func safeReason(err error) string {
	var (
		lookup      *net.DNSError
		network     net.Error
		errno       syscall.Errno
		certificate *tls.CertificateVerificationError
	)
	switch {
	case Forbidden(err):
		return "the address is not on the public internet"
	case errors.Is(err, context.Canceled):
		return "the call was canceled"
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "the host does not exist"
	case errors.As(err, &lookup):
		return "the lookup of the host's name failed"
	case errors.As(err, &network) && network.Timeout():
		return "the call timed out"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &certificate):
		return "the host's certificate could not be verified"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the host does not use TLS"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection closed before the response"
	}
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Sprintf("the call failed (%T)", err)
}
