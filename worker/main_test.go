package worker_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests side by side than there are processors: they wait
// for Temporal, for periods to end and for calls to time out.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
