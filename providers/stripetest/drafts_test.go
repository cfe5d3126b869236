package stripetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// TestDraftShowsUsageCountedAtItsCreation checks that a draft shows the usage that was counted when it
// was created. Its finalization an hour later counts the usage again.
func TestDraftShowsUsageCountedAtItsCreation(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	b.advanceTo(april)
	draft := b.newestInvoice()
	require.Equal(t, "draft", draft["status"])
	require.EqualValues(t, 250, draft["total"])
	require.Equal(t, true, draft["auto_advance"])

	b.reportCalls(20, april.Add(-time.Second))
	require.Equal(t, []string{"100 250"}, b.lines(draft["id"]))
	require.Equal(t, "300", b.Total(draft["id"].(string)).String(), "the control interface knows what it would bill now")
	b.advanceTo(april.Add(time.Hour))
	final := b.read("/v1/invoices/" + draft["id"].(string))
	require.Equal(t, "open", final["status"])
	require.EqualValues(t, april.Add(time.Hour).Unix(), final["status_transitions"].(map[string]any)["finalized_at"])
	require.Equal(t, []string{"120 300"}, b.lines(draft["id"]))

	b.reportCalls(5, april.Add(-time.Second))
	require.Equal(t, []string{"120 300"}, b.lines(draft["id"]), "nobody pays what comes later")
	require.Equal(t, "5", b.State().Accounts[0].Invoices[0].Lines[0].Late.String())
}

func TestDraftIsFinalizedAtItsScheduledTime(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.advanceTo(april)
	id := b.newestInvoice()["id"].(string)
	path := "/v1/invoices/" + id
	deadline := april.Add(6 * time.Hour)
	got := b.postModern(path, "automatically_finalizes_at", fmt.Sprint(deadline.Unix()))
	require.Equal(t, 200, got.status, got.message())
	require.EqualValues(t, deadline.Unix(), got.body["automatically_finalizes_at"])
	b.advanceTo(deadline.Add(-time.Second))
	require.Equal(t, "draft", b.read(path)["status"])
	b.reportCalls(10, april.Add(-time.Minute))
	b.advanceTo(deadline.Add(time.Minute))
	require.Equal(t, "open", b.read(path)["status"], "though nobody came")
	require.EqualValues(t, 25, b.read(path)["total"])
	require.Nil(t, b.callIn("2025-09-30.clover", key, "GET", path, "", "").body["automatically_finalizes_at"])
}

// TestDraftIsFinalizedByCall checks that a draft without auto_advance is finalized only by a call. If auto_advance is
// turned on again, the draft is finalized an hour later.
func TestDraftIsFinalizedByCall(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.advanceTo(april)
	path := "/v1/invoices/" + b.newestInvoice()["id"].(string)
	require.Equal(t, false, b.mustPost(path, "auto_advance", "false")["auto_advance"])
	b.advanceTo(april.Add(48 * time.Hour))
	require.Equal(t, "draft", b.read(path)["status"], "nothing finalizes it by itself")
	b.reportCalls(10, april.Add(-time.Minute))
	require.EqualValues(t, 25, b.mustPost(path + "/finalize")["total"])
	again := b.post(path + "/finalize")
	require.Equal(t, 400, again.status)
	require.Contains(t, again.message(), "already finalized")

	b.advanceTo(april.AddDate(0, 1, 0))
	second := "/v1/invoices/" + b.newestInvoice()["id"].(string)
	b.mustPost(second, "auto_advance", "false")
	b.advanceTo(april.AddDate(0, 1, 2))
	b.mustPost(second, "auto_advance", "true")
	b.Advance(time.Hour)
	require.Equal(t, "open", b.read(second)["status"], "an hour after it was switched on again")
}

func TestScheduledFinalizationTimeIsValidated(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.advanceTo(april)
	id := b.newestInvoice()["id"].(string)
	path, field := "/v1/invoices/"+id, "automatically_finalizes_at"
	at := func(d time.Duration) string { return fmt.Sprint(april.Add(d).Unix()) }
	for name, c := range map[string]struct {
		got     reply
		message string
	}{
		"an older version":       {b.post(path, field, at(time.Hour)), "Received unknown parameter: automatically_finalizes_at"},
		"the past":               {b.postModern(path, field, at(0)), "must be in the future"},
		"six years ahead":        {b.postModern(path, field, at(6*366*24*time.Hour)), "by at most 5 years"},
		"no time":                {b.postModern(path, field, "soon"), "Invalid integer"},
		"without automatic":      {b.postModern(path, field, at(time.Hour), "auto_advance", "false"), "when auto_advance is true"},
		"no such invoice":        {b.postModern("/v1/invoices/in_9", field, at(time.Hour)), "No such invoice"},
		"no such invoice's line": {b.post(path+"/lines/il_9", "amount", "5"), "No such line item"},
	} {
		require.Contains(t, []int{400, 404}, c.got.status, name)
		require.Contains(t, c.got.message(), c.message, name)
	}
	b.mustPost(path + "/finalize")
	require.Contains(t, b.postModern(path, field, at(time.Hour)).message(), "draft invoices")
	b.mustPost(path + "/void")
	require.Contains(t, b.post(path, "auto_advance", "true").message(), "always false for void invoices")
}

// TestEditedDraftLineIsBilledAsEdited checks that a line that a user edits on a draft is billed as edited.
func TestEditedDraftLineIsBilledAsEdited(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	item := b.charge("-30", "").body["id"].(string)
	b.advanceTo(april)
	path := "/v1/invoices/" + b.newestInvoice()["id"].(string)
	lines := b.firstPage(path + "/lines")
	require.EqualValues(t, 200, b.mustPost(path+"/lines/"+lines[0]["id"].(string), "amount", "200")["amount"])
	require.EqualValues(t, -10, b.mustPost(path+"/lines/"+lines[1]["id"].(string), "amount", "-10")["amount"])
	require.EqualValues(t, -10, b.read("/v1/invoiceitems/" + item)["amount"])
	b.reportCalls(20, april.Add(-time.Second))
	b.advanceTo(april.Add(time.Hour))
	require.EqualValues(t, 190, b.read(path)["total"])
	require.Equal(t, 400, b.post(path+"/lines/"+lines[0]["id"].(string), "amount", "1").status)
}

func TestInvoicesAndLinesAreListedByPages(t *testing.T) {
	t.Parallel()
	b := plain(t)
	for range 4 {
		require.Equal(t, 200, b.charge("1", "").status)
	}
	b.advanceTo(april.AddDate(0, 2, 0).Add(time.Hour))
	ids := fields(b.firstPage("/v1/invoices?customer=cus_1"), "id")
	require.Len(t, ids, 3)
	require.Equal(t, ids[1:], fields(b.firstPage("/v1/invoices?customer=cus_1&starting_after="+ids[0]), "id"))
	require.Equal(t, ids[:2], fields(b.firstPage("/v1/invoices?customer=cus_1&ending_before="+ids[2]), "id"))
	require.Equal(t, ids[1:2], fields(b.firstPage("/v1/invoices?limit=1&ending_before="+ids[2]), "id"))
	require.Equal(t, ids[:1], fields(b.firstPage(fmt.Sprintf("/v1/invoices?created[gt]=%d", april.AddDate(0, 1, 0).Unix())), "id"))
	require.Equal(t, ids, fields(b.firstPage("/v1/invoices?status=open&subscription=sub_1"), "id"))
	require.Empty(t, b.firstPage("/v1/invoices?status=draft"))
	require.Empty(t, b.firstPage("/v1/invoices?customer=cus_9"))

	path := "/v1/invoices/" + ids[2] + "/lines"
	lines := fields(b.firstPage(path), "id")
	require.Len(t, lines, 5)
	require.Equal(t, true, b.read(path + "?limit=4")["has_more"])
	require.Equal(t, lines[2:4], fields(b.firstPage(path+"?limit=2&starting_after="+lines[1]), "id"))
}

func TestTwoItemsOnOneMeterAreBothBilled(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) {
		in.Subscriptions[0].Items = append(in.Subscriptions[0].Items, stripetest.Item{ID: "si_2", Price: "price_better"})
	})
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"100 250", "100 200"}, b.lines(b.newestInvoice()["id"]))
}
