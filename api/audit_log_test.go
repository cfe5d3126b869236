package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

func TestTheAuditLogIsReadNewestFirst(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	theirs.send(t, "POST", "/v1/customers", `{"external_id":"theirs"}`)

	var actions []string
	size := int64(1)
	var token *string
	for {
		page, err := b.client.GetAuditLogWithResponse(t.Context(), &client.GetAuditLogParams{PageSize: &size, PageToken: token})
		require.NoError(t, err)
		require.NotNil(t, page.JSON200, string(page.Body))
		for _, e := range page.JSON200.Data {
			actions = append(actions, e.Actor[:3]+" "+e.Action+" "+e.Resource[:3])
		}
		if token = page.JSON200.NextPageToken; token == nil {
			require.False(t, page.JSON200.HasMore)
			break
		}
	}
	require.Equal(t, []string{
		"key customer.create cus", "key meter.create mtr", "ope api_key.create key", "ope tenant.create ten",
	}, actions)
}
