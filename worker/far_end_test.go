package worker_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/contract"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// farEnd is the receiver of the statements.
type farEnd struct {
	t   testing.TB
	url string
}

// newFarEnd starts a receiver.
func newFarEnd(t testing.TB) farEnd {
	server := httptest.NewServer(receiver.New(webhookSecret))
	t.Cleanup(server.Close)
	return farEnd{t, server.URL}
}

// behave sets how the receiver answers the next deliveries.
func (f farEnd) behave(behaviour string) {
	f.t.Helper()
	response, err := http.Post(f.url+"/behave", "application/json", strings.NewReader(behaviour))
	require.NoError(f.t, err)
	response.Body.Close()
	require.Equal(f.t, http.StatusNoContent, response.StatusCode)
}

// received returns all deliveries, and requires that they match the contract.
func (f farEnd) received() []receiver.Delivery {
	f.t.Helper()
	response, err := http.Get(f.url + "/received")
	require.NoError(f.t, err)
	defer response.Body.Close()
	var deliveries []receiver.Delivery
	require.NoError(f.t, json.NewDecoder(response.Body).Decode(&deliveries))
	for _, d := range deliveries {
		require.NoError(f.t, contract.Message([]byte(d.Body)), d.Body)
	}
	return deliveries
}

// statements returns the bodies of the received statements without repeats. A worker sends a statement again if the
// answer takes too long.
func (f farEnd) statements() (bodies []string) {
	f.t.Helper()
	for _, d := range f.received() {
		if !slices.Contains(bodies, d.Body) {
			bodies = append(bodies, d.Body)
		}
	}
	return bodies
}

// billed returns the usage that the receiver would put on each customer's invoice: the last total by sequence.
// It fails if a sequence arrived with two bodies.
func (f farEnd) billed() map[string]string {
	f.t.Helper()
	type message struct {
		Data struct {
			Customer string `json:"customer_external_id"`
			Sequence int64
			Meters   []struct{ Usage json.Number }
		}
	}
	type place struct {
		customer string
		sequence int64
	}
	bodies, last, usage := map[place]string{}, map[string]int64{}, map[string]string{}
	for _, delivery := range f.received() {
		require.True(f.t, delivery.SignatureValid)
		var m message
		require.NoError(f.t, json.Unmarshal([]byte(delivery.Body), &m))
		at := place{m.Data.Customer, m.Data.Sequence}
		if before, seen := bodies[at]; seen {
			require.Equal(f.t, before, delivery.Body, "%s, sequence %d", at.customer, at.sequence)
		}
		bodies[at] = delivery.Body
		if at.sequence >= last[at.customer] {
			last[at.customer], usage[at.customer] = at.sequence, m.Data.Meters[0].Usage.String()
		}
	}
	return usage
}

// forget deletes the recorded deliveries.
func (f farEnd) forget() {
	f.t.Helper()
	request, err := http.NewRequest(http.MethodDelete, f.url+"/received", nil)
	require.NoError(f.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(f.t, err)
	response.Body.Close()
}
