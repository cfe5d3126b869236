package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// TestComposeServicesRunAsWritten runs the services of docker-compose.yml without containers. It checks the output of
// the demo, a second run, the commands of README.md and the events of the fake of Stripe.
func TestComposeServicesRunAsWritten(t *testing.T) {
	h := startCompose(t)
	credentials := h.here.Replace("/var/lib/odometer-demo/credentials.json")
	c, err := configure(credentials, func(name string) string {
		if value := h.project.Services["demo"].Environment[name]; value != nil {
			return *value
		}
		return ""
	})
	require.NoError(t, err)

	t.Run("DemoPrintsCommandsToTry", func(t *testing.T) {
		printed := h.running["demo"].Stdout.(*bytes.Buffer).String()
		require.Regexp(t, `^The demo tenant has 8 customers, 3 meters and (\d+) events up to the last full hour; (\d+) of them are new.\n`, printed)
		for _, try := range slices.Concat(tries, stripeTries) {
			require.Contains(t, printed, indent(try.Command))
			require.Contains(t, printed, try.Answer)
		}
	})
	t.Run("SecondRunAddsNothing", func(t *testing.T) {
		now := time.Now()
		require.NoError(t, run(t.Context(), c, now, new(bytes.Buffer))) // a full hour may have ended since the demo ran
		var printed bytes.Buffer
		require.NoError(t, run(t.Context(), c, now, &printed))
		require.Equal(t, 2, strings.Count(printed.String(), "; 0 of them are new."))
	})
	t.Run("ReadmeCommandsGiveItsAnswers", func(t *testing.T) {
		readme := read(t, "README.md")
		for _, try := range tries {
			require.Contains(t, readme, try.Command)
			require.Contains(t, readme, try.Answer)
		}
		const times = 2
		for range times {
			tryAll(t, c)
		}
		require.Equal(t, times, deliveries(t, c, "hello-"))
	})
	t.Run("EventsOfStripeReachTenant", func(t *testing.T) {
		for _, s := range seed(stripeAccount(c)).Subscriptions {
			body := fmt.Sprintf(`{"type":"customer.subscription.updated","object":%q}`, s.ID)
			dbtest.Eventually(t, func() error { // Stripe also repeats an event after an error
				answer, err := http.Post(c.StripeURL+"/_webhook", "application/json", strings.NewReader(body))
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				var result struct{ Status int }
				if err := json.NewDecoder(answer.Body).Decode(&result); err != nil {
					return err
				}
				if result.Status != http.StatusOK {
					return fmt.Errorf("the tenant's endpoint returned %d", result.Status)
				}
				return nil
			})
		}
	})
}

// repeatingCurl is a shell function for a busy machine. It repeats a request while the requested sync is running, and
// while the API returns 503 because Temporal or the database does not respond.
const repeatingCurl = `curl() {
	for attempt in $(seq 200); do
		answer=$(command curl "$@")
		case $answer in
		*'"status":"requested"'* | *'"status":"running"'* | *'"code":"unavailable"'*) sleep 1 ;;
		*) break ;;
		esac
	done
	printf '%s' "$answer"
}
`

// tryAll runs the commands in one shell, as a reader would, and checks their output.
func tryAll(t *testing.T, c config) {
	t.Helper()
	second := time.Now().Unix()
	dbtest.Eventually(t, func() error { // customer ids contain the second, so each run needs another one
		if time.Now().Unix() == second {
			return fmt.Errorf("it is still %d", second)
		}
		return nil
	})
	script := new(strings.Builder)
	script.WriteString(repeatingCurl)
	fmt.Fprintf(script, "export ODOMETER_URL=%s ODOMETER_KEY=%s\n%s\n", c.BaseURL, c.AdminKey, stripeExport(c))
	all := slices.Concat(tries, stripeTries)
	for _, try := range all {
		fmt.Fprintf(script, "%s\necho; echo ---\n", try.Command)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", script.String()).CombinedOutput()
	require.NoError(t, err, string(out))
	answers := strings.Split(string(out), "---\n")
	for i, try := range all {
		require.Equal(t, try.Answer, strings.TrimSpace(answers[i]), try.Command)
	}
}

// deliveries returns the number of customers with the prefix for which the receiver has a statement. It
// checks the signature of each delivery, and the first meter of these customers' statements.
func deliveries(t *testing.T, c config, prefix string) int {
	t.Helper()
	answer, err := http.Get(c.ReceiverURL + "/received")
	require.NoError(t, err)
	defer answer.Body.Close()
	var received []receiver.Delivery
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&received))
	charged := make(map[string]bool)
	for _, d := range received {
		var message struct{ Data webhook.Statement }
		require.NoError(t, json.Unmarshal([]byte(d.Body), &message))
		require.True(t, d.SignatureValid)
		if customer := message.Data.CustomerExternalID; strings.HasPrefix(customer, prefix) {
			charged[customer] = true
			line := message.Data.Meters[0]
			require.Equal(t, []string{"api-calls", "1250", "0.02", "30"},
				[]string{line.MeterSlug, line.Usage.String(), line.UnitPrice.String(), line.Amount.String()})
		}
	}
	return len(charged)
}

// TestReadmeNamesEveryFolder also checks that README.md has at most 150 lines.
func TestReadmeNamesEveryFolder(t *testing.T) {
	readme := read(t, "README.md")
	require.LessOrEqual(t, strings.Count(readme, "\n"), 150)
	tracked, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", "*/*").Output()
	require.NoError(t, err)
	for folder := range strings.Lines(string(tracked)) {
		folder, _, _ = strings.Cut(folder, "/")
		if !strings.HasPrefix(folder, ".") {
			require.Regexp(t, `(?m)^`+regexp.QuoteMeta(folder)+`/`, readme)
		}
	}
}
