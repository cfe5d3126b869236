package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

// Bounds of signed requests.
const (
	maxSkew    = 300 * time.Second
	firstPiece = 4 << 10 // bytes of the first buffer for a body
)

// Request ids are deleted 10 minutes after their expiry or later, so that a replica with a late clock still
// detects a repeated id. Every 100th claim of a request id starts a sweep, which deletes up to 200 ids.
const (
	claimsPerSweep = 100
	idsPerSweep    = 200
	sweepDelay     = 10 * time.Minute
)

// signature is the parsed signature of a request and the request data that it covers.
type signature struct {
	version   signatureVersion
	tenant    metering.TenantID
	timestamp string
	at        time.Time
	requestID string
	mac       []byte

	// Method and target of the received request. Only v2 covers them.
	method string
	target string // path with query
}

type signatureVersion string

const (
	v1 signatureVersion = "v1"
	v2 signatureVersion = "v2"
)

var timestampPattern = regexp.MustCompile(`^[0-9]{1,12}$`)

// readSignature parses the signature headers of a request. Its errors can name the broken rule, because these
// rules are public.
func readSignature(r *http.Request, credential string, now time.Time) (s signature, err error) {
	header := r.Header
	version, encoded, _ := strings.Cut(credential, ":")
	s.version, s.method, s.target = signatureVersion(version), r.Method, r.URL.RequestURI()
	s.mac, err = base64.StdEncoding.Strict().DecodeString(encoded)
	known := s.version == v1 || s.version == v2
	if err != nil || !known || len(s.mac) != sha256.Size || len(encoded) != base64.StdEncoding.EncodedLen(sha256.Size) {
		return s, unauthorizedf("Authorization must be HMAC v2: or HMAC v1: followed by the HMAC-SHA256 in base64")
	}
	s.timestamp = header.Get("X-Timestamp")
	if !timestampPattern.MatchString(s.timestamp) {
		return s, unauthorizedf("X-Timestamp must be Unix time in seconds")
	}
	seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
	if err != nil {
		return s, unauthorizedf("X-Timestamp must be Unix time in seconds")
	}
	if s.at = time.Unix(seconds, 0); now.Sub(s.at).Abs() > maxSkew {
		return s, unauthorizedf("X-Timestamp must be within %.0f seconds of the server's clock", maxSkew.Seconds())
	}
	if s.requestID = header.Get("X-Request-Id"); !validRequestID(s.requestID) {
		return s, unauthorizedf("X-Request-Id must be 1 to %d letters, digits, dots, underscores and hyphens", maxRequestID)
	}
	if s.tenant, known = metering.ParseTenantID(header.Get("X-Tenant-Id")); !known {
		return s, unauthorizedf("X-Tenant-Id must be a tenant's id, such as ten_42")
	}
	return s, nil
}

func unauthorizedf(format string, args ...any) error {
	return metering.Errorf(metering.CodeUnauthorized, format, args...)
}

// matches reports whether the signature was made with the secret over this body.
func (s signature) matches(secret []byte, body pieces) bool {
	mac := hmac.New(sha256.New, secret)
	if s.version == v2 {
		mac.Write(s.linesOver(body))
		return hmac.Equal(mac.Sum(nil), s.mac)
	}
	mac.Write([]byte(s.timestamp + ":" + s.requestID + ":"))
	for _, piece := range body {
		mac.Write(piece)
	}
	return hmac.Equal(mac.Sum(nil), s.mac)
}

// linesOver returns the text that a v2 signature covers. The text of v2 begins with a letter and the text of v1
// with a digit, so a signature of one version is never valid for the other version.
func (s signature) linesOver(body pieces) []byte {
	digest := sha256.New()
	for _, piece := range body {
		digest.Write(piece)
	}
	return fmt.Appendf(nil, "v2\n%s\n%s\n%s\n%s\n%s\n%x", s.timestamp, s.requestID, s.tenant, s.method, s.target, digest.Sum(nil))
}

var (
	// errSignature does not reveal the cause. An unknown tenant, a tenant without secrets, a wrong secret and
	// an altered request return the same error.
	errSignature = metering.Errorf(metering.CodeUnauthorized, "the signature does not match this request and a valid secret of this tenant")
	errOnlyV2    = metering.Errorf(metering.CodeUnauthorized, "this secret accepts only signatures of version v2")
	errBodyless  = metering.Errorf(metering.CodeForbidden, "a request without a body that is signed in v1 can only read: sign it in v2, which covers the method and the path")
	errRepeated  = metering.Errorf(metering.CodeUnauthorized, "this X-Request-Id was already used: send a new one with every attempt")
)

// bySignature authenticates a signed request. It reads the body, because the signature covers the body, and makes
// the body readable again.
func (s *server) bySignature(ctx context.Context, credential string) (Principal, error) {
	x, now := exchangeOf(ctx), s.Now()
	signed, err := readSignature(x.request, credential, now)
	if err != nil {
		return Principal{}, err
	}
	body, err := s.readAhead(x)
	if err != nil {
		return Principal{}, err
	}
	// The lookup begins after the body is read, because a secret can be revoked while the body arrives.
	signers, err := s.signers.find(ctx, signed.tenant)
	if err != nil {
		return Principal{}, err
	}
	secret, err := s.signerOf(ctx, signed, body, signers)
	if err != nil {
		return Principal{}, err
	}
	who := principalBy(signers.Tenant, secret)
	if signed.version == v1 && body.empty() && !isReadMethod(signed.method) && !signers.Tenant.V1BodylessWrites {
		return who, errBodyless
	}
	claimed, err := s.Authentication.RequestIDs.Claim(pg.For(ctx, signed.tenant), signed.tenant, signed.requestID, signed.at.Add(maxSkew), now)
	if err != nil {
		return Principal{}, err
	}
	if !claimed {
		return Principal{}, errRepeated
	}
	if s.claims.Add(1)%claimsPerSweep == 0 {
		s.sweeps.board(ctx, struct{}{}) // the request does not wait for the sweep
	}
	s.noteUse(ctx, secret, now)
	return who, nil
}

// sweepRequestIDs deletes up to idsPerSweep expired request ids. It runs in the background.
func (s *server) sweepRequestIDs(ctx context.Context, _ []struct{}) (map[struct{}]struct{}, error) {
	_, err := s.Authentication.RequestIDs.Sweep(ctx, s.Now().Add(-sweepDelay), idsPerSweep)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot delete expired request ids", "error", err)
	}
	return nil, err
}

// signerOf returns the live secret that made the signature. It tries every secret, so that the duration does not
// depend on which secret matches. The audit log records the use of a revoked or expired secret.
func (s *server) signerOf(ctx context.Context, signed signature, body pieces, signers access.Signers) (signer metering.Credential, err error) {
	err = errSignature
	if len(signers.Secrets) == 0 {
		signed.matches(nil, body) // so that the duration does not reveal an unknown tenant
	}
	for _, secret := range signers.Secrets {
		opened, openErr := s.Keyring.Open(secret.TenantID, seal.SigningSecret, secret.Sealed)
		if openErr != nil {
			return signer, metering.Errorf(metering.CodeUnavailable, "credentials cannot be checked now; try again").Because(openErr)
		}
		switch {
		case !signed.matches(opened, body):
		case !secret.Live(s.Now()):
			s.auditDead(ctx, secret)
		case signed.version == v1 && secret.Signatures == metering.SignaturesV2:
			err = errOnlyV2
		default:
			signer, err = secret, nil
		}
	}
	return signer, err
}

// readAhead returns the body of a request and makes the body readable again. It discards the body of a GET or
// HEAD, because the signature of a GET or HEAD does not cover a body.
func (s *server) readAhead(x *exchange) (pieces, error) {
	r := x.request
	if isReadMethod(r.Method) {
		r.Body = http.NoBody
		return nil, nil
	}
	body, err := readPieces(r.Body)
	if err != nil {
		if problem := bodyProblem(err); problem != nil {
			return nil, problem
		}
		return nil, metering.Errorf(codeMalformed, "the body ended too early").Because(err)
	}
	r.Body = io.NopCloser(body.reader())
	return body, nil
}

// isReadMethod reports whether the method is GET or HEAD, which change nothing.
func isReadMethod(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// pieces is a request body as a list of buffers. The buffers grow with the bytes that have arrived, not with
// Content-Length.
type pieces [][]byte

// readPieces reads a whole body into buffers.
func readPieces(from io.Reader) (read pieces, err error) {
	piece := make([]byte, 0, firstPiece)
	for {
		n, err := from.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		if errors.Is(err, io.EOF) {
			return append(read, piece), nil
		}
		if err != nil {
			return nil, err
		}
		if len(piece) == cap(piece) {
			read, piece = append(read, piece), make([]byte, 0, min(2*cap(piece), mostAhead))
		}
	}
}

func (p pieces) empty() bool { return len(p) == 0 || len(p[0]) == 0 }

func (p pieces) reader() io.Reader {
	readers := make([]io.Reader, len(p))
	for i, piece := range p {
		readers[i] = bytes.NewReader(piece)
	}
	return io.MultiReader(readers...)
}
