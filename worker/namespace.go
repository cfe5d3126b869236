package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// NamespaceRetention is the time for which operators can read finished runs. Data that is needed
// for longer is in the database.
const NamespaceRetention = 90 * 24 * time.Hour

// namespaceTimeout is long enough for new search attributes to reach all caches of Temporal.
const namespaceTimeout = 2 * time.Minute

// PrepareNamespace registers the search attributes in an existing namespace, and lengthens the namespace's
// retention to at least retention. It never shortens the retention. It returns the retention before and
// after.
func PrepareNamespace(ctx context.Context, temporal client.Client, namespace string, retention time.Duration) (before, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	before, err = readRetention(ctx, temporal, namespace)
	if err != nil {
		return 0, 0, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	after = before
	if err := requireSearchAttributes(ctx, temporal, namespace); err != nil {
		return before, after, err
	}
	if before >= retention {
		return before, after, nil
	}
	_, err = temporal.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: namespace,
		Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
	})
	if err != nil {
		return before, after, fmt.Errorf("lengthen the retention of namespace %s: %w", namespace, err)
	}
	return before, retention, nil
}

// checkNamespace returns an error if queries cannot use the search attributes. It logs a warning if the
// namespace keeps finished runs for less than NamespaceRetention. The worker does not change the retention,
// because a longer retention costs storage and other services can share the namespace.
func checkNamespace(ctx context.Context, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	namespace := config.namespace()
	if err := requireSearchAttributes(ctx, config.Temporal, namespace); err != nil {
		return err
	}
	retention, err := readRetention(ctx, config.Temporal, namespace)
	switch {
	case err != nil:
		config.Log.WarnContext(ctx, "the worker could not read the retention of the Temporal namespace", "namespace", namespace, "error", err)
	case retention < NamespaceRetention:
		config.Log.WarnContext(ctx, "the Temporal namespace keeps finished runs for less than 90 days; run the command to lengthen its retention",
			"namespace", namespace, "retention", metering.FormatDays(retention),
			"command", "TEMPORAL_NAMESPACE="+namespace+" odometer temporal prepare --retention "+metering.FormatDays(NamespaceRetention))
	}
	return nil
}

// requireSearchAttributes registers the search attributes, and waits until queries can use them. Without
// permission to register them, it returns an error if they do not exist.
func requireSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	notRegistered := registerSearchAttributes(ctx, temporal, namespace)
	names := slices.Sorted(maps.Keys(workflows.SearchAttributes()))
	query := strings.Join(names, " = '' or ") + " = ''"
	for {
		_, err := temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query})
		var unknown *serviceerror.InvalidArgument
		if !errors.As(err, &unknown) {
			return err
		}
		if notRegistered != nil || ctx.Err() != nil {
			return fmt.Errorf("the Temporal namespace %[1]s needs the search attributes %[2]s; run TEMPORAL_NAMESPACE=%[1]s odometer temporal prepare, or create them with the type Keyword: %[3]w",
				namespace, strings.Join(names, ", "), errors.Join(notRegistered, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// registerSearchAttributes registers the search attributes, unless they are already registered.
func registerSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	_, err := temporal.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace:        namespace,
		SearchAttributes: workflows.SearchAttributes(),
	})
	var exists *serviceerror.AlreadyExists
	if errors.As(err, &exists) {
		return nil
	}
	return err
}

// readRetention returns the time for which the namespace keeps finished runs.
func readRetention(ctx context.Context, temporal client.Client, namespace string) (time.Duration, error) {
	described, err := temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	return described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), err
}

func (c Config) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}
