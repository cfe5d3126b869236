package metering

// What stands for a reporting method where none of the provider's does.
const (
	InSnapshot = "snapshot"
	Adjusted   = "adjustment"   // what late usage adds to a closed period, in money
	Charged    = "invoice_item" // money on the next invoice, for usage of a period that is invoiced
)

// EntryStatus is where an entry stands in its life.
type EntryStatus string

const (
	EntryPrepared     EntryStatus = "prepared"
	EntrySent         EntryStatus = "sent" // it may have arrived
	EntryAcknowledged EntryStatus = "acknowledged"
	EntryConfirmed    EntryStatus = "confirmed" // seen in what the provider counted
	EntryRejected     EntryStatus = "rejected"
	EntryAmbiguous    EntryStatus = "ambiguous" // what the provider counted does not tell whether it arrived
)

// Values are all that an entry may be.
func (EntryStatus) Values() []EntryStatus {
	return []EntryStatus{EntryPrepared, EntrySent, EntryAcknowledged, EntryConfirmed, EntryRejected, EntryAmbiguous}
}
