package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// nothing is an environment without variables.
func nothing(string) string { return "" }

// settings returns an environment with these variables: names and values in turn.
func settings(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestAllInvalidSettingsAreReportedTogether(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"api"}, nothing, nil, nil)
	for _, name := range []string{"DATABASE_URL", "ODOMETER_SECRET", "ODOMETER_ENCRYPTION_KEYS"} {
		require.ErrorContains(t, err, name+" is required")
	}
	err = run(t.Context(), []string{"api"}, settings(
		"DATABASE_URL", "CANARY", "ODOMETER_SECRET", "Q0FOQVJZ", "ODOMETER_ENCRYPTION_KEYS", "CANARY", "LISTEN_ADDRESS", "CANARY",
		"METRICS_ADDRESS", ":99999", "BASE_URL", "ftp://CANARY", "ALLOW_LOOPBACK_WEBHOOKS", "CANARY", "LOG_LEVEL", "CANARY", "API_KEY_PREFIX", "CAN_ARY",
		"INGEST_LANES", "-1", "EVENT_RETENTION", "5d",
	), nil, nil)
	for _, name := range []string{
		"DATABASE_URL", "ODOMETER_SECRET", "ODOMETER_ENCRYPTION_KEYS", "LISTEN_ADDRESS", "METRICS_ADDRESS", "BASE_URL",
		"ALLOW_LOOPBACK_WEBHOOKS", "LOG_LEVEL", "API_KEY_PREFIX", "INGEST_LANES", "EVENT_RETENTION",
	} {
		require.ErrorContains(t, err, "\n  "+name+" ")
	}
	require.NotContains(t, err.Error(), "CANARY")
}

func TestAnUnknownCommandShowsTheUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nope"}, {"api", "extra"}, {"tenant"}, {"tenant", "delete"}} {
		require.ErrorIs(t, run(t.Context(), args, nothing, nil, nil), flag.ErrHelp)
	}
}

func TestVersionShowsReleaseCommitAndGoVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"version"}, nothing, nil, &out))
	require.Regexp(t, `^odometer (\(devel\)|v\d+\.\d+\.\d+\S*)(, commit [0-9a-f]{40})?, go1\.\d+\S*\n$`, out.String())
}

func TestReadyFailsUnlessProcessIsReady(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	routes := http.NewServeMux()
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, "its answer")
	})
	process := httptest.NewServer(routes)
	defer process.Close()
	var out bytes.Buffer
	status.Store(http.StatusOK)
	require.NoError(t, run(t.Context(), []string{"ready", process.URL}, nothing, nil, &out))
	require.Equal(t, "its answer", out.String())
	status.Store(http.StatusServiceUnavailable)
	require.ErrorContains(t, run(t.Context(), []string{"ready", process.URL}, nothing, nil, io.Discard), "/readyz returned status 503")
	process.Close()
	require.Error(t, run(t.Context(), []string{"ready", process.URL}, nothing, nil, io.Discard))
	require.ErrorContains(t, run(t.Context(), []string{"ready"}, nothing, nil, io.Discard), "odometer ready http://127.0.0.1:8080")
}

func TestConsoleCommandWaitsUntilStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, []string{"console"}, nothing, nil, nil) }()
	select {
	case err := <-ended:
		t.Fatalf("it has ended by itself: %v", err)
	default:
	}
	stop()
	require.NoError(t, <-ended)
}

func TestMigrateNamesRemediesForSchemaOfOtherVersion(t *testing.T) {
	t.Parallel()
	_, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	env := settings("DATABASE_URL", address)
	require.NoError(t, run(t.Context(), []string{"migrate"}, env, nil, io.Discard))
	_, err = conn.Exec(t.Context(), `insert into goose_db_version (version_id, is_applied) values (51, true)`)
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), []string{"migrate"}, env, nil, io.Discard), "in development, delete the data with make clean-dev")
}

func TestTenantCreatePrintsAdminKey(t *testing.T) {
	t.Parallel()
	_, address := dbtest.Fresh(t)
	env := settings("DATABASE_URL", address, "ODOMETER_SECRET", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"tenant", "create", "--name", "Acme", "--timezone", "Europe/Zurich", "--currency", "CHF", "--json"}, env, nil, &out))
	var made map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &made))
	require.Regexp(t, `^ten_\d+$`, made["tenant_id"])
	require.Regexp(t, `^svc_adm_[0-9A-Za-z]{32}$`, made["admin_key"])
	for flag, wrong := range map[string][]string{
		"timezone":            {"", "Mars/Olympus", "Local", "right/Europe/Zurich", "europe/zurich"},
		"currency":            {"", "ZZZ", "XXX", "XTS", "usd"},
		"requests-per-minute": {"0", "-1", "60001"},
		"owner-email":         {""},
	} {
		for _, value := range wrong {
			err := run(t.Context(), []string{"tenant", "create", "--name", "Acme", "--" + flag, value}, env, nil, &out)
			require.ErrorContains(t, err, flag, "%q", value)
		}
	}
}

func TestTenantCreateRejectsDifferentSecret(t *testing.T) {
	t.Parallel()
	_, address := dbtest.Fresh(t)
	create := func(secret string) error {
		env := settings("DATABASE_URL", address, "ODOMETER_SECRET", base64.StdEncoding.EncodeToString([]byte(secret)))
		return run(t.Context(), []string{"tenant", "create", "--name", "Acme"}, env, nil, io.Discard)
	}
	require.NoError(t, create(strings.Repeat("a", 32)))
	require.ErrorContains(t, create(strings.Repeat("b", 32)), "ODOMETER_SECRET")
	require.NoError(t, create(strings.Repeat("a", 32)))
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	var tenants int
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from tenants`).Scan(&tenants))
	require.Equal(t, 2, tenants)
}

func TestTenantCreateCreatesOwnerWithPassword(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	env := settings("DATABASE_URL", address, "ODOMETER_SECRET", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	create := func(in string, args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"tenant", "create", "--name", "Acme", "--owner-email", "ada@example.com"}, args...), env, strings.NewReader(in), &out)
		return out.String(), err
	}
	out, err := create("", "--json")
	require.NoError(t, err)
	var made map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.Equal(t, "ada@example.com", made["email"])
	require.Len(t, made["password"], 26)
	tenant, _ := metering.ParseTenantID(made["tenant_id"])
	members, err := dbtest.Items(store.Members.List(t.Context(), tenant, 0, 10))
	require.NoError(t, err)
	require.Len(t, members, 1)
	require.Equal(t, metering.RoleOwner, members[0].Role)
	require.NotNil(t, members[0].PersonID)

	out, err = create("correct horse battery\n", "--password-stdin")
	require.NoError(t, err)
	require.Contains(t, out, "Owner      ada@example.com\n")
	require.NotContains(t, out, "correct horse")
	_, err = create("too short\n", "--password-stdin")
	require.ErrorContains(t, err, "must have 12 to 256 characters")
	_, err = create("", "--owner-email", "ada")
	require.ErrorContains(t, err, "e-mail")
}

func TestOpenAPICommandPrintsDocument(t *testing.T) {
	t.Parallel()
	for version, args := range map[string][]string{"3.1.0": {"openapi"}, "3.0.3": {"openapi", "-3.0"}} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), args, nothing, nil, &out))
		require.Contains(t, out.String(), `"openapi": "`+version+`"`)
	}
}
