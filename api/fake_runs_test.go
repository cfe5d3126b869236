package api_test

import (
	"context"
	"encoding/json"
	"sync"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// fakeRuns contains the open workflow runs and the results of ended runs.
type fakeRuns struct {
	mu      sync.Mutex
	paused  map[string]bool // open runs, by workflow id
	updates []string
	pending []*workflowpb.PendingActivityInfo
	ended   map[string]any // results of ended runs, by workflow id
}

// begin opens a run, unless a run with this id is open.
func (r *fakeRuns) begin(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.paused[id]; !open {
		r.paused[id] = false
	}
}

// end ends a run with a result.
func (r *fakeRuns) end(id string, result any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paused, id)
	r.ended[id] = result
}

// in calls fn, or returns an error if no run with the id is open.
func (f *fakeTemporal) in(ctx context.Context, id string, fn func(r *fakeRuns)) error {
	if f.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.down.Load() {
		return errDown
	}
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	if _, open := f.runs.paused[id]; !open {
		return serviceerror.NewNotFound("no run is open")
	}
	fn(&f.runs)
	return nil
}

func (f *fakeTemporal) DescribeWorkflowExecution(ctx context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	described := &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: id}, Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		},
	}
	if f.result(id) != nil {
		described.WorkflowExecutionInfo.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
		return described, nil
	}
	return described, f.in(ctx, id, func(r *fakeRuns) { described.PendingActivities = r.pending })
}

// result returns the result of an ended run, or nil.
func (f *fakeTemporal) result(id string) any {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	return f.runs.ended[id]
}

func (f *fakeTemporal) GetWorkflow(_ context.Context, id, _ string) temporal.WorkflowRun {
	return fakeRun{result: f.result(id)}
}

// fakeRun is an ended run.
type fakeRun struct {
	temporal.WorkflowRun
	result any
}

func (r fakeRun) Get(_ context.Context, into any) error {
	text, err := json.Marshal(r.result)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (f *fakeTemporal) QueryWorkflow(ctx context.Context, id, _, _ string, _ ...any) (said converter.EncodedValue, err error) {
	if f.deaf.Load() { // as if no worker were running
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return said, f.in(ctx, id, func(r *fakeRuns) { said = fakeState(r.paused[id]) })
}

func (f *fakeTemporal) UpdateWorkflow(ctx context.Context, options temporal.UpdateWorkflowOptions) (temporal.WorkflowUpdateHandle, error) {
	return fakeUpdate{}, f.in(ctx, options.WorkflowID, func(r *fakeRuns) {
		r.updates = append(r.updates, options.UpdateName)
		r.paused[options.WorkflowID] = options.UpdateName == "pause"
	})
}

func (f *fakeTemporal) CancelWorkflow(ctx context.Context, id, _ string) error {
	return f.in(ctx, id, func(r *fakeRuns) { delete(r.paused, id) })
}

// fakeUpdate is a completed update of a run.
type fakeUpdate struct{ temporal.WorkflowUpdateHandle }

func (fakeUpdate) Get(context.Context, any) error { return nil }

// fakeState is a run's response to a query for its state.
type fakeState bool

func (s fakeState) HasValue() bool { return true }

func (s fakeState) Get(into any) error {
	text, err := json.Marshal(map[string]bool{"paused": bool(s)})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
