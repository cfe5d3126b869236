// Command odometer is the whole service in one binary: the API, the Temporal
// worker, and the tools of whoever operates them. It is configured by its
// environment alone.
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

const usage = `odometer meters usage and syncs it to billing providers.

  odometer api              serve the HTTP API
  odometer worker           run the Temporal worker
  odometer migrate          bring the database's schema up to date
  odometer temporal prepare register search attributes in the Temporal namespace and lengthen its retention
  odometer tenant create    make a tenant, its first admin key and its owner
  odometer restored         say that the database was restored from a backup
  odometer rotate-secrets   seal every secret under the first of the encryption keys
  odometer audit verify     find out whether audit logs are as they were written
  odometer openapi          print the OpenAPI document
  odometer ready URL        ask /readyz of the API or worker at URL; succeed if it is ready
  odometer console          do nothing until it is stopped: a container for the commands above
  odometer version          print what this binary was built from

Environment:
  DATABASE_URL              PostgreSQL URL of a TimescaleDB database; for migrate that of the tables' owner
  API_ROLE                  for migrate: the role that the API connects as, to which it grants what that needs
  WORKER_ROLE               for migrate: the same for the worker
  LISTEN_ADDRESS            of the API; 127.0.0.1:8080 when unset
  METRICS_ADDRESS           of /metrics, and of the worker's /readyz; unset: neither
  ODOMETER_SECRET           at least 32 random bytes in base64; API keys, sessions, page tokens and the audit
                            log depend on it; the same for API and worker
  ODOMETER_ENCRYPTION_KEYS  ID:BASE64KEY,… of 32 bytes each; the first seals secrets, all open them
  API_KEY_PREFIX            svc when unset
  REDIS_URL                 shares the rate limit among replicas; when unset each counts alone
  TRUSTED_PROXIES           networks such as 10.0.0.0/8,… whose X-Forwarded-For says where a request comes from
  BASE_URL                  where clients reach the API, for which it is http://LISTEN_ADDRESS when unset; for the
                            worker, whose runs link to customers there when it is set
  ERROR_DOCS_BASE           BASE_URL/errors when unset
  TEMPORAL_…                as in Temporal's own environment configuration: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
  TEMPORAL_UI_URL           where operators find the Temporal UI, to which the dashboard links
  ALLOW_LOOPBACK_WEBHOOKS   true lets webhooks reach this machine; for development
  STRIPE_API_BASE           another Stripe than its own; for development
  CALLS_PER_MINUTE          of a tenant, beside those with events; 6000 when unset, and half of them a credential
  MAX_REQUESTS_PER_MINUTE   the most requests with events a minute that a tenant may set for itself; 60000 when unset
  EVENT_RETENTION           how long events are kept, such as 400d; for ever when unset; the same for API and worker
  INGEST_GROUP_EVENTS       events of waiting requests that one transaction stores; 5000 when unset
  INGEST_LANES              transactions of one tenant that are written at once, while as many more are at COMMIT; 2 when unset
  LOG_LEVEL                 debug, info, warn or error; info when unset
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage)
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
	case is(args, "api"):
		return serveAPI(ctx, env)
	case is(args, "worker"):
		return runWorker(ctx, env)
	case is(args, "migrate"):
		return migrate(ctx, env)
	case is(args, "restored"):
		return restored(ctx, env, out)
	case is(args, "rotate-secrets"):
		return rotateSecrets(ctx, env, out)
	case is(args, "version"):
		return printVersion(out)
	case is(args, "openapi"):
		return printDocument(out, args[1:])
	case len(args) >= 1 && args[0] == "ready":
		return ready(ctx, args[1:], out)
	case is(args, "console"):
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

// is says whether the command is name; only openapi takes flags.
func is(args []string, name string) bool {
	return len(args) > 0 && args[0] == name && (len(args) == 1 || name == "openapi")
}
