package api

import "time"

// The times for which a request waits for a shared resource. These are variables because tests
// wait longer: a busy machine is no failure.
var (
	hashingWait       = 5 * time.Second        // for its turn to hash a password
	bodyWait          = 2 * time.Second        // for room among the bodies of unverified senders
	processorWait     = 10 * time.Second       // for its turn to decode a body
	heavyWait         = 10 * time.Second       // for its turn to read all customers
	credentialTimeout = 5 * time.Second        // for the database to find a credential
	issuerTimeout     = 10 * time.Second       // for a tenant's OIDC issuer to answer
	warningsWait      = time.Second            // for the database to read what the warnings about events need
	redisTimeout      = 250 * time.Millisecond // for Redis to count a request
)
