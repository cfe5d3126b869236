package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestRunHasSameAttributesFromClientParentAndSchedule checks that operators see the same run, whether a client, a
// parent or a schedule starts it.
func TestRunHasSameAttributesFromClientParentAndSchedule(t *testing.T) {
	for _, s := range []start{
		syncCustomerStart(1, 2, metering.Manual), autoSyncStart(1), closePeriodStart(1), handleProviderEventStart(1, 2, 7), handleProviderEventStart(1, 0, 7), holdInvoiceStart(1, 2, 5), eraseCustomerStart(1, 2),
		backfillMeterStart(1, 3), rotateCredentialStart(1, 4), deliverWebhooksStart(1, 6),
		rotateSecretsStart("key"), maintainStart(), auditUsageStart(),
	} {
		client, child, action := s.clientOptions(), s.childOptions(), s.action()
		for _, id := range []string{client.ID, child.WorkflowID, action.ID} {
			require.Equal(t, s.id, id)
		}
		for _, summary := range []string{client.StaticSummary, child.StaticSummary, action.StaticSummary} {
			require.NotEmpty(t, summary)
			require.Equal(t, s.summary, summary)
		}
		require.Equal(t, client.StaticDetails, child.StaticDetails)
		require.Equal(t, client.StaticDetails, action.StaticDetails)
		require.Equal(t, client.TypedSearchAttributes, child.TypedSearchAttributes)
		require.Equal(t, client.TypedSearchAttributes, action.TypedSearchAttributes)
		require.Equal(t, client.Priority, child.Priority)
		require.Equal(t, client.Priority, action.Priority)
		require.Equal(t, s.tenant != 0, client.Priority.FairnessKey == "ten_1")
		require.Equal(t, s.tenant != 0, client.TypedSearchAttributes.Size() > 0)
	}
}

func TestRunOfOneCustomerLinksToCustomer(t *testing.T) {
	for _, s := range []start{syncCustomerStart(1, 2, metering.Manual), handleProviderEventStart(1, 2, 7), holdInvoiceStart(1, 2, 5), eraseCustomerStart(1, 2)} {
		customer, _ := s.searchAttributes().GetKeyword(customerAttribute)
		require.Equal(t, "cus_2", customer, s.id)
		require.Contains(t, s.details, "/v1/customers/by-id?id=cus_2", s.id)
	}
	stranger := handleProviderEventStart(1, 0, 7)
	require.False(t, stranger.searchAttributes().ContainsKey(customerAttribute))
	require.NotContains(t, stranger.details, "cus_")
}

// TestScheduledSyncsHaveLowerPriority checks that scheduled syncs have a lower priority than syncs requested by a
// user or for a held invoice. Only the API starts urgent runs of provider events.
func TestScheduledSyncsHaveLowerPriority(t *testing.T) {
	for trigger, want := range map[metering.Trigger]int{metering.Manual: interactive, metering.ByProvider: interactive, metering.Scheduled: background} {
		require.Equal(t, want, syncCustomerStart(1, 2, trigger).fairPriority().PriorityKey)
	}
	require.Equal(t, background, handleProviderEventStart(1, 2, 7).fairPriority().PriorityKey)
}
