// Package metering defines the types of the domain and its rules without side effects: events, meters,
// usage windows, tenants, customers and their limits.
//
// It does no I/O, reads no clock and uses neither HTTP nor SQL. Time is always a parameter, and quantities
// and amounts are exact decimals.
package metering
