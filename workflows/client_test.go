package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func TestCallsToUnreachableTemporalReturnUnavailable(t *testing.T) {
	t.Parallel()
	nowhere, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1", Logger: quiet})
	require.NoError(t, err)
	defer nowhere.Close()
	for _, start := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return workflows.StartSyncCustomer(ctx, nowhere, 1, 2, true) },
		func(ctx context.Context) error { return workflows.RestartSyncCustomer(ctx, nowhere, 1, 2) },
		func(ctx context.Context) error { return workflows.StartBackfillMeter(ctx, nowhere, 1, 3) },
		func(ctx context.Context) error { return workflows.RetrySyncCustomer(ctx, nowhere, 1, 2, asks) },
		func(ctx context.Context) error { return workflows.ResumeSyncCustomer(ctx, nowhere, 1, 2, asks) },
		func(ctx context.Context) error { return workflows.CancelSyncCustomer(ctx, nowhere, 1, 2) },
		func(ctx context.Context) error {
			_, err := workflows.DescribeSyncCustomer(ctx, nowhere, 1, 2)
			return err
		},
	} {
		err := start(t.Context())
		require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err), "%v", err)
	}
}
