package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestVerifyingAuditLogs(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	superuser, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer superuser.Close(t.Context())
	ours, theirs := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	env := settings("DATABASE_URL", address, "ODOMETER_SECRET", base64.StdEncoding.EncodeToString(dbtest.AuditSecret))
	verify := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"audit", "verify"}, args...), env, nil, &out)
		return out.String(), err
	}
	said, err := verify()
	require.NoError(t, err)
	for _, tenant := range []metering.TenantID{ours, theirs} {
		require.Regexp(t, fmt.Sprintf(`(?m)^%s intact, head 1:[0-9a-f]{64}$`, tenant), said)
	}
	var noted string
	said, err = verify("-tenant", ours.String())
	require.NoError(t, err)
	_, err = fmt.Sscanf(said, ours.String()+" intact, head %s", &noted)
	require.NoError(t, err)
	require.NoError(t, store.AuditLog.Record(t.Context(), ours, metering.AuditEntry{Actor: metering.Operator, Action: "test.do"}))
	_, err = verify("--tenant", ours.String(), "--expect", noted)
	require.NoError(t, err)

	said, err = verify("--tenant", theirs.String(), "--expect", noted)
	require.ErrorIs(t, err, errBrokenLog)
	require.Equal(t, theirs.String()+" broken: aud_1 does not match the expected head: the log was truncated or rewritten\n", said)
	_, err = superuser.Exec(t.Context(), `update audit_log set action = 'tenant.update' where tenant_id = $1 and id = 1`, ours)
	require.NoError(t, err)
	said, err = verify()
	require.ErrorIs(t, err, errBrokenLog)
	require.Contains(t, said, ours.String()+" broken: aud_1 was changed, or replaced by another entry\n")
	require.Contains(t, said, theirs.String()+" intact", "others are looked at all the same")

	for want, args := range map[string][]string{
		"-tenant must be a tenant's id": {"-tenant", "1"},
		"-expect needs -tenant":         {"-expect", noted},
		"-expect must be a head":        {"-tenant", ours.String(), "-expect", "1"},
	} {
		_, err := verify(args...)
		require.ErrorContains(t, err, want)
	}
}
