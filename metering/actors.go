package metering

// Actor is who asked for a change: "key_12", "sec_3", "member_12", or
// "operator" at the command line.
type Actor string

// Operator is whoever runs the odometer command itself.
const Operator Actor = "operator"

// Stranger is whoever has not proved who they are.
const Stranger Actor = "stranger"

// Scheduler is the service itself, when it is time.
const Scheduler Actor = "schedule"
