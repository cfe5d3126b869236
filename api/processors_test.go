package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// TestOnlyLargeBodiesWaitForProcessor reads bodies while another tenant occupies the only processor. A body of at most
// undelayedBytes bytes does not wait for the processor.
func TestOnlyLargeBodiesWaitForProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		processors := fair.NewShares[metering.TenantID](1)
		read := func(size int) error {
			body := &turns{ctx: t.Context(), body: strings.NewReader(strings.Repeat(" ", size)), processors: processors, tenant: 1}
			defer body.end()
			_, err := io.Copy(io.Discard, struct{ io.Reader }{body})
			return err
		}
		require.True(t, processors.Take(2, 1))
		began := time.Now()
		require.NoError(t, read(undelayedBytes), "a small body does not wait")
		require.Equal(t, began, time.Now())
		require.Equal(t, errBusy, read(undelayedBytes+1))
		require.Equal(t, processorWait, time.Since(began))

		done := make(chan error)
		go func() { done <- read(10 * undelayedBytes) }()
		synctest.Wait()
		processors.Give(2, 1)
		require.NoError(t, <-done)
		require.True(t, processors.Take(2, 1), "the turn has ended")
	})
}

// TestSlowBodyDoesNotOccupyProcessor checks that a slow client does not occupy a processor.
func TestSlowBodyDoesNotOccupyProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		processors := fair.NewShares[metering.TenantID](1)
		arriving, client := io.Pipe()
		body := &turns{ctx: t.Context(), body: arriving, processors: processors, tenant: 1}
		read := func() { _, _ = body.Read(make([]byte, 2*undelayedBytes)) }
		go read()
		_, err := client.Write(make([]byte, 2*undelayedBytes))
		require.NoError(t, err)
		synctest.Wait()
		require.False(t, processors.Take(2, 1), "what has come is decoded")
		go read()
		synctest.Wait()
		require.True(t, processors.Take(2, 1), "the rest has not come")
		processors.Give(2, 1)
		require.NoError(t, client.Close())
		synctest.Wait()
		body.end()
	})
}

// TestProcessorIsFreeAfterBodyIsDecoded checks that huma decodes a large body with a processor of the tenant, and
// that the processor is free while the operation runs and while an error is sent.
func TestProcessorIsFreeAfterBodyIsDecoded(t *testing.T) {
	t.Parallel()
	s := &server{processors: fair.NewShares[metering.TenantID](1)}
	isFree := func() bool {
		free := s.processors.Take(2, 1)
		if free {
			s.processors.Give(2, 1)
		}
		return free
	}
	var decodes, ran []bool // whether the processor was free
	config := document()
	config.Formats["application/json"] = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, into any) error {
		decodes = append(decodes, isFree())
		return unmarshal(data, into)
	}}
	mux := http.NewServeMux()
	service := humago.New(mux, config)
	service.UseMiddleware(s.decodeInTurn)
	type input struct {
		Body struct {
			Text string `json:"text"`
		}
	}
	huma.Register(service, post("test", "/test", MetersRead, "Test", ""), func(context.Context, *input) (*struct{}, error) {
		ran = append(ran, isFree())
		return nil, nil
	})
	send := func(body string) int {
		decodes, ran = nil, nil
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/test", strings.NewReader(body))
		x := &exchange{request: r}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
		require.True(t, isFree())
		return w.Code
	}
	require.Equal(t, http.StatusOK, send(`{"text":"`+strings.Repeat("x", undelayedBytes)+`"}`))
	require.Equal(t, []bool{false, false}, decodes)
	require.Equal(t, []bool{true}, ran)
	require.Equal(t, http.StatusOK, send(`{"text":""}`))
	require.Equal(t, []bool{true, true}, decodes)
	require.Equal(t, http.StatusUnprocessableEntity, send(`{"text":["`+strings.Repeat("x", undelayedBytes)+`"]}`))
	require.Equal(t, []bool{false, false}, decodes)
	require.Empty(t, ran)
}
