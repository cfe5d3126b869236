package billing

// Text explains a reason to users.
type Text struct {
	Message  string `json:"message"`   // the reason, as a clause after a name or a colon
	NextStep string `json:"next_step"` // the user's action, in sentences; begins with "Nothing: " if none is ever necessary
}

// table lists the codes of one type with their texts, in the order of docs/reasons.md.
type table[C ~string] []struct {
	code C
	Text
}

// codes returns the codes of the table, in its order.
func (t table[C]) codes() []C {
	all := make([]C, len(t))
	for i, row := range t {
		all[i] = row.code
	}
	return all
}

// textOf returns the text of a code. The message of an unknown code, which a newer version may have stored, is the code.
func (t table[C]) textOf(code C) Text {
	for _, row := range t {
		if row.code == code {
			return row.Text
		}
	}
	return Text{Message: string(code)}
}

const (
	nextPeriodBills = "Wait: the next period bills the usage. If the customer gets no further invoice, follow the next step in GET /v1/billing/reconciliation after the period closes."
	billIfUnrated   = "Wait until the period closes. If GET /v1/billing/unrated then lists the usage and the customer owes it, bill the usage outside of Odometer."

	differenceRollsForward = "Wait: the next period bills the difference. If the customer gets no further invoice, waive the difference, then bill it outside of Odometer."
	compareFinalInvoice    = "After the period closes, compare the final invoice with GET /v1/billing/reconciliation."
)

var exclusions = table[ExclusionCode]{
	{ExcludedBackfilling, Text{
		"the meter's earlier events are still being counted",
		"Wait: the meter is billed after the backfill. If GET /v1/billing/attention lists the meter, follow its action.",
	}},
	{ExcludedNotRead, Text{
		"the last read of the customer at the provider does not include the meter",
		"Sync the customer again. If the reason remains, add the meter's price to the customer's subscription at the provider.",
	}},
	{ExcludedOtherSubscription, Text{
		"another subscription of the customer bills the meter",
		"Wait: syncs report later usage with that subscription. If GET /v1/billing/unrated lists earlier usage after the period closes, bill that usage outside of Odometer.",
	}},
	{ExcludedNoTarget, Text{
		"nothing at the provider bills the meter for this customer",
		"Remove the cause, and sync the customer again before the period closes. After the close, GET /v1/billing/unrated lists the unbilled usage. If the cause is intended, do nothing.",
	}},
	{ExcludedSharedTarget, Text{
		"another meter reports to the same target at the provider",
		"Give each meter a price with its own target at the provider, and map the meter to that price with PUT /v1/billing/provider. " +
			"Remove the second price of the shared target from the subscription.",
	}},
	{ExcludedByOperator, Text{"an operator excluded the meter from this sync", "Nothing: the next sync reports the meter."}},
	{ExcludedPriceCurrency, Text{
		"the meter's price is not in the currency of the invoice",
		"Set a price in the invoice's currency for later periods. After this period closes, GET /v1/billing/unrated lists the usage: bill that usage outside of Odometer.",
	}},
	{ExcludedLateCurrency, Text{
		"late or rolled-forward usage of the meter is not in the currency of the invoice; the meter's other usage is reported",
		"Wait: the next invoice in that currency bills the usage. Bill the usage outside of Odometer only if the customer will get no such invoice, " +
			"because Odometer cannot cancel the adjustment.",
	}},
	{ExcludedRestored, Text{
		"the ledger was restored from a backup, and the provider's totals were not read since",
		"Nothing: the meter is reported after the provider's totals include every earlier report and Odometer has read them.",
	}},
	{ExcludedBeforeSubscription, Text{"the period lies outside the customer's current subscription", billIfUnrated}},
	{ExcludedInvoiceFinal, Text{"the period's invoice is final or is being finalized, and lacks some usage", nextPeriodBills}},
	{ExcludedPeriodOver, Text{"the period is over, and the provider accepts usage records only while the period runs", nextPeriodBills}},
	{ExcludedNoWindow, Text{"no usage window of the provider ends in the period, so the period's invoice cannot bill the usage", nextPeriodBills}},
	{ExcludedLineFinal, Text{"the meter's line is on a final invoice, and lacks some usage", nextPeriodBills}},
	{ExcludedNoInvoiceLine, Text{"the period's last invoice has no line for the meter, and accepts none", nextPeriodBills}},
	{ExcludedTooManyLines, Text{
		"the invoice has its maximum number of lines",
		"Wait: the next period bills the amount if its invoice has room. If the reason recurs, combine or archive meters.",
	}},
}

// holdReasons lists the codes of held invoices. HoldReason.Text replaces the placeholders {meter}, {ours}, {theirs} and
// {response} in the messages.
var holdReasons = table[HoldCode]{
	{HoldNotCounted, Text{
		"{meter}: the provider has accepted {ours} units and has counted {theirs}",
		"If the provider has counted less, wait. If it has counted more, find the other system that reports to the meter, because the invoice bills the provider's count.",
	}},
	{HoldOnItsWay, Text{
		"{meter}: a report is being sent, or its outcome is unknown",
		"Wait for the customer's sync. If the outcome stays unknown, find the report at the provider, and send the outcome with POST /v1/billing/reports/{id}/resolve.",
	}},
	{HoldSyncOpen, Text{"the customer is being synced", "Wait: the invoice is compared after the sync. If the customer is paused, resume the customer's sync."}},
	{HoldSyncFailed, Text{"the customer's sync has failed; it is retried automatically", "Read the error of the customer's latest sync, and correct its cause."}},
	{HoldExcluded, Text{
		"{meter}: the invoice bills the meter, but the meter's usage could not be reported",
		"Follow the next step of the excluded meter in the customer's latest sync, and sync again. The invoice is then compared again. Or release the invoice.",
	}},
	{HoldNoLine, Text{
		"{meter}: {ours} was reported, and no line of the invoice bills it",
		"Find out at the provider which invoice bills the meter, then release this invoice. Do not bill units by hand: if no invoice bills them, the next period does. " +
			"If an invoice item of Odometer was deleted, charge its amount at the provider.",
	}},
	{HoldPriceDiffers, Text{
		"{meter}: the provider charges {theirs} per unit, which is not the meter's price in Odometer",
		"If the invoice is right, release it. Otherwise, correct it at the provider. Correct the wrong price for later periods.",
	}},
	{HoldChargeDiffers, Text{"a line charges {theirs}, but the reported amount is {ours}", "Correct the line at the provider, or release the invoice unchanged."}},
	{HoldUnknownCharge, Text{
		"a line refers to a report that the ledger does not record as accepted",
		"Find the report by its id in the line's metadata. If its outcome is unknown, resolve it as accepted with POST /v1/billing/reports/{id}/resolve. " +
			"Otherwise, remove the line only if another line charges the same usage.",
	}},
	{HoldChanged, Text{
		"the draft was changed at the provider",
		"Sync the customer and check the draft. The draft becomes final automatically. To send the invoice earlier, finalize the draft at the provider.",
	}},
	{HoldRescheduled, Text{
		"the time at which the draft becomes final was changed at the provider; Odometer no longer changes it",
		"Nothing: the draft becomes final at the changed time. To send the invoice earlier, finalize the draft at the provider.",
	}},
	{HoldNotAutomatic, Text{"the provider does not finalize the draft automatically", "Sync the customer, then finalize the draft at the provider."}},
	{HoldInvoiceGone, Text{
		"the draft no longer exists at the provider",
		"If the customer owes the invoice, bill all its items at the provider, including usage: Odometer does not bill them again.",
	}},
	{HoldNotTaken, Text{"the invoice is not held: {response}", "Check the invoice at the provider before it becomes final."}},
	{HoldNotReleased, Text{"the invoice could not be released: {response}", "Correct the cause, or finalize the draft at the provider. The release is repeated automatically."}},
	{HoldTooLate, Text{"the invoice is not held: its deadline had passed when Odometer read it", compareFinalInvoice}},
	{HoldDeadlinePassed, Text{"the invoice became final at its deadline", compareFinalInvoice}},
	{HoldFinalizedThere, Text{"the invoice was finalized at the provider before it was released", compareFinalInvoice}},
	{HoldConnectionReplaced, Text{
		"the billing provider was replaced; the previous provider finalizes the invoice",
		"Finalize the draft at the previous provider if the invoice has to be sent earlier.",
	}},
}

var reconciliationReasons = table[ReconciliationReason]{
	{ReasonUnreported, Text{"not all usage was reported before the last invoice was final", differenceRollsForward}},
	{ReasonNotBilled, Text{"the provider accepted more than its invoices bill", differenceRollsForward}},
	{ReasonSubscriptionEnded, Text{
		"the subscription ended, and no invoice bills the usage",
		"If the customer does not owe the usage, waive the difference. If the customer gets no new subscription, waive the difference, then bill it outside of Odometer. " +
			"Otherwise, wait: the new subscription bills the difference.",
	}},
	{ReasonUsageDecreased, Text{
		"usage decreased after it was reported",
		"In quantities, wait: the next period credits the difference. In amounts, or if the customer gets no further invoice, waive the difference, then credit it at the provider.",
	}},
	{ReasonVoid, Text{
		"an invoice of the period was voided or credited in full",
		"If the customer owes the void part and no other invoice bills it, rebill the difference. Otherwise, do nothing.",
	}},
	{ReasonBilledMore, Text{
		"the invoices bill more than was reported",
		"Find out at the provider which other system reports usage, or which line was edited. Credit the excess at the provider if the customer does not owe it, then waive the difference.",
	}},
	{ReasonLineEdited, Text{
		"a line was edited at the provider, and bills less than the reported amount",
		"If the customer owes the difference and no other invoice bills it, rebill the difference. Otherwise, do nothing.",
	}},
	{ReasonOtherAmount, Text{
		"the invoices bill the reported units at an amount that is not their price at the provider",
		"Compare the invoice with the price at the provider. Credit the excess at the provider if the customer does not owe it, then waive the difference.",
	}},
}

var unratedReasons = table[UnratedReason]{
	{BeforeFirstPeriod, Text{"the usage is older than the customer's first billing period", "Bill the usage outside of Odometer."}},
	{NoPrice, Text{
		"neither the meter, the customer's plan nor the customer has a price",
		"Set a price; for a free meter, a price of 0. The meter's first price also charges open periods. Bill usage of a closed period outside of Odometer.",
	}},
	{NoProvider, Text{"the tenant has no billing provider", "Save a provider with PUT /v1/billing/provider."}},
	{NoProviderLink, Text{"the customer has no billing_provider_id", "Set the customer's billing_provider_id with PUT /v1/customers/{external_id}/upsert."}},
	{NoSubscriptionItem, Text{"the provider accepts no usage of the meter for the customer", "Follow the next step of each line of GET /v1/billing/unrated."}},
	{BeforeSubscription, Text{"the period lies outside the customer's current subscription", billIfUnrated}},
	{ClosedUnbilled, Text{"no provider would bill the usage when the period closed", "If the customer owes the usage, bill it outside of Odometer."}},
	{UnpricedDimension, Text{
		"no price in dimensions charges usage with these values",
		"Add a price for these values, or a default, to dimensions of the meter's price. Set its start to the start of the open period or earlier. " +
			"Bill usage of a closed period, or of the group $other, outside of Odometer.",
	}},
	{UnratedUnknown, Text{"unrated usage could not be computed", "Call GET /v1/billing/unrated/totals, which returns the cause."}},
}
