package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// refusalsPerMinute is the maximum number of refusals per action and minute in a tenant's audit log.
// Further refusals are only counted, so that a flood of refusals neither fills the log nor hides other
// entries.
const refusalsPerMinute = 20

// omittedAfter is the time from the first omitted refusal until the number of omitted refusals is recorded. It is a
// variable because tests use a longer time, so that they do not fail on a busy machine.
var omittedAfter = time.Minute

// refusals counts the refusals of the current minute by tenant and action.
type refusals struct {
	sync.Mutex
	minutes map[refusedKind]*refusedMinute
}

type refusedKind struct {
	tenant metering.TenantID
	action string
}

type refusedMinute struct {
	began    time.Time
	recorded int
	omitted  int
}

// count counts a refusal and reports whether to record it. If it is not recorded, isFirst reports
// whether it is the first unrecorded refusal since the last call of omitted.
func (r *refusals) count(kind refusedKind, now time.Time) (record, isFirst bool) {
	r.Lock()
	defer r.Unlock()
	if r.minutes == nil {
		r.minutes = map[refusedKind]*refusedMinute{}
	}
	m := r.minutes[kind]
	if m == nil {
		m = new(refusedMinute)
		r.minutes[kind] = m
	}
	if now.Sub(m.began) >= time.Minute {
		m.began, m.recorded = now, 0
	}
	if m.recorded < refusalsPerMinute {
		m.recorded++
		return true, false
	}
	m.omitted++
	return false, m.omitted == 1
}

// omitted returns the number of unrecorded refusals and resets it to 0.
func (r *refusals) omitted(kind refusedKind) int {
	r.Lock()
	defer r.Unlock()
	n := r.minutes[kind].omitted
	r.minutes[kind].omitted = 0
	return n
}

// auditRefusal records a refused request in the tenant's audit log. Beyond refusalsPerMinute, it only counts
// the request.
func (s *server) auditRefusal(ctx context.Context, tenant metering.TenantID, actor metering.Actor, action, resource string, what map[string]any) {
	kind := refusedKind{tenant, action}
	record, first := s.refusals.count(kind, s.Now())
	switch {
	case record:
		s.recordRefusal(ctx, tenant, metering.AuditEntry{Actor: actor, Action: action, Resource: resource}, what)
	case first:
		go s.recordOmitted(kind)
	}
}

// recordOmitted waits for omittedAfter, or until the process stops. Then it records the number of refusals that
// were only counted.
func (s *server) recordOmitted(kind refusedKind) {
	select {
	case <-time.After(omittedAfter):
	case <-s.Stopping:
	}
	e := metering.AuditEntry{Actor: metering.Stranger, Action: kind.action, Resource: kind.tenant.String()}
	s.recordRefusal(context.Background(), kind.tenant, e, map[string]any{"omitted": s.refusals.omitted(kind)})
}

// recordRefusal writes an entry about a refusal to the audit log. A failure is only logged.
func (s *server) recordRefusal(ctx context.Context, tenant metering.TenantID, e metering.AuditEntry, what map[string]any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	var err error
	if e.After, err = jsonOf(what); err == nil {
		err = s.Store.AuditLog.Record(pg.For(ctx, tenant), tenant, e)
	}
	if err != nil {
		s.Log.WarnContext(ctx, "cannot write a refusal to the audit log", "action", e.Action, "tenant", tenant.String(), "error", err)
	}
}

// auditForbidden records a request for which an authenticated caller had no permission.
func (s *server) auditForbidden(x *exchange, status int) {
	if status != http.StatusForbidden || x.principal.Tenant.ID == 0 {
		return
	}
	what := map[string]any{"status": status}
	if x.err != nil {
		what["detail"] = problemOf(x.err).Detail
	}
	s.auditRefusal(x.request.Context(), x.principal.Tenant.ID, x.principal.Actor, "request.refuse", x.request.Pattern, what)
}

// auditDead records the use of a revoked or expired credential in the audit log.
func (s *server) auditDead(ctx context.Context, c metering.Credential) {
	why := "expired"
	if c.RevokedAt != nil {
		why = "revoked"
	}
	id := c.ID.String()
	s.auditRefusal(ctx, c.TenantID, metering.Actor(id), string(c.ID.Kind)+".refuse", id, map[string]any{"because": why})
}

// refusedSignIn is an attempt to sign in that was refused.
type refusedSignIn struct {
	email  string
	origin audit.Origin
}

// auditRefusedSignIn records a refused sign-in in the background. If the response waited for the record, its delay
// would reveal whether the e-mail belongs to a member. A text that is not an e-mail is not recorded.
func (s *server) auditRefusedSignIn(ctx context.Context, email string) {
	if !isEmail(email) {
		return
	}
	s.failedSignIns.board(ctx, refusedSignIn{email, audit.Origin{Address: s.addressOf(ctx), RequestID: exchangeOf(ctx).id}})
}

// auditRefusedSignIns records refused sign-ins in the audit log of each tenant that has a member with the e-mail.
func (s *server) auditRefusedSignIns(ctx context.Context, refused []refusedSignIn) (map[refusedSignIn]struct{}, error) {
	ctx = pg.For(ctx, strangers)
	for _, r := range refused {
		attempted, err := s.Store.AuditLog.Attempted(ctx, r.email)
		if err != nil {
			s.Log.WarnContext(ctx, "cannot write a refused sign-in to the audit log", "error", err)
			continue
		}
		for _, a := range attempted {
			s.auditRefusal(audit.From(ctx, r.origin), a.Tenant, metering.Stranger, "session.refuse", a.Member.String(), nil)
		}
	}
	return nil, nil
}

// auditAsked records a request that changes no stored resource, such as a read, an export, a webhook test or
// a sync.
func (s *server) auditAsked(ctx context.Context, action, resource string, what map[string]any) error {
	who := principalOf(ctx)
	after, err := jsonOf(what)
	if err != nil {
		return err
	}
	return s.Store.AuditLog.Record(ctx, who.Tenant.ID, metering.AuditEntry{Actor: who.Actor, Action: action, Resource: resource, After: after})
}

// jsonOf returns the JSON of a map, or nil for a nil map.
func jsonOf(what map[string]any) (json.RawMessage, error) {
	if what == nil {
		return nil, nil
	}
	return json.Marshal(what)
}
