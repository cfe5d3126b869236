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

// Redact is the failure of a call to a tenant's URL with a text for the log:
// it names no URL, host or address and repeats nothing that the far end has
// said. Is and As find in it what they find in err.
func Redact(err error) error { return redacted{why(err), err} }

type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.cause }

func why(err error) string {
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
		return "the call was given up"
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "there is no such host"
	case errors.As(err, &lookup):
		return "the host's name could not be looked up"
	case errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &certificate):
		return "its certificate could not be verified"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak TLS"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended before the answer"
	}
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Sprintf("an answer that is none (%T)", err)
}
