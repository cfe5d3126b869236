package worker_test

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// readBack reads the saved data through the API, and the metrics of the API and the worker.
func (c *canary) readBack() {
	for _, path := range []string{
		"/v1/api-keys", "/v1/hmac-secrets", "/v1/billing/provider", "/v1/tenant/oidc", "/v1/tenant/members", "/v1/audit-log", "/v1/tenant",
		"/v1/customers", "/v1/meters", "/v1/billing/syncs", "/v1/billing/auto-sync", "/v1/billing/periods?customer=canary-customer",
		"/v1/usage/export?customer=canary-customer", "/openapi.json", "/healthz", "/readyz",
	} {
		c.must(200, "GET", path, nil)
	}
	require.Contains(c, strings.Join(c.read, "\n"), "canary-customer", "what is looked at is what was read")
	for _, p := range []*proc.Process{c.api, c.worker} {
		response, err := http.Get(p.MetricsURL)
		require.NoError(c, err)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(c, err)
		require.Contains(c, string(text), "# HELP")
		c.impersonal("the metrics", string(text))
	}
}

// inspect checks that no recorded answer, log, Temporal data or row contains an unsealed secret. It also checks that
// errors, logs and Temporal data contain no personal data.
func (c *canary) inspect() {
	c.Helper()
	for _, text := range c.shown {
		c.impersonal("an error's body", text)
	}
	for _, text := range c.read {
		c.sealed("an answer", text)
	}
	require.Greater(c, len(c.shown), 30)
	for _, p := range c.processes {
		require.Contains(c, p.Output(c), `"level":"DEBUG"`)
		c.impersonal("a log", p.Output(c))
	}
	c.inspectTemporal()
	c.inspectRows()
}

// sealed requires that a text contains no secret, neither unchanged nor in base64 or hex.
func (c *canary) sealed(where, text string) {
	c.Helper()
	for what, secret := range c.secrets {
		for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))} {
			if at := strings.Index(text, form); at >= 0 {
				c.Errorf("%s holds %s: …%s…", where, what, around(text, at, len(form)))
			}
		}
	}
}

// impersonal requires that a text contains no secret, no personal data and no URL of a tenant.
func (c *canary) impersonal(where, text string) {
	c.Helper()
	c.sealed(where, text)
	lower := strings.ToLower(text)
	for from := 0; ; {
		at := strings.Index(lower[from:], "canary")
		if at < 0 {
			break
		}
		at += from
		c.Errorf("%s holds something personal: …%s…", where, around(text, at, len("canary")))
		from = at + 200
		if from > len(lower) {
			break
		}
	}
	for _, url := range []string{c.far.url, "127.0.0.1:1/", "169.254.169.254"} {
		if at := strings.Index(text, url); at >= 0 {
			c.Errorf("%s holds a tenant's URL: …%s…", where, around(text, at, len(url)))
		}
	}
}

// around returns a part of the text with up to 150 bytes on each side.
func around(text string, at, length int) string {
	return text[max(0, at-150):min(len(text), at+length+150)]
}

// runs returns the runs of all workflows.
func (c *canary) runs() (runs []*commonpb.WorkflowExecution) {
	c.Helper()
	var page []byte
	for {
		listed, err := c.temporal.ListWorkflow(c.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.namespace, NextPageToken: page})
		require.NoError(c, err)
		for _, found := range listed.GetExecutions() {
			runs = append(runs, found.GetExecution())
		}
		if page = listed.GetNextPageToken(); len(page) == 0 {
			return runs
		}
	}
}

// inspectTemporal checks everything that Temporal shows of runs and schedules: histories, search attributes,
// memos, summaries, details and pending activities.
func (c *canary) inspectTemporal() {
	c.Helper()
	kinds := map[string]bool{}
	for _, run := range c.runs() {
		kind, _, _ := strings.Cut(run.GetWorkflowId(), "/")
		kinds[kind] = true
		described, err := c.temporal.DescribeWorkflowExecution(c.Context(), run.GetWorkflowId(), run.GetRunId())
		require.NoError(c, err)
		c.plain("the description of "+kind, described)
		var history historypb.History
		events := c.temporal.GetWorkflowHistory(c.Context(), run.GetWorkflowId(), run.GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(c, err)
			history.Events = append(history.Events, event)
		}
		c.plain("a history of "+kind, &history)
		if strings.HasPrefix(described.GetWorkflowExecutionInfo().GetType().GetName(), "temporal-sys") {
			continue // they answer no query
		}
		var metadata sdkpb.WorkflowMetadata
		dbtest.Eventually(c, func() error { // a busy worker may not answer at once
			answer, err := c.temporal.QueryWorkflow(c.Context(), run.GetWorkflowId(), run.GetRunId(), "__temporal_workflow_metadata")
			if err != nil {
				return err
			}
			return answer.Get(&metadata)
		})
		c.impersonal("the details of "+kind, metadata.GetCurrentDetails())
	}
	c.kinds = kinds
	for _, id := range []string{"maintain", "audit-usage", "auto-sync/" + strings.TrimPrefix(c.tenant, "ten_")} {
		described, err := c.temporal.WorkflowService().DescribeSchedule(c.Context(), &workflowservice.DescribeScheduleRequest{Namespace: c.namespace, ScheduleId: id})
		require.NoError(c, err)
		c.plain("the schedule "+id, described)
	}
}

// plain requires that a message and its decoded payloads are impersonal.
func (c *canary) plain(where string, message proto.Message) {
	c.Helper()
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: "  "}.Marshal(message)
	require.NoError(c, err)
	c.impersonal(where, string(text))
	for _, match := range data.FindAllSubmatch(text, -1) {
		decoded, err := base64.StdEncoding.DecodeString(string(match[1]))
		require.NoError(c, err)
		c.impersonal(where, string(decoded))
	}
}

// inspectRows requires that no column of any table contains an unsealed secret.
func (c *canary) inspectRows() {
	c.Helper()
	rows, err := c.conn.Query(c.Context(), `
		select relname
		from pg_class
		where relnamespace = 'public'::regnamespace
		  and relkind in ('r', 'p')
		  and not relispartition`)
	require.NoError(c, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(c, err)
	require.Greater(c, len(tables), 20)
	filled, personal := 0, false
	for _, table := range tables {
		var text string
		require.NoError(c, c.conn.QueryRow(c.Context(), `select coalesce(string_agg(t::text, E'\n'), '') from `+pgx.Identifier{table}.Sanitize()+` t`).Scan(&text))
		if text != "" {
			filled++
		}
		personal = personal || strings.Contains(text, "canary-customer")
		c.sealed("the table "+table, text)
	}
	require.Greater(c, filled, 20, "the flows have gone through the tables")
	require.True(c, personal, "what is personal is where it belongs")
}
