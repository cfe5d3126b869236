package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/odometer-metering/odometer/metering"
)

// SQLSTATEs that the program acts on (PostgreSQL documentation, appendix A).
const (
	stateUniqueViolation       = "23505"
	stateReadOnly              = "25006"
	StateSerialization         = "40001"
	StateDeadlock              = "40P01"
	stateInsufficientPrivilege = "42501"
	stateLockNotAvailable      = "55P03"
	stateDiskFull              = "53100"
	StateQueryCanceled         = "57014"
	stateInternal              = "XX000"
)

// faultClasses are the SQLSTATE classes of server faults, which affect all requests.
var faultClasses = []string{
	"08", // connection exception
	"53", // insufficient resources: a full disk, no memory, too many connections
	"57", // operator intervention: a shutdown
	"58", // system error: a file cannot be read or written
	"F0", // configuration file error
	"XX", // internal error: corrupted data
}

// ViolatedUnique returns the name of the unique constraint or index that err reports as violated, or "".
func ViolatedUnique(err error) string {
	var violation *pgconn.PgError
	if errors.As(err, &violation) && violation.Code == stateUniqueViolation {
		return violation.ConstraintName
	}
	return ""
}

// SQLState returns the SQLSTATE of err, or "".
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// overtakenByDrop reports whether a chunk was dropped between the planning and the execution of a
// statement.
func overtakenByDrop(err error) bool {
	return SQLState(err) == stateInternal && strings.Contains(err.Error(), "could not open relation with OID")
}

// Coded converts an error of the driver or the database to a metering.Error with a code. It returns an error
// unchanged if it has a code already, or if no code applies. It returns nil for nil.
func Coded(err error) error {
	if err == nil {
		return nil
	}
	var already *metering.Error
	if errors.As(err, &already) {
		return err
	}
	if overtakenByDrop(err) {
		return metering.Errorf(metering.CodeOverloaded, "the database is busy; try again").Because(err)
	}
	switch SQLState(err) {
	case stateLockNotAvailable, StateQueryCanceled, StateDeadlock, StateSerialization:
		return metering.Errorf(metering.CodeOverloaded, "the database is busy; try again").Because(err)
	case stateReadOnly:
		return metering.Errorf(metering.CodeUnavailable, "the database accepts no writes; try again").Because(err)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Errorf(metering.CodeNotFound, "not found").Because(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return metering.Errorf(metering.CodeUnavailable, "the database did not answer in time; try again").Because(err)
	}
	if IsServerFault(err) {
		return metering.Errorf(metering.CodeUnavailable, "the database is not available; try again").Because(err)
	}
	return err
}

// IsServerFault reports whether err is a fault of the database server and not of the request.
func IsServerFault(err error) bool {
	state := SQLState(err)
	ofFaults := func(class string) bool { return strings.HasPrefix(state, class) }
	return IsDisconnected(err) || state == stateReadOnly || state != StateQueryCanceled && slices.ContainsFunc(faultClasses, ofFaults)
}

// IsDisconnected reports whether err means that the connection was lost or never established.
func IsDisconnected(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
