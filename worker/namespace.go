package worker

import (
	"context"
	"errors"
	"time"

	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/odometer-metering/odometer/workflows"
)

// retention is how long operators can look at runs that have ended. What must
// outlive it is in the database.
const retention = 90 * 24 * time.Hour

// prepareNamespace makes runs findable, and keeps them for long enough to be
// looked at. Syncs work without either, so that a refusal is a warning.
func prepareNamespace(ctx context.Context, config Config) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := registerSearchAttributes(ctx, config); err != nil {
		config.Log.WarnContext(ctx, "search attributes could not be registered: runs start without them", "error", err)
	}
	if err := lengthenRetention(ctx, config); err != nil {
		config.Log.WarnContext(ctx, "the namespace keeps ended runs for less than 90 days", "error", err)
	}
}

func registerSearchAttributes(ctx context.Context, config Config) error {
	_, err := config.Temporal.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace:        config.namespace(),
		SearchAttributes: workflows.SearchAttributes(),
	})
	var exists *serviceerror.AlreadyExists
	if errors.As(err, &exists) {
		return nil
	}
	return err
}

func lengthenRetention(ctx context.Context, config Config) error {
	described, err := config.Temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: config.namespace()})
	if err != nil {
		return err
	}
	if described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() >= retention {
		return nil
	}
	_, err = config.Temporal.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: config.namespace(),
		Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
	})
	return err
}

func (c Config) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}
