package audit

import (
	"bytes"
	"context"
	"crypto/hmac"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// maxBreaks is the maximum number of breaks of a chain that are reported.
const maxBreaks = 100

// Verify recomputes the tenant's chain. It returns the stored head, and descriptions of the breaks, at most
// maxBreaks. expected is a head that the caller saved earlier, or nil.
func (k Key) Verify(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, expected *metering.AuditHead) (head metering.AuditHead, breaks []string, err error) {
	v := verifier{key: k, tenant: tenant, expected: expected}
	var seal []byte
	err = tx.QueryRow(ctx, `select last_id, mac, seal from audit_heads where tenant_id = $1`, tenant).Scan(&head.Last, &head.MAC, &seal)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return head, nil, err
	}
	headless := err != nil
	if err := v.walk(ctx, tx); err != nil {
		return head, nil, err
	}
	v.end(head, seal, headless)
	return head, v.breaks, nil
}

// verifier reads a chain from its first entry and collects the breaks.
type verifier struct {
	key      Key
	tenant   metering.TenantID
	expected *metering.AuditHead

	last   metering.AuditHead // head of the entries that were read so far
	found  bool               // whether expected is in the chain
	breaks []string
}

func (v *verifier) brokenf(format string, args ...any) {
	if len(v.breaks) < maxBreaks {
		v.breaks = append(v.breaks, fmt.Sprintf(format, args...))
	}
}

func (v *verifier) walk(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `select `+Columns+`, mac from audit_log where tenant_id = $1 order by id`, v.tenant)
	if err != nil {
		return err
	}
	var e metering.AuditEntry
	var mac []byte
	_, err = pgx.ForEachRow(rows, append(Destinations(&e), &mac), func() error {
		v.step(e, bytes.Clone(mac))
		e.Before, e.After = nil, nil
		return nil
	})
	return err
}

func (v *verifier) step(e metering.AuditEntry, mac []byte) {
	switch next := v.last.Last + 1; {
	case e.ID > next:
		v.missing(next, e.ID-1)
	case e.ID < next:
		v.brokenf("%s exists more than once", e.ID)
	case !hmac.Equal(mac, v.key.entryMAC(v.tenant, v.last.MAC, e)):
		v.brokenf("%s was changed, or replaced by another entry", e.ID)
	}
	v.last = metering.AuditHead{Last: e.ID, MAC: mac}
	if v.expected != nil && v.expected.Last == e.ID {
		v.found = hmac.Equal(mac, v.expected.MAC)
	}
}

func (v *verifier) missing(first, last metering.AuditID) {
	if first == last {
		v.brokenf("%s is missing", first)
		return
	}
	v.brokenf("%s to %s are missing", first, last)
}

// end compares the chain that was read with the stored head. If headless is true, no head is stored, and end reports
// this instead. end also compares the chain with the expected head, if there is one.
func (v *verifier) end(head metering.AuditHead, seal []byte, headless bool) {
	switch {
	case headless:
		v.brokenf("the head is missing")
	case !hmac.Equal(seal, v.key.Seal(v.tenant, head)):
		v.brokenf("the head was changed, or ODOMETER_SECRET differs from the secret with which the log was written")
	case head.Last > v.last.Last:
		v.missing(v.last.Last+1, head.Last)
	case head.Last < v.last.Last:
		v.brokenf("%s and the entries after it were not added by Odometer", head.Last+1)
	case !hmac.Equal(head.MAC, v.last.MAC):
		v.brokenf("%s does not match the head", head.Last)
	}
	if v.expected != nil && !v.found {
		v.brokenf("%s does not match the expected head: the log was truncated or rewritten", v.expected.Last)
	}
}
