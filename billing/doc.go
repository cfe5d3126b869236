// Package billing holds every rule about money and about the reports to billing
// providers: periods, prices, charges, the next reports, adjustments for late
// usage, the closing of periods, and the breakdown of each amount.
//
// The package works from facts alone: it reads no database, no clock and no
// configuration, and knows no provider by name. NewBooks compares the facts with
// the provider's final invoices. The table in routes.go decides whether a position,
// which is one meter in one billing period, is reported now, later, with a later
// period, or not at all. Statements do not use the table. The same facts always give
// the same plan. Planning again after each plan is carried out ends with an empty
// plan.
package billing
