package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// environment reads the settings and collects their errors, so that the process reports all errors at once.
// The errors never contain the value of a setting.
type environment struct {
	get      func(string) string
	problems []string
}

// problemf adds an error about a setting, unless it was already added.
func (e *environment) problemf(name, format string, args ...any) {
	if problem := name + " " + fmt.Sprintf(format, args...); !slices.Contains(e.problems, problem) {
		e.problems = append(e.problems, problem)
	}
}

// err returns all errors as one, or nil.
func (e *environment) err() error {
	if len(e.problems) == 0 {
		return nil
	}
	return errors.New("the environment is not valid:\n  " + strings.Join(e.problems, "\n  "))
}

// limitMemory sets the soft memory limit of the process, unless GOMEMLIMIT is set.
func (e *environment) limitMemory(bytes int64) {
	if e.get("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}

func (e *environment) databaseURL() string {
	text := e.get("DATABASE_URL")
	if text == "" {
		e.problemf("DATABASE_URL", "is required, such as postgres://odometer@127.0.0.1:5432/odometer")
		return ""
	}
	if u, err := url.Parse(text); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		e.problemf("DATABASE_URL", "must be a postgres:// URL")
	}
	return text
}

// secret returns the secret from which the keys of the API and of the audit log are derived.
func (e *environment) secret() []byte {
	text := e.get("ODOMETER_SECRET")
	if text == "" {
		e.problemf("ODOMETER_SECRET", "is required: the secret of the running API and worker; for a new database, generate one with: head -c 32 /dev/urandom | base64")
		return nil
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(secret) < 32 {
		e.problemf("ODOMETER_SECRET", "must be at least 32 bytes in base64")
	}
	return secret
}

var prefixPattern = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

func (e *environment) keys() (keys api.Keys) {
	prefix := cmp.Or(e.get("API_KEY_PREFIX"), "svc")
	if !prefixPattern.MatchString(prefix) {
		e.problemf("API_KEY_PREFIX", "must be 1 to 16 lower-case letters a-z or digits")
	}
	keys, err := api.NewKeys(prefix, e.secret())
	if err != nil {
		e.problemf("ODOMETER_SECRET", "cannot be used: %v", err)
	}
	return keys
}

func (e *environment) passwords() (passwords api.Passwords) {
	passwords, err := api.NewPasswords(e.secret())
	if err != nil {
		e.problemf("ODOMETER_SECRET", "cannot be used: %v", err)
	}
	return passwords
}

func (e *environment) keyring() seal.Keyring {
	text := e.get("ODOMETER_ENCRYPTION_KEYS")
	if text == "" {
		e.problemf("ODOMETER_ENCRYPTION_KEYS", "is required, in the form ID:KEY, such as 2026:KEY where KEY is 32 random bytes in base64")
		return seal.Keyring{}
	}
	ring, err := seal.ParseKeyring(text)
	if err != nil {
		e.problemf("ODOMETER_ENCRYPTION_KEYS", "%v", err)
	}
	return ring
}

// address returns an address to listen on; absent is the default.
func (e *environment) address(name, absent string) string {
	text := cmp.Or(e.get(name), absent)
	if text == "" {
		return ""
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		e.problemf(name, "must be HOST:PORT or :PORT")
	}
	return text
}

// baseURL returns a URL to which paths are appended, without a trailing slash; absent is the default.
func (e *environment) baseURL(name, absent string) string {
	text := strings.TrimRight(cmp.Or(e.get(name), absent), "/")
	if text == "" {
		return ""
	}
	if u, err := url.Parse(text); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		e.problemf(name, "must be a URL that begins with http:// or https://")
	}
	return text
}

// stripe returns the URL that replaces Stripe's API, or "" for Stripe itself. A replacement is a fake of
// Stripe, and only for development.
func (e *environment) stripe() string {
	base := e.baseURL("STRIPE_API_BASE", "")
	if base != "" && !e.flag("ALLOW_LOOPBACK_WEBHOOKS") {
		e.problemf("STRIPE_API_BASE", "is for development only; unset it, or also set ALLOW_LOOPBACK_WEBHOOKS=true")
	}
	return base
}

// retention returns the time for which events are kept; 0: forever.
func (e *environment) retention() metering.Retention {
	text := e.get("EVENT_RETENTION")
	if text == "" {
		return 0
	}
	retention, err := metering.ParseRetention(text)
	if err != nil {
		e.problemf("EVENT_RETENTION", "%v", err)
	}
	return retention
}

// redis returns the client for rate limits that all replicas share, or nil if REDIS_URL is not set.
func (e *environment) redis() *redis.Client {
	text := e.get("REDIS_URL")
	if text == "" {
		return nil
	}
	shared, err := api.OpenRedis(text)
	if err != nil {
		e.problemf("REDIS_URL", "%v", err)
	}
	return shared
}

// networks parses a comma-separated list of networks in CIDR notation.
func (e *environment) networks(name string) (networks []netip.Prefix) {
	for item := range strings.SplitSeq(e.get(name), ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		network, err := netip.ParsePrefix(item)
		if err != nil {
			e.problemf(name, "must be networks such as 10.0.0.0/8,fd00::/8")
			return nil
		}
		networks = append(networks, network)
	}
	return networks
}

// count returns a positive number, or 0 if the variable is not set.
func (e *environment) count(name string) int {
	text := e.get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		e.problemf(name, "must be a whole number above 0")
	}
	return n
}

// workflowsURL returns the URL of a namespace's workflow list in the Temporal UI, or "" if no UI is
// configured.
func (e *environment) workflowsURL(namespace string) string {
	ui := e.baseURL("TEMPORAL_UI_URL", "")
	if ui == "" {
		return ""
	}
	return ui + "/namespaces/" + url.PathEscape(cmp.Or(namespace, client.DefaultNamespace)) + "/workflows"
}

// flag returns a setting that is true or false. It is false if the variable is not set.
func (e *environment) flag(name string) bool {
	text := e.get(name)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		e.problemf(name, "must be true or false")
	}
	return on
}

func (e *environment) logger() *slog.Logger {
	var level slog.Level
	if text := e.get("LOG_LEVEL"); text != "" {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			e.problemf("LOG_LEVEL", "must be debug, info, warn or error")
		}
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// temporal returns a client with the settings that Temporal's own tools use, and the namespace. The client
// connects at its first use, so that the API starts and ingests without Temporal. If registry is not nil, it
// receives the metrics of the SDK.
func (e *environment) temporal(logger *slog.Logger, registry *prometheus.Registry) (lazy client.Client, namespace string) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		e.problemf("TEMPORAL_…", "%v", err)
		return nil, ""
	}
	options.Logger = log.NewStructuredLogger(logger)
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(workflows.AskAgain))
	if registry != nil {
		if options.MetricsHandler, err = sdkMetrics(registry); err != nil {
			e.problemf("METRICS_ADDRESS", "%v", err)
			return nil, ""
		}
	}
	if lazy, err = client.NewLazyClient(options); err != nil {
		e.problemf("TEMPORAL_…", "%v", err)
	}
	return lazy, options.Namespace
}
