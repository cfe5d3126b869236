package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// rotated creates a credential of the kind and rotates it, without starting a workflow run. Both credentials are valid
// during the overlap.
func (s *system) rotated(kind metering.CredentialKind, overlap time.Duration) metering.Rotation {
	s.Helper()
	return s.rotatedAt(time.Now(), kind, overlap)
}

// rotatedAt does the same, with the start of the overlap.
func (s *system) rotatedAt(now time.Time, kind metering.CredentialKind, overlap time.Duration) (r metering.Rotation) {
	s.Helper()
	tenant := s.tenant
	by := access.Rotating{Tenant: tenant, Actor: metering.Operator, Now: now, Overlap: overlap}
	sealFor := func(purpose seal.Purpose, text string) []byte {
		sealed, err := s.keyring.Seal(tenant, purpose, []byte(text))
		require.NoError(s, err)
		return sealed
	}
	switch kind {
	case metering.APIKeyCredential:
		hash := func(part string) []byte { return fmt.Appendf(nil, "canary-%s-%d", part, now.UnixNano()) }
		old, err := s.store.Credentials.Create(s.Context(), tenant, metering.Operator, metering.APIKeyCredential,
			metering.Credential{Name: "canary-key", Scope: metering.ScopeAdmin, LastFour: "abcd", Hash: hash("old")}, now)
		require.NoError(s, err)
		_, r, err = s.store.Rotations.Credential(s.Context(), by, old.ID, metering.Credential{LastFour: "efgh", Hash: hash("new")})
		require.NoError(s, err)
	case metering.HMACSecretCredential:
		_, err := s.connect().Exec(s.Context(), `update credentials set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and kind = 'hmac_secret'`, tenant)
		require.NoError(s, err) // or the tenant would have too many secrets
		old, err := s.store.Credentials.Create(s.Context(), tenant, metering.Operator, metering.HMACSecretCredential,
			metering.Credential{Name: "canary-secret", Scope: metering.ScopeAdmin, Sealed: sealFor(seal.SigningSecret, "hms_canary_old"), LastFour: "nary"}, now)
		require.NoError(s, err)
		_, r, err = s.store.Rotations.Credential(s.Context(), by, old.ID, metering.Credential{Sealed: sealFor(seal.SigningSecret, "hms_canary_new"), LastFour: "nary"})
		require.NoError(s, err)
	default:
		hook := s.listen(metering.MessageSyncSucceeded).hook
		var err error
		_, r, err = s.store.Rotations.WebhookSecret(s.Context(), by, hook.ID, sealFor(seal.EndpointSecret, webhookSecret), "ZWY=")
		require.NoError(s, err)
	}
	return r
}

// rotationOutcome returns the outcome of a rotation, or "" while its end is not recorded.
func (s *system) rotationOutcome(r metering.Rotation) metering.RotationOutcome {
	s.Helper()
	return s.outcomeBy(s.connect(), r)
}

// outcomeBy reads the outcome of a rotation through the connection.
func (s *system) outcomeBy(conn *pgx.Conn, r metering.Rotation) (outcome metering.RotationOutcome) {
	s.Helper()
	err := conn.QueryRow(s.Context(), `select coalesce(outcome, '') from credential_rotations where tenant_id = $1 and id = $2`, r.TenantID, r.ID).Scan(&outcome)
	require.NoError(s, err)
	return outcome
}

// awaitRotation waits until the rotation has the outcome.
func (s *system) awaitRotation(r metering.Rotation, want metering.RotationOutcome) {
	s.Helper()
	conn := s.connect()
	dbtest.Eventually(s, func() error {
		if got := s.outcomeBy(conn, r); got != want {
			return fmt.Errorf("its outcome is %q", got)
		}
		return nil
	})
}

// lastAudit returns the newest entry of the audit log.
func (s *system) lastAudit() string {
	s.Helper()
	return s.lastAudits(1)[0]
}

// lastAudits returns the newest n entries of the audit log, the newest first.
func (s *system) lastAudits(n int) (all []string) {
	s.Helper()
	log, err := dbtest.Items(s.store.AuditLog.List(s.Context(), s.tenant, access.AuditFilter{}, 0, n))
	require.NoError(s, err)
	for _, e := range log {
		all = append(all, string(e.Actor)+" "+e.Action+" "+e.Resource)
	}
	return all
}

func TestRotationOutcomesEndOrKeepOldCredential(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	histories := map[string]*historypb.History{}
	for name, c := range map[string]struct {
		kind    metering.CredentialKind
		overlap time.Duration
		end     func(run string)
		want    metering.RotationOutcome
	}{
		"rotate_credential":         {metering.HMACSecretCredential, 4 * time.Second, func(string) {}, metering.RotationExpired},
		"rotate_credential_at_once": {metering.APIKeyCredential, 0, func(string) {}, metering.RotationExpired},
		"rotate_credential_finished_now": {metering.APIKeyCredential, time.Hour, func(run string) {
			require.NoError(t, s.update(run, "finish-now"))
		}, metering.RotationFinished},
		"rotate_credential_canceled": {metering.WebhookCredential, time.Hour, func(run string) {
			s.awaitDetails(run, "are both valid until")
			require.NoError(t, s.temporal.CancelWorkflow(t.Context(), run, ""))
		}, metering.RotationKept},
	} {
		r := s.rotated(c.kind, c.overlap)
		run := workflows.RotateCredentialID(s.tenant, r.ID)
		dbtest.Eventually(t, func() error { return workflows.StartRotateCredential(t.Context(), s.temporal, s.tenant, r.ID) })
		c.end(run)
		require.NoError(t, s.awaitClosed(run))
		require.Equal(t, c.want, s.rotationOutcome(r), name)
		histories[name] = s.history(run)
	}
	keepHistories(t, histories)
}

func TestWorkerRecordsEndOfRotationWithoutRun(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	kinds := []metering.CredentialKind{metering.APIKeyCredential, metering.HMACSecretCredential, metering.WebhookCredential}
	var rotations []metering.Rotation
	for _, kind := range kinds {
		rotations = append(rotations, s.rotated(kind, time.Hour))
	}
	_, err := s.connect().Exec(t.Context(), `
		update credential_rotations set overlap_until = now() - interval '2 minutes', run_due_at = now() - interval '1 minute' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	s.work()
	for _, r := range rotations {
		s.awaitRotation(r, metering.RotationExpired)
	}
	key, err := s.store.Credentials.Get(t.Context(), s.tenant, rotations[0].OldID)
	require.NoError(t, err)
	require.NotNil(t, key.RevokedAt)
}

func TestRotationRunEndsAfterOldCredentialIsRevoked(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	r := s.rotated(metering.APIKeyCredential, time.Hour)
	run := workflows.RotateCredentialID(s.tenant, r.ID)
	dbtest.Eventually(t, func() error { return workflows.StartRotateCredential(t.Context(), s.temporal, s.tenant, r.ID) })
	s.awaitDetails(run, "are both valid until")
	require.NoError(t, s.store.Credentials.Revoke(t.Context(), s.tenant, metering.Operator, r.OldID))
	require.NoError(t, s.awaitClosed(run))
	s.awaitDetails(run, r.Old()+" is revoked")
}

func TestOperatorsAreWarnedOfAnOldCredentialThatIsStillUsed(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const overlap = 4 * time.Hour
	r := s.rotatedAt(time.Now().Add(-overlap*3/4), metering.HMACSecretCredential, overlap) // the warning is due
	late := r.CreatedAt.Add(overlap * 5 / 8)
	require.NoError(t, s.store.Credentials.Used(t.Context(), []access.CredentialUse{{Tenant: s.tenant, ID: r.OldID}}, late))
	s.work() // not earlier, because the worker starts the due run, which checks the use only once
	run := workflows.RotateCredentialID(s.tenant, r.ID)
	dbtest.Eventually(t, func() error { return workflows.StartRotateCredential(t.Context(), s.temporal, s.tenant, r.ID) })
	dbtest.Eventually(t, func() error {
		if got := s.lastAudit(); got != "schedule hmac_secret.still_used "+r.Old() {
			return fmt.Errorf("the audit log says %s", got)
		}
		return nil
	})
	s.awaitDetails(run, r.Old()+" is still used")
	require.NoError(t, s.update(run, "finish-now"))
	s.awaitRotation(r, metering.RotationFinished)
}

// TestDrillRotationContinuesAfterWorkerKill kills a worker during an overlap. The API accepts the same
// credentials as with a worker, and the next worker records the end of the rotation.
func TestDrillRotationContinuesAfterWorkerKill(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	system := proc.New(t, proc.Config{DatabaseURL: s.database, TemporalAddress: temporalAddress(t), Env: []string{
		"TEMPORAL_NAMESPACE=" + s.namespace, "ODOMETER_ENCRYPTION_KEYS=" + testKey(),
	}})
	worker := system.Worker(t)
	r := s.rotated(metering.APIKeyCredential, time.Hour)
	run := workflows.RotateCredentialID(s.tenant, r.ID)
	dbtest.Eventually(t, func() error { return workflows.StartRotateCredential(t.Context(), s.temporal, s.tenant, r.ID) })
	s.awaitDetails(run, "are both valid until")
	worker.Kill(t)
	conn := s.connect()
	for _, statement := range []string{ // the hour passes
		`update credential_rotations set created_at = created_at - interval '1 hour', overlap_until = overlap_until - interval '1 hour' where tenant_id = $1`,
		`update credentials set expires_at = expires_at - interval '1 hour' where tenant_id = $1`,
	} {
		_, err := conn.Exec(t.Context(), statement, s.tenant)
		require.NoError(t, err)
	}
	key, err := s.store.Credentials.Get(t.Context(), s.tenant, r.OldID)
	require.NoError(t, err)
	require.False(t, key.Live(time.Now()))
	require.Empty(t, s.rotationOutcome(r))
	worker.Start(t)
	// The run reads the rotation again. Its timer in Temporal is not over.
	dbtest.Eventually(t, func() error { return workflows.StartRotateCredential(t.Context(), s.temporal, s.tenant, r.ID) })
	require.NoError(t, s.awaitClosed(run))
	require.Equal(t, metering.RotationExpired, s.rotationOutcome(r))
	require.Equal(t, "schedule api_key.revoke "+r.Old(), s.lastAudit())
}
