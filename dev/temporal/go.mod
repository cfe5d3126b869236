// The official Temporal CLI, whose `server start-dev` is the development server.
// A module of its own, so that the server never enters the service's dependencies. Not
// tidied: it names what was chosen, and go.sum pins the two hundred that follow.
module github.com/odometer-metering/odometer/dev/temporal

go 1.26.8

require github.com/temporalio/cli v1.8.2

// The CLI's own go.mod points cliext at a folder beside it, which only works in
// its own repository; this is the same code as a module.
replace github.com/temporalio/cli/cliext => github.com/temporalio/cli/cliext v0.0.0-20260731000218-c579925f193f
