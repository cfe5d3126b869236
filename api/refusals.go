package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// refusalsPerMinute of a kind are in a tenant's audit log; the rest is counted,
// so that nobody fills it, nor hides there what others do.
const refusalsPerMinute = 20

// auditTimeout bounds how long the answer to somebody who is refused waits.
const auditTimeout = 5 * time.Second

// refusals counts what was refused in the minute that runs.
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

// count says whether a refusal is to be recorded, and otherwise whether it is
// the first of its minute that is not.
func (r *refusals) count(kind refusedKind, now time.Time) (record, first bool) {
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

// omitted returns how many were not recorded, once.
func (r *refusals) omitted(kind refusedKind) int {
	r.Lock()
	defer r.Unlock()
	n := r.minutes[kind].omitted
	r.minutes[kind].omitted = 0
	return n
}

// auditRefusal records that somebody was refused, or counts it.
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

// recordOmitted waits for a minute, or until the process ends, and records how
// many refusals were not.
func (s *server) recordOmitted(kind refusedKind) {
	select {
	case <-time.After(time.Minute):
	case <-s.Stopping:
	}
	e := metering.AuditEntry{Actor: metering.Stranger, Action: kind.action, Resource: kind.tenant.String()}
	s.recordRefusal(context.Background(), kind.tenant, e, map[string]any{"omitted": s.refusals.omitted(kind)})
}

func (s *server) recordRefusal(ctx context.Context, tenant metering.TenantID, e metering.AuditEntry, what map[string]any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	var err error
	if e.After, err = jsonOf(what); err == nil {
		err = s.Store.AuditLog.Record(db.For(ctx, tenant), tenant, e)
	}
	if err != nil {
		s.Log.WarnContext(ctx, "cannot write a refusal to the audit log", "action", e.Action, "tenant", tenant.String(), "error", err)
	}
}

// auditForbidden records that somebody who is known may not do what they asked for.
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

// auditDead records that a credential was used that is not valid any more.
func (s *server) auditDead(ctx context.Context, tenant metering.TenantID, kind, id string, revoked bool) {
	why := "expired"
	if revoked {
		why = "revoked"
	}
	s.auditRefusal(ctx, tenant, metering.Actor(id), kind+".refuse", id, map[string]any{"because": why})
}

// refusedSignIn is an attempt to sign in that was refused.
type refusedSignIn struct {
	email  string
	origin db.Origin
}

// auditSignIn has recorded that somebody did not sign in. Nobody waits for it:
// it would take longer where the e-mail is a member's. What is no e-mail is nobody's.
func (s *server) auditSignIn(ctx context.Context, email string) {
	if !mayBeAMembers(email) {
		return
	}
	s.notSignedIn.board(ctx, refusedSignIn{email, db.Origin{Address: s.addressOf(ctx), RequestID: exchangeOf(ctx).id}})
}

func (s *server) auditSignIns(ctx context.Context, refused []refusedSignIn) (map[refusedSignIn]struct{}, error) {
	ctx = db.For(ctx, strangers)
	for _, r := range refused {
		attempted, err := s.Store.AuditLog.Attempted(ctx, r.email)
		if err != nil {
			s.Log.WarnContext(ctx, "cannot write a refused sign-in to the audit log", "error", err)
			continue
		}
		for _, a := range attempted {
			s.auditRefusal(db.From(ctx, r.origin), a.Tenant, metering.Stranger, "session.refuse", a.Member.String(), nil)
		}
	}
	return nil, nil
}

// auditAsked records what somebody is about to be given, or to begin, that
// changes nothing of ours.
func (s *server) auditAsked(ctx context.Context, action, resource string, what map[string]any) error {
	who := principalOf(ctx)
	after, err := jsonOf(what)
	if err != nil {
		return err
	}
	return s.Store.AuditLog.Record(ctx, who.Tenant.ID, metering.AuditEntry{Actor: who.Actor, Action: action, Resource: resource, After: after})
}

// jsonOf is null where there is nothing to say.
func jsonOf(what map[string]any) (json.RawMessage, error) {
	if what == nil {
		return nil, nil
	}
	return json.Marshal(what)
}
