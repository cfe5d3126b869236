// Package metering holds the words of the domain and its pure rules: what an
// event is, how a meter counts it, which hour, month and billing period it
// belongs to, and what it costs.
//
// It owns every rule that a billing clerk could state. It does no I/O, reads
// no clock and knows neither HTTP nor SQL: time is always a parameter, and
// amounts and quantities are exact decimals from the first byte to the last.
package metering
