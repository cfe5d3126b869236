package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// replacedSecret is an HMAC secret that another replaces, with both valid for so long.
func (s *system) replacedSecret(overlap time.Duration) metering.HMACSecretID {
	s.Helper()
	tenant, now := s.tenant, time.Now()
	seal := func(text string) metering.HMACSecret {
		sealed, err := s.keyring.Seal(tenant, db.SigningSecret, []byte(text))
		require.NoError(s, err)
		return metering.HMACSecret{Name: "canary-secret", Scope: metering.ScopeAdmin, Sealed: sealed, LastFour: "nary"}
	}
	old, err := s.store.HMACSecrets.Create(s.Context(), tenant, metering.Operator, seal("hms_canary_old"), now)
	require.NoError(s, err)
	_, err = s.store.HMACSecrets.Rotate(s.Context(), tenant, metering.Operator, old.ID, seal("hms_canary_new"), now.Add(overlap), now)
	require.NoError(s, err)
	return old.ID
}

// overlap is where the replacement stands, and leaves room for another.
func (s *system) overlap(id metering.HMACSecretID) metering.OverlapStatus {
	s.Helper()
	old, err := s.store.HMACSecrets.Get(s.Context(), s.tenant, id)
	require.NoError(s, err)
	_, err = s.connect().Exec(s.Context(), `update hmac_secrets set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1`, s.tenant)
	require.NoError(s, err)
	return old.Overlap()
}

func TestAReplacedSecretEndsWithItsOverlapAtOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	histories := map[string]*historypb.History{}
	for name, c := range map[string]struct {
		overlap time.Duration
		end     func(run string)
		want    metering.OverlapStatus
	}{
		"rotate_hmac_secret": {2 * time.Second, func(string) {}, metering.OldRevoked},
		"rotate_hmac_secret_finished_now": {time.Hour, func(run string) {
			require.NoError(t, s.update(run, "finish-now"))
		}, metering.OldRevoked},
		"rotate_hmac_secret_cancelled": {time.Hour, func(run string) {
			s.awaitDetails(run, "are both valid until")
			require.NoError(t, s.temporal.CancelWorkflow(t.Context(), run, ""))
		}, metering.BothKept},
	} {
		old := s.replacedSecret(c.overlap)
		run := workflows.RotateHMACSecretID(s.tenant, old)
		require.NoError(t, workflows.StartRotateHMACSecret(t.Context(), s.temporal, s.tenant, old))
		c.end(run)
		require.NoError(t, s.awaitClosed(run))
		require.Equal(t, c.want, s.overlap(old), name)
		histories[name] = s.history(run)
	}
	keepHistories(t, histories)
}

func TestAWorkerRecordsTheEndOfAnOverlapThatNobodyStarted(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	old := s.replacedSecret(time.Hour)
	_, err := s.connect().Exec(t.Context(), `update hmac_secrets set expires_at = now() - interval '2 minutes' where tenant_id = $1 and id = $2`, s.tenant, old)
	require.NoError(t, err)
	s.work()
	dbtest.Eventually(t, 30*time.Second, func() error {
		secret, err := s.store.HMACSecrets.Get(t.Context(), s.tenant, old)
		if err == nil && secret.RevokedAt == nil {
			err = fmt.Errorf("it is not revoked")
		}
		return err
	})
	log, err := s.store.AuditLog.List(t.Context(), s.tenant, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "schedule hmac_secret.revoke "+old.String(), string(log[0].Actor)+" "+log[0].Action+" "+log[0].Resource)
}
