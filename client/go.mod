module github.com/odometer-metering/odometer/client

go 1.26.0

require (
	github.com/google/uuid v1.6.0 // keys of events (version 7)
	github.com/oapi-codegen/runtime v1.8.0 // parameters and answers of the generated client
)

require github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
