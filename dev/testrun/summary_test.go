package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSummaryListsFailedTestsAndBuilds checks the summary of go test -json for two packages: a subtest of one fails,
// and the other does not compile.
func TestSummaryListsFailedTestsAndBuilds(t *testing.T) {
	t.Parallel()
	const p = `"Package":"` + modulePath + `/db"`
	var out bytes.Buffer
	s := &summary{out: &out}
	require.NoError(t, s.read(strings.NewReader(strings.Join([]string{
		`{"Action":"run",` + p + `,"Test":"TestA"}`,
		`{"Action":"output",` + p + `,"Test":"TestA","Output":"of a test that passes\n"}`,
		`{"Action":"pass",` + p + `,"Test":"TestA","Elapsed":1.5}`,
		`{"Action":"output",` + p + `,"Test":"TestB/Case","Output":"why it fails\n"}`,
		`{"Action":"fail",` + p + `,"Test":"TestB/Case","Elapsed":2}`,
		`{"Action":"fail",` + p + `,"Test":"TestB","Elapsed":2.5}`,
		`{"Action":"skip",` + p + `,"Test":"TestC","Elapsed":0}`,
		`{"Action":"output",` + p + `,"Output":"FAIL\n"}`,
		`{"Action":"output",` + p + `,"Output":"FAIL\tdb\t4.0s\n"}`,
		`{"Action":"fail",` + p + `,"Elapsed":4}`,
		`{"Action":"build-output","ImportPath":"api","Output":"api/x.go:1: undefined: y\n"}`,
		`{"Action":"build-fail","ImportPath":"api"}`,
		`{"Action":"fail","Package":"api","FailedBuild":"api"}`,
	}, "\n"))))
	s.print()
	printed := out.String()
	require.True(t, s.failed())
	require.NotContains(t, printed, "of a test that passes")
	require.Contains(t, printed, "FAIL: db.TestB/Case\nwhy it fails\n")
	require.Contains(t, printed, "FAIL\tdb\t4.0s\n")
	require.Contains(t, printed, "api/x.go:1: undefined: y\n")
	require.Contains(t, printed, "skipped: db.TestC\n")
	require.Contains(t, printed, "2 packages: 1 passed, 2 failed, 1 skipped")
	require.Contains(t, printed, "slowest: db.TestB 2.5 s, db.TestA 1.5 s, db.TestC 0.0 s; repeat one alone: make test-one TEST='db.TestB/Case'\n")
}

// TestPanickedPackageShowsItsUnfinishedTests checks that the summary shows the output of a test that was
// running when its package panicked. go test -json reports no result of such a test.
func TestPanickedPackageShowsItsUnfinishedTests(t *testing.T) {
	t.Parallel()
	const p = `"Package":"` + modulePath + `"`
	var out bytes.Buffer
	s := &summary{out: &out}
	require.NoError(t, s.read(strings.NewReader(strings.Join([]string{
		`{"Action":"fail",` + p + `,"Test":"TestB","Elapsed":1}`,
		`{"Action":"output",` + p + `,"Test":"TestA","Output":"panic: so\n"}`,
		`{"Action":"fail",` + p + `,"Elapsed":4}`,
	}, "\n"))))
	require.Equal(t, 2, s.failureCount())
	require.Contains(t, out.String(), "FAIL: .TestA\npanic: so\n")
}

func TestTestNameMayIncludeFolder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"db.TestX":                   {"db", "TestX"},
		"db.TestX/Case 1.5":          {"db", "TestX/Case 1.5"},
		"cmd/odometer.TestX":         {"cmd/odometer", "TestX"},
		".TestX":                     {"", "TestX"},
		"TestX":                      {"", "TestX"},
		"client.ExampleRecorder":     {"client", "ExampleRecorder"},
		"dev/testrun.TestX/a.TestYs": {"dev/testrun", "TestX/a.TestYs"},
	} {
		parts := testName.FindStringSubmatch(text)
		require.NotNil(t, parts, text)
		require.Equal(t, want, [2]string(parts[1:]), text)
	}
	require.Nil(t, testName.FindStringSubmatch("db"))
}
