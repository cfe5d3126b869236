package limits

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestBatchSizeAdaptsToPreviousBatch(t *testing.T) {
	t.Parallel()
	const tenant, quick, slow = metering.TenantID(1), time.Second, time.Second + 1
	failure := errors.New("failed")
	sizes := make(batchSizes)
	for i, step := range []struct {
		customers int
		elapsed   time.Duration
		err       error
		next      int
	}{
		{500, quick, nil, 500},
		{500, slow, nil, 250},
		{250, quick, failure, 31},
		{0, quick, nil, 31},
		{0, quick, failure, 31},
		{31, slow, failure, 3},
		{3, slow, failure, 1},
		{1, slow, failure, 500},
		{500, slow, failure, 62},
		{1, slow, nil, 1},
		{1, quick, nil, 2},
		{2, quick, nil, 4},
		{4, quick, nil, 8},
		{400, slow, nil, 200},
		{200, quick, nil, 400},
		{400, quick, nil, 500},
	} {
		sizes.adjust(tenant, step.customers, step.elapsed, step.err)
		require.Equal(t, step.next, sizes.sizeOf(tenant), "step %d", i)
	}
	sizes.adjust(tenant+1, 500, quick, nil)
	require.Equal(t, 500, sizes.sizeOf(tenant+1), "another tenant")
}
