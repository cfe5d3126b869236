// Package billing holds every rule about money and about what billing
// providers are reported: periods, prices and charges, what is to be reported
// next, what late usage adjusts, when a period closes, and the working of each
// amount. It decides from facts alone: it reads no database, no clock and no
// configuration, and knows no provider by name. The same facts always give the
// same plan, and carrying a plan out leaves facts whose plan is empty.
package billing
