package api

import "time"

// Maximum waits of requests for shared resources and for other services. These are variables because tests use longer
// waits, so that they do not fail on a busy machine.
var (
	hashingWait       = 5 * time.Second        // for the request's turn to hash a password
	bodyWait          = 2 * time.Second        // for memory for the body of an unauthenticated sender
	processorWait     = 10 * time.Second       // for the request's turn to decode a body
	heavyWait         = 10 * time.Second       // for the request's turn to read all customers, or a time series
	credentialTimeout = 5 * time.Second        // for the database to return a credential
	issuerTimeout     = 10 * time.Second       // for a response of a tenant's OIDC issuer
	warningsWait      = time.Second            // for the database to return the data for warnings about events
	redisTimeout      = 250 * time.Millisecond // for Redis to count a request
	compareTimeout    = 3 * time.Second        // for the provider to return prices, while a request that links a customer waits
	checkTimeout      = 3 * time.Second        // for the checks of GET /readyz
	auditTimeout      = 5 * time.Second        // for the audit log to record a refused request
	searchTime        = 2 * time.Second        // for the database to find the events of a page
)

// Maximum waits that tests do not extend.
const (
	defaultSyncWait = 25 * time.Second // for a requested sync to finish, before 202 is returned
	runWait         = 2 * time.Second  // for Temporal to start a workflow run; afterwards, a worker starts it
	runsWait        = 2 * time.Second  // for Temporal to start the workflow runs of several syncs
)
