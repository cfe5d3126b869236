package api

const stripeEventsPath = "/v1/provider-webhooks/stripe/{tenant_id}"
