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

// startTimeout bounds the wait of a caller until Temporal accepts a start. The SDK reserves half of
// it for a retry, so a start fails after 5 seconds if Temporal does not answer.
const startTimeout = 10 * time.Second

// askAgainAfter is the pause before AskAgain repeats a request.
const askAgainAfter = 100 * time.Millisecond

// startOrJoin starts the run or joins the open one. It does not wait for the run, so no worker has to be
// running. It returns CodeUnavailable if Temporal does not answer; the run may have started
// nevertheless.
func (s start) startOrJoin(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.startOnce(ctx, c); err != nil {
		return unreachable(s.id, err)
	}
	return nil
}

// startOnce makes one call that starts the run or joins the open one. If the start has a signal, it also signals the
// run.
func (s start) startOnce(ctx context.Context, c client.Client) error {
	options := s.clientOptions()
	if s.signal == "" {
		_, err := c.ExecuteWorkflow(ctx, options, s.workflow, s.args()...)
		return err
	}
	// SignalWithStart always joins an open run.
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_UNSPECIFIED
	_, err := c.SignalWithStartWorkflow(ctx, s.id, s.signal, nil, options, s.workflow, s.args()...)
	return err
}

// AskAgain is a gRPC interceptor that repeats requests after the server's own deadline. A busy
// Temporal server then returns DeadlineExceeded, possibly long before the caller's deadline. The
// SDK mistakes the error for the caller's deadline and does not retry. AskAgain repeats the request
// until ctx ends or the server returns another status.
//
// Repeats are safe, because requests that start or change a run contain a request ID. A repeated
// SignalWithStart may start another run if the first run has already ended. The second run finds no
// work.
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

// unreachable returns CodeUnavailable, because a retry may succeed. The cause, such as a search attribute
// that is not registered yet, is logged.
func unreachable(workflowID string, cause error) error {
	return metering.Errorf(metering.CodeUnavailable, "Temporal does not answer; try again").
		Because(fmt.Errorf("%s: %w", workflowID, cause))
}

// isNotFound reports whether Temporal has no such schedule or no such open run.
func isNotFound(err error) bool {
	var none *serviceerror.NotFound
	return errors.As(err, &none)
}
