// Command odometer contains the whole service: the API, the Temporal worker and the tools for operators. It
// is configured by environment variables only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const help = `odometer meters usage and syncs it to billing providers.

Commands:
  odometer api              serve the HTTP API
  odometer worker           run the Temporal worker
  odometer migrate          migrate the database schema to this version
  odometer temporal prepare register search attributes in the Temporal namespace and lengthen its retention
  odometer tenant create    create a tenant, its first admin key and its owner
  odometer restored         start a new ledger epoch after the database was restored from a backup
  odometer rotate-secrets   encrypt every stored secret with the first encryption key
  odometer audit verify     check that no entry of the audit logs was changed or removed
  odometer openapi          print the OpenAPI document
  odometer ready URL        exit with 0 if GET URL/readyz of an API or a worker returns 200
  odometer console          wait until it is stopped: keeps a container open to run these commands in
  odometer version          print the version, the commit and the Go version of this binary

Environment variables:
  DATABASE_URL              PostgreSQL URL of a TimescaleDB database; migrate needs the URL of the tables' owner
  API_ROLE                  database role of the API; migrate grants it the permissions that the API needs
  WORKER_ROLE               database role of the worker; migrate grants it the permissions that the worker needs
  LISTEN_ADDRESS            address on which the API listens; default 127.0.0.1:8080
  METRICS_ADDRESS           address of /metrics and of the worker's /readyz; default: neither is served
  ODOMETER_SECRET           at least 32 random bytes in base64; the API and the worker need the same value. API keys,
                            sessions, page tokens and the audit log are derived from it
  ODOMETER_ENCRYPTION_KEYS  ID:KEY,ID:KEY,… with 32 bytes in base64 as each KEY; the first key encrypts secrets, every
                            key decrypts them
  API_KEY_PREFIX            prefix of API keys; default svc
  REDIS_URL                 Redis in which all replicas count for the rate limits; default: each replica counts alone
  TRUSTED_PROXIES           networks such as 10.0.0.0/8,fd00::/8 of proxies whose X-Forwarded-For the API trusts
  BASE_URL                  URL at which clients reach the API; default for the API: http://LISTEN_ADDRESS. If the worker
                            has it, its workflow runs link to customers there
  ERROR_DOCS_BASE           URL under which the errors are documented; default BASE_URL/errors
  TEMPORAL_…                environment configuration of Temporal: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
  TEMPORAL_UI_URL           URL of the Temporal UI, to which the dashboard links
  ALLOW_LOOPBACK_WEBHOOKS   true allows webhooks on this machine; for development
  STRIPE_API_BASE           URL that replaces the URL of Stripe's API; for development
  CALLS_PER_MINUTE          requests without events that a tenant may send per minute; default 6000. One credential may
                            send half of them
  MAX_REQUESTS_PER_MINUTE   highest number of requests with events per minute that a tenant may choose; default 60000
  EVENT_RETENTION           time for which events are kept, such as 400d; default: for ever. The API and the worker need
                            the same value
  INGEST_GROUP_EVENTS       number of events of waiting requests that one transaction stores; default 5000
  INGEST_LANES              number of transactions of one tenant that are written at the same time, while as many more
                            are at COMMIT; default 2
  LOG_LEVEL                 debug, info, warn or error; default info
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, help)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "odometer:", err)
		os.Exit(1)
	}
}

// run executes one command line.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out io.Writer) error {
	env := &environment{get: getenv}
	switch {
	case isCommand(args, "api"):
		return serveAPI(ctx, env)
	case isCommand(args, "worker"):
		return runWorker(ctx, env)
	case isCommand(args, "migrate"):
		return migrate(ctx, env)
	case isCommand(args, "restored"):
		return restored(ctx, env, out)
	case isCommand(args, "rotate-secrets"):
		return rotateSecrets(ctx, env, out)
	case isCommand(args, "version"):
		return printVersion(out)
	case isCommand(args, "openapi"):
		return printDocument(out, args[1:])
	case len(args) >= 1 && args[0] == "ready":
		return ready(ctx, args[1:], out)
	case isCommand(args, "console"):
		<-ctx.Done()
		return nil
	case len(args) >= 2 && args[0] == "audit" && args[1] == "verify":
		return verifyAudit(ctx, env, args[2:], out)
	case len(args) >= 2 && args[0] == "temporal" && args[1] == "prepare":
		return prepareTemporal(ctx, env, args[2:], out)
	case len(args) >= 2 && args[0] == "tenant" && args[1] == "create":
		return createTenant(ctx, env, args[2:], in, out)
	}
	return flag.ErrHelp
}

// isCommand reports whether args call the command name. Only the command openapi accepts further arguments here.
func isCommand(args []string, name string) bool {
	return len(args) > 0 && args[0] == name && (len(args) == 1 || name == "openapi")
}
