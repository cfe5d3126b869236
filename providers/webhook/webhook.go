// Package webhook is the billing provider for any HTTPS endpoint. It delivers signed messages (Standard
// Webhooks 1.0) and interprets the responses. The caller decides when and how often to send. The package
// stores nothing.
package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Timeout is the maximum duration of one delivery, from name resolution to the end of the response. The
// lease of a message must be longer.
const Timeout = 20 * time.Second

const (
	maxAnswerBytes = 64 << 10 // read so that the connection can be reused, then discarded
	secretPrefix   = "whsec_"
)

// Client delivers messages to tenants' URLs.
type Client struct{ http *http.Client }

// New returns a client that calls only URLs that guard allows.
func New(guard providers.Guard) *Client { return &Client{guard.Client(Timeout)} }

// Answer is the response of a receiver, without its body.
type Answer struct {
	Status     int           // 0: no response
	RetryAfter time.Duration // 0: the receiver did not ask to wait
}

// AboutMessage reports whether a refusal concerns only this message, so that the receiver may accept
// others. A refusal of the address or the secret concerns all messages.
func (a Answer) AboutMessage() bool {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusProxyAuthRequired, http.StatusGone:
		return false
	}
	return a.Status >= 400 && a.Status < 500
}

// CheckSecret returns an error that names the rule of Standard Webhooks that a signing secret breaks.
func CheckSecret(location, secret string) error {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return metering.Invalid(location, "must be %q followed by 24 to 64 random bytes in base64", secretPrefix)
	}
	return nil
}

// NewSecret returns a random signing secret.
func NewSecret() string {
	random := make([]byte, 32)
	rand.Read(random) // never returns an error; ends the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(random)
}

// ping sends a "ping" signed with secret to url. It returns nil if the response is 2xx.
func ping(ctx context.Context, client Deliverer, url, secret string, now time.Time) error {
	body, err := json.Marshal(metering.MessageOf[Tried]{Type: Ping, Timestamp: metering.Instant(now)})
	if err != nil {
		return fmt.Errorf("make ping: %w", err)
	}
	_, err = client.Deliver(ctx, url, []string{secret}, uuid.NewString(), now, body)
	return err
}

// Deliver sends one message, signed with each of the secrets. There are two secrets during a rotation.
// The receiver treats repeats with the same id and body as one message. The error is CodeProviderDown if
// a later attempt may succeed, with the wait in Answer if the receiver stated one. It is CodeProviderRefuse
// if the tenant must act first.
func (c *Client) Deliver(ctx context.Context, url string, secrets []string, id string, now time.Time, body []byte) (Answer, error) {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return Answer{}, errors.New("sign message: the secret is not base64") // the cause may contain the secret
		}
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return Answer{}, fmt.Errorf("sign message: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, metering.Errorf(metering.CodeProviderRefuse, "the webhook's URL cannot be called; save the provider with a valid url")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Odometer")
	request.Header.Set(standardwebhooks.HeaderWebhookID, id)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	response, err := c.http.Do(request)
	if err != nil {
		return Answer{}, unanswered(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswerBytes))
	return judge(response, now)
}

// unanswered returns the coded error of a call without a response.
func unanswered(err error) error {
	err = providers.Redact(err)
	if providers.Forbidden(err) {
		return metering.Errorf(metering.CodeProviderRefuse,
			"the webhook's host resolves to an address that is not on the public internet; use a public one").Because(err)
	}
	return metering.Errorf(metering.CodeProviderDown, "the webhook did not answer").Because(err)
}

// judge maps a response to its Answer and error.
func judge(response *http.Response, now time.Time) (Answer, error) {
	status := response.StatusCode
	answer := Answer{Status: status, RetryAfter: providers.RetryAfter(response.Header.Get("Retry-After"), now)}
	switch {
	case status >= 200 && status < 300:
		return answer, nil
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status == http.StatusConflict ||
		status == http.StatusTooEarly || status >= 500:
		return answer, metering.Errorf(metering.CodeProviderDown, "the webhook answered %d", status)
	case status >= 300 && status < 400:
		return answer, metering.Errorf(metering.CodeProviderRefuse,
			"the webhook answered %d, a redirect, which Odometer does not follow; save the URL of the target", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return answer, metering.Errorf(metering.CodeProviderRefuse,
			"the webhook answered %d; check that it verifies signatures with the saved secret", status)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return answer, metering.Errorf(metering.CodeProviderRefuse,
			"the webhook answered %d; check that the URL accepts POST requests", status)
	case status == http.StatusGone:
		return answer, metering.Errorf(metering.CodeProviderRefuse,
			"the webhook answered 410 Gone; save another URL")
	default:
		return answer, metering.Errorf(metering.CodeProviderRefuse,
			"the webhook refused the message with status %d; find the reason in its log, correct it, and sync again", status)
	}
}
