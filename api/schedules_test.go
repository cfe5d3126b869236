package api_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	temporal "go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
)

// fakeSchedules stores schedules in memory. Its methods return errors while Temporal is down.
type fakeSchedules struct {
	temporal.ScheduleClient
	mu    sync.Mutex
	fake  *fakeTemporal
	all   map[string]*temporal.ScheduleDescription
	drops atomic.Bool // drops updates without an error, as Temporal does with the later of two concurrent ones
}

func (f *fakeTemporal) ScheduleClient() temporal.ScheduleClient { return &f.schedules }

func (s *fakeSchedules) Create(_ context.Context, options temporal.ScheduleOptions) (temporal.ScheduleHandle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fake.down.Load() {
		return nil, errDown
	}
	if s.all[options.ID] != nil {
		return nil, sdk.ErrScheduleAlreadyRunning
	}
	s.all[options.ID] = &temporal.ScheduleDescription{
		Schedule: temporal.Schedule{Spec: &options.Spec, State: &temporal.ScheduleState{Paused: options.Paused, Note: options.Note}},
		Info:     temporal.ScheduleInfo{NextActionTimes: []time.Time{time.Now().Add(time.Hour)}},
	}
	return nil, nil
}

// every returns the intervals of all schedules.
func (s *fakeSchedules) every() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, schedule := range s.all {
		for _, interval := range schedule.Schedule.Spec.Intervals {
			all = append(all, interval.Every)
		}
	}
	return all
}

func (s *fakeSchedules) GetHandle(_ context.Context, id string) temporal.ScheduleHandle {
	return &fakeHandle{schedules: s, id: id}
}

// fakeHandle reads and changes one schedule.
type fakeHandle struct {
	temporal.ScheduleHandle
	schedules *fakeSchedules
	id        string
}

// change calls fn with the schedule, or returns an error if there is none or Temporal is down.
func (h *fakeHandle) change(fn func(*temporal.ScheduleDescription)) error {
	h.schedules.mu.Lock()
	defer h.schedules.mu.Unlock()
	if h.schedules.fake.down.Load() {
		return errDown
	}
	schedule := h.schedules.all[h.id]
	if schedule == nil {
		return serviceerror.NewNotFound("no such schedule")
	}
	fn(schedule)
	return nil
}

func (h *fakeHandle) Delete(context.Context) error {
	return h.change(func(*temporal.ScheduleDescription) { delete(h.schedules.all, h.id) })
}

func (h *fakeHandle) Update(_ context.Context, options temporal.ScheduleUpdateOptions) error {
	return h.change(func(d *temporal.ScheduleDescription) {
		if update, err := options.DoUpdate(temporal.ScheduleUpdateInput{Description: *d}); err == nil && !h.schedules.drops.Load() {
			d.Schedule = *update.Schedule
		}
	})
}

// errForgets is the error that Pause and Unpause of the fake return. Temporal itself returns no error, and keeps only
// the last of concurrent requests to trigger, pause or resume a schedule. So a requested run could be lost.
var errForgets = errors.New("a run that was asked for at this moment would never begin")

func (h *fakeHandle) Pause(context.Context, temporal.SchedulePauseOptions) error { return errForgets }

func (h *fakeHandle) Unpause(context.Context, temporal.ScheduleUnpauseOptions) error {
	return errForgets
}

func (h *fakeHandle) Trigger(context.Context, temporal.ScheduleTriggerOptions) error {
	return h.change(func(d *temporal.ScheduleDescription) {
		d.Info.RecentActions = append(d.Info.RecentActions, temporal.ScheduleActionResult{
			ActualTime: time.Now(), StartWorkflowResult: &temporal.ScheduleWorkflowExecution{WorkflowID: h.id + "-run"},
		})
	})
}

func (h *fakeHandle) Describe(context.Context) (*temporal.ScheduleDescription, error) {
	var described temporal.ScheduleDescription
	err := h.change(func(d *temporal.ScheduleDescription) { described = *d })
	return &described, err
}
