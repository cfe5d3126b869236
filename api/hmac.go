package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Bounds of signed requests. Their bodies are read before anybody knows who
// sent them, so they share a part of the byte budget only.
const (
	maxSkew       = 300 * time.Second
	maxBody       = 1 << 20 // of a request without events
	maxUnverified = 16 << 20
)

// Expired request ids are forgotten a while later than they expire, so that a
// replica whose clock is behind still knows them.
const (
	claimsPerSweep = 100
	idsPerSweep    = 200
	sweepDelay     = 10 * time.Minute
)

// signature is what a signed request says about itself.
type signature struct {
	tenant    metering.TenantID
	timestamp string
	at        time.Time
	requestID string
	mac       []byte
}

var timestampPattern = regexp.MustCompile(`^[0-9]{1,12}$`)

// readSignature reads the headers of a signed request. What it says of them
// helps a developer and is known to every sender.
func readSignature(header http.Header, credential string, now time.Time) (s signature, err error) {
	encoded, v1 := strings.CutPrefix(credential, "v1:")
	s.mac, err = base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || !v1 || len(s.mac) != sha256.Size || len(encoded) != base64.StdEncoding.EncodedLen(sha256.Size) {
		return s, unauthorizedf("Authorization must be HMAC v1: and an HMAC-SHA256 in base64")
	}
	s.timestamp = header.Get("X-Timestamp")
	if !timestampPattern.MatchString(s.timestamp) {
		return s, unauthorizedf("X-Timestamp must be the time in Unix seconds")
	}
	seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
	if err != nil {
		return s, unauthorizedf("X-Timestamp must be the time in Unix seconds")
	}
	if s.at = time.Unix(seconds, 0); now.Sub(s.at).Abs() > maxSkew {
		return s, unauthorizedf("X-Timestamp must be within %.0f seconds of the server's clock", maxSkew.Seconds())
	}
	if s.requestID = header.Get("X-Request-Id"); !validRequestID(s.requestID) {
		return s, unauthorizedf("X-Request-Id must be 1 to %d letters, digits, dots, underscores and hyphens", maxRequestID)
	}
	var known bool
	if s.tenant, known = metering.ParseTenantID(header.Get("X-Tenant-Id")); !known {
		return s, unauthorizedf("X-Tenant-Id must be a tenant's id, such as ten_42")
	}
	return s, nil
}

func unauthorizedf(format string, args ...any) error {
	return metering.Errorf(metering.CodeUnauthorized, format, args...)
}

// by says whether the signature is that of a secret over this body.
func (s signature) by(secret, body []byte) bool {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(s.timestamp + ":" + s.requestID + ":"))
	mac.Write(body)
	return hmac.Equal(mac.Sum(nil), s.mac)
}

var (
	// Of an unknown tenant, one without secrets, a wrong secret and an altered
	// request alike: a stranger learns nothing about which it was.
	errSignature = metering.Errorf(metering.CodeUnauthorized, "the signature is not one by a live secret of this tenant over this request")
	errRepeated  = metering.Errorf(metering.CodeUnauthorized, "this X-Request-Id was used before: every attempt needs one of its own")
)

// bySignature finds out who signed a request. It reads the body and puts it
// back, with its room in the byte budget kept until the request is answered.
func (s *server) bySignature(ctx context.Context, credential string) (Principal, error) {
	x, now := exchangeOf(ctx), s.Now()
	signed, err := readSignature(x.request.Header, credential, now)
	if err != nil {
		return Principal{}, err
	}
	body, err := s.readAhead(x)
	if err != nil {
		return Principal{}, err
	}
	// The lookup begins after the body has come: secrets may be revoked meanwhile.
	signers, err := s.signers.find(ctx, signed.tenant)
	if err != nil {
		return Principal{}, err
	}
	secret, err := s.signerOf(signed, body, signers)
	if err != nil {
		return Principal{}, err
	}
	claimed, err := s.Store.RequestIDs.Claim(ctx, signed.tenant, signed.requestID, signed.at.Add(maxSkew), now)
	if err != nil {
		return Principal{}, err
	}
	if !claimed {
		return Principal{}, errRepeated
	}
	if s.claims.Add(1)%claimsPerSweep == 0 {
		s.sweeps.board(ctx, struct{}{}) // nobody waits for it
	}
	if used := secret.LastUsedAt; used == nil || now.Sub(*used) >= time.Minute {
		s.secretUses.board(ctx, db.SecretUse{Tenant: signed.tenant, Secret: secret.ID}) // nobody waits for it
	}
	return Principal{Tenant: signers.Tenant, Actor: metering.Actor(secret.ID.String()), Scope: secret.Scope}, nil
}

func (s *server) sweepRequestIDs(ctx context.Context, _ []struct{}) (map[struct{}]struct{}, error) {
	_, err := s.Store.RequestIDs.Sweep(ctx, s.Now().Add(-sweepDelay), idsPerSweep)
	if err != nil {
		s.Log.WarnContext(ctx, "expired request ids stay for now", "error", err)
	}
	return nil, err
}

// signerOf returns the live secret that made the signature. All are tried,
// whichever matches.
func (s *server) signerOf(signed signature, body []byte, signers db.Signers) (signer metering.HMACSecret, err error) {
	err = errSignature
	if len(signers.Secrets) == 0 {
		signed.by(nil, body) // an unknown tenant takes as long as another
	}
	for _, secret := range signers.Secrets {
		opened, openErr := s.Keyring.Open(secret.TenantID, db.SigningSecret, secret.Sealed)
		if openErr != nil {
			return signer, metering.Errorf(metering.CodeUnavailable, "credentials cannot be checked now; try again").Because(openErr)
		}
		if signed.by(opened, body) && secret.Live(s.Now()) {
			signer, err = secret, nil
		}
	}
	return signer, err
}

// readAhead returns the body of a request and leaves it to be read again. A
// GET has none: what came with it is not signed and therefore not read.
func (s *server) readAhead(x *exchange) ([]byte, error) {
	r := x.request
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		r.Body = http.NoBody
		return nil, nil
	}
	most := int64(maxBody)
	if strings.HasPrefix(r.URL.Path, eventsPath) {
		most = maxEventsBody
	}
	room, release, err := s.admit(r, most, 2) // the body stays while it is decoded
	if err != nil {
		return nil, err
	}
	x.release = release
	defer s.unverified.Add(-room)
	if s.unverified.Add(room) > maxUnverified {
		return nil, metering.Errorf(metering.CodeOverloaded, "too many signed requests are being read; try again")
	}
	connection := http.NewResponseController(x.writer)
	_ = connection.SetReadDeadline(time.Now().Add(bodyLimit)) // tests have no connection
	body, err := readBody(http.MaxBytesReader(x.writer, r.Body, most), r.ContentLength)
	_ = connection.SetReadDeadline(time.Time{})
	if err != nil {
		if problem := bodyProblem(err, most); problem != nil {
			return nil, problem
		}
		return nil, metering.Errorf(codeMalformed, "the body ended before it was complete").Because(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// readBody reads all, into as much memory as it takes where that is known.
func readBody(body io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(body)
	}
	read := make([]byte, length)
	_, err := io.ReadFull(body, read)
	return read, err
}

// admit makes room for so many copies of a body before any of it is read, and
// returns how large it may be.
func (s *server) admit(r *http.Request, most, copies int64) (room int64, release func(), err error) {
	room = r.ContentLength
	if room > most {
		return 0, nil, tooLarge(most)
	}
	if room < 0 {
		room = most
	}
	release, err = s.Writer.Admit(copies * room)
	return room, release, err
}

func tooLarge(most int64) error {
	return metering.Errorf(metering.CodeTooLarge, "the body must have at most %d bytes", most)
}

// bodyProblem says whether a body was too large or too slow.
func bodyProblem(err error, most int64) error {
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return tooLarge(most)
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return metering.Errorf(codeTimeout, "the body did not arrive within %s", bodyLimit)
	}
	return nil
}
