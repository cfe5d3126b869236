package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/odometer-metering/odometer/client"
)

var errWork = errors.New("the model failed")

func TestReserveSettlesOrReleasesReservation(t *testing.T) {
	t.Parallel()

	t.Run("SettlesWithTheEventsOfTheWork", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		if err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), recordCall); err != nil {
			t.Fatal(err)
		}
		requireSettled(t, s, 1)
		for _, events := range s.settled {
			if e := events[0]; e.CustomerId != "acme" || e.IdempotencyKey == nil || e.Timestamp == nil {
				t.Fatalf("%+v", e)
			}
		}
	})

	t.Run("SettlesEventsOfWorkThatFails", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), func(ctx context.Context, r *client.HeldReservation) error {
			return errors.Join(recordCall(ctx, r), errWork)
		})
		if !errors.Is(err, errWork) {
			t.Fatal(err)
		}
		requireSettled(t, s, 1)
	})

	t.Run("ReleasesWithoutEvents", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []error{nil, errWork} {
			s := newQuotaService(10)
			err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), func(context.Context, *client.HeldReservation) error { return failure })
			if !errors.Is(err, failure) || len(s.held)+len(s.settled) != 0 || s.count("release") != 1 {
				t.Fatalf("%v; %d held, %d settled", err, len(s.held), len(s.settled))
			}
		}
	})

	t.Run("EndsTheReservationOfWorkThatPanics", func(t *testing.T) {
		t.Parallel()
		for _, records := range []bool{false, true} {
			s := newQuotaService(10)
			func() {
				defer func() {
					if recover() != "panic of the work" {
						t.Error("the panic is lost")
					}
				}()
				_ = quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), func(ctx context.Context, r *client.HeldReservation) error {
					if records {
						_ = recordCall(ctx, r)
					}
					panic("panic of the work")
				})
			}()
			if settled := len(s.settled) == 1; settled != records || len(s.held) != 0 {
				t.Fatalf("records %t: %d settled, %d held", records, len(s.settled), len(s.held))
			}
		}
	})

	t.Run("DoesNotCallTheWorkBeyondAQuota", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(4)
		err := quotasOf(t, s, client.OnErrorAllow, 0).Reserve(t.Context(), usage(), unexpected(t))
		if exceeded, ok := errors.AsType[*client.QuotaExceededError](err); !ok || exceeded.Remaining != "4" {
			t.Fatal(err)
		}
	})

	t.Run("RepeatsWithOneIDUntilItIsAnswered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(5) // a second reservation would not fit
			s.failures["reserve"] = []int{lost, http.StatusServiceUnavailable, lost}
			s.failures["settle"] = []int{hang, lost, http.StatusTooManyRequests, http.StatusUnauthorized}
			if err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), recordCall); err != nil {
				t.Fatal(err)
			}
			requireSettled(t, s, 1)
			if s.count("reserve") != 4 || s.count("settle") != 5 {
				t.Fatalf("%q", s.requests)
			}
		})
	})

	t.Run("ExtendsAtHalfOfTheExpiry", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			s.failures["extend"] = []int{http.StatusOK, noAnswer}
			began := time.Now()
			var extended []time.Duration
			s.before = func(last string) {
				if last == "extend" {
					extended = append(extended, time.Since(began))
				}
			}
			request := usage()
			request.ExpiresIn = new(int64(60))
			err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), request, func(ctx context.Context, r *client.HeldReservation) error {
				time.Sleep(110 * time.Second)
				return recordCall(ctx, r)
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []time.Duration{30 * time.Second, 75 * time.Second, 105 * time.Second} // the attempt at 60 s failed
			if len(extended) != 3 || extended[0] != want[0] || extended[1] != want[1] || extended[2] != want[2] {
				t.Fatalf("extended at %s", extended)
			}
		})
	})

	t.Run("SettlesAlsoAfterTheContextHasEnded", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		ctx, cancel := context.WithCancel(t.Context())
		err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(ctx, usage(), func(ctx context.Context, r *client.HeldReservation) error {
			cancel()
			return recordCall(ctx, r)
		})
		if err != nil {
			t.Fatal(err)
		}
		requireSettled(t, s, 1)
	})

	t.Run("ReturnsTheEventsThatAreNotSettled", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			s.failures["settle"] = []int{hang, hang, hang, hang, hang}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(ctx, usage(), recordCall)
			failed, ok := errors.AsType[*client.SettleError](err)
			if !ok || len(failed.Events) != 1 || s.held[failed.ReservationID] != 5 {
				t.Fatal(err)
			}
		})
	})

	t.Run("ReturnsTheEventsThatAreRefused", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		s.failures["settle"] = []int{http.StatusUnprocessableEntity}
		err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), recordCall)
		if failed, ok := errors.AsType[*client.SettleError](err); !ok || len(failed.Events) != 1 || s.count("settle") != 1 || len(s.held) != 0 {
			t.Fatal(err)
		}
	})

	t.Run("DeniesWithoutAnAnswer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			s.failures["reserve"] = []int{hang}
			err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), unexpected(t))
			if !errors.Is(err, client.ErrUnavailable) {
				t.Fatal(err)
			}
		})
	})

	t.Run("DoesNotCallTheWorkAfterTheContextHasEnded", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		s.failures["reserve"] = []int{hang}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := quotasOf(t, s, client.OnErrorAllow, 0).Reserve(ctx, usage(), unexpected(t))
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})

	t.Run("StoresTheEventsOfWorkThatIsAllowedWithoutAnAnswer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			s.failures["reserve"], s.failures["batch"] = []int{hang}, []int{http.StatusNotFound, lost}
			if err := quotasOf(t, s, client.OnErrorAllow, 0).Reserve(t.Context(), usage(), recordCall); err != nil {
				t.Fatal(err)
			}
			if len(s.stored) != 2 || *s.stored[0].IdempotencyKey != *s.stored[1].IdempotencyKey {
				t.Fatalf("%+v", s.stored)
			}
		})
	})

	t.Run("RefusesMoreThan1000EventsAndEventsAfterTheEnd", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		var kept *client.HeldReservation
		err := quotasOf(t, s, client.OnErrorDeny, 0).Reserve(t.Context(), usage(), func(_ context.Context, r *client.HeldReservation) error {
			kept = r
			for range 1000 {
				if err := r.Record(client.Event{EventType: "call"}); err != nil {
					return err
				}
			}
			return r.Record(client.Event{EventType: "call"})
		})
		if !errors.Is(err, client.ErrTooManyEvents) || !errors.Is(kept.Record(client.Event{}), client.ErrReservationEnded) {
			t.Fatal(err)
		}
		requireSettled(t, s, 1000)
	})
}

// unexpected returns work that fails the test if it is called.
func unexpected(t *testing.T) func(context.Context, *client.HeldReservation) error {
	return func(context.Context, *client.HeldReservation) error {
		t.Error("the work was called")
		return nil
	}
}

// requireSettled requires that one reservation was settled with this number of events, and that none is held.
func requireSettled(t *testing.T, s *quotaService, events int) {
	t.Helper()
	if len(s.held) != 0 || len(s.settled) != 1 {
		t.Fatalf("%d held, %d settled", len(s.held), len(s.settled))
	}
	for id := range s.settled {
		if len(s.settled[id]) != events {
			t.Fatalf("%d events, not %d", len(s.settled[id]), events)
		}
	}
}
