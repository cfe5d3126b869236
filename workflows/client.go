package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/odometer-metering/odometer/metering"
)

// startTimeout bounds how long a caller waits for Temporal to accept a start. The SDK keeps half of
// it for retries: one that finds Temporal silent fails after 5 seconds.
const startTimeout = 10 * time.Second

// askAgainAfter is how long after Temporal gave up it is asked the same again.
const askAgainAfter = 100 * time.Millisecond

// by has the client begin the run, or join the one that is open, and does not
// wait for it: no worker has to be alive. It returns CodeUnavailable if Temporal does
// not answer, and then the run may have begun all the same.
func (s start) by(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.once(ctx, c); err != nil {
		return unreachable(s.id, err)
	}
	return nil
}

func (s start) once(ctx context.Context, c client.Client) error {
	options := s.clientOptions()
	if s.signal == "" {
		_, err := c.ExecuteWorkflow(ctx, options, s.workflow, s.args()...)
		return err
	}
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_UNSPECIFIED // a signal joins by itself
	_, err := c.SignalWithStartWorkflow(ctx, s.id, s.signal, nil, options, s.workflow, s.args()...)
	return err
}

// AskAgain is for a client's connection. A server that is busy may give up long
// before its caller would: it says that a deadline has passed, of its own, and the
// SDK takes that for the caller's. So it is asked again until the caller's passes
// or it says something else. What begins or changes something carries an id of the
// request, by which Temporal knows a repeat. Where the run that a signal has begun is
// over by then, another may begin, which finds nothing to do.
func AskAgain(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, ask grpc.UnaryInvoker, options ...grpc.CallOption) error {
	for {
		err := ask(ctx, method, request, answer, conn, options...)
		if status.Code(err) != codes.DeadlineExceeded {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgainAfter):
		}
	}
}

// unreachable returns CodeUnavailable, since a repetition may succeed. Temporal calls an argument
// invalid while it does not know our search attributes, which a worker registers.
func unreachable(workflowID string, cause error) error {
	var invalid *serviceerror.InvalidArgument
	if errors.As(cause, &invalid) {
		return metering.Errorf(metering.CodeUnavailable, "Temporal does not know the search attributes yet; start a worker, and try again").
			Because(fmt.Errorf("%s: %w", workflowID, cause))
	}
	return metering.Errorf(metering.CodeUnavailable, "Temporal does not answer; try again").
		Because(fmt.Errorf("%s: %w", workflowID, cause))
}

// missing says that Temporal has no such thing: no schedule, or no open run.
func missing(err error) bool {
	var none *serviceerror.NotFound
	return errors.As(err, &none)
}
