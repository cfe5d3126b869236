package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
)

type customer struct {
	ID                string          `json:"id" example:"cus_42"`
	TenantID          string          `json:"tenant_id" example:"ten_1"`
	ExternalID        string          `json:"external_id"`
	Name              string          `json:"name"`
	BillingProviderID *string         `json:"billing_provider_id" doc:"Id of the customer at the billing provider"`
	Metadata          json.RawMessage `json:"metadata"`
	CreatedAt         time.Time       `json:"created_at"`
	ErasedAt          *time.Time      `json:"erased_at" doc:"Time at which personal data was erased. Null if the customer is not erased"`
	ArchivedAt        *time.Time      `json:"archived_at" doc:"Time at which the customer was archived. Null if the customer is not archived"`

	// PriceComparison is set if the customer is linked to a provider that has its own prices.
	PriceComparison *priceComparison `json:"price_comparison,omitempty"`
}

func showCustomer(c metering.Customer) customer {
	return customer{
		ID: c.ID.String(), TenantID: c.TenantID.String(), ExternalID: c.ExternalID, Name: c.Name,
		BillingProviderID: c.BillingProviderID, Metadata: c.Metadata, CreatedAt: c.CreatedAt.UTC(), ArchivedAt: utcOrNil(c.ArchivedAt), ErasedAt: utcOrNil(c.ErasedAt),
	}
}

type customerOutput struct {
	Status int
	Body   customer
}

type listCustomersOutput struct{ Body List[customer] }

func (s *server) registerCustomers() {
	huma.Register(s.api, get("list-customers", "/v1/customers", CustomersRead, "List customers",
		"Customers are listed in order of creation. Archived customers are included only with `archived=true`."), s.listCustomers)
	huma.Register(s.api, created(post("create-customer", "/v1/customers", CustomersWrite, "Create a customer",
		"Returns 409 if the `external_id` is already in use.\n\n"+
			"- The first event of an unknown customer also creates the customer, unless the tenant is strict.\n"+
			"- `billing_provider_id` decides which customer the provider charges. Setting it needs the permission `billing:write`.")), s.createCustomer)
	huma.Register(s.api, get("get-customer-by-external-id", "/v1/customers/by-external-id", CustomersRead, "Get a customer by an external ID that does not fit in a path",
		"Use this path for an external ID that contains a slash, or that is `.`, `..`, `by-id` or `by-external-id`.\n\n"+
			"Every other path with an external ID accepts `by-external-id` in its place, with the ID in the query parameter `external_id`. Example: `PUT "+
			"/v1/customers/by-external-id/plan?external_id=a%2Fb`."), s.customerByExternalID)
	huma.Register(s.api, get("get-customer-by-id", "/v1/customers/by-id", CustomersRead, "Get a customer by its id",
		"This API assigned the `id`, such as `cus_12`. Erased customers are found too."), s.customerByID)
	huma.Register(s.api, get("get-customer", "/v1/customers/{external_id}", CustomersRead, "Get a customer",
		"The `external_id` is your own name for the customer. Events send it as `customer_id`."), s.getCustomer)
	huma.Register(s.api, put("upsert-customer", "/v1/customers/{external_id}/upsert", CustomersWrite, "Create or update a customer",
		"Updates the fields that the body contains and keeps the other fields. Creates the customer if it does not exist."), s.upsertCustomer)
	s.describeStatus("/v1/customers/{external_id}/upsert", "201", "Created")
}

func (s *server) listCustomers(ctx context.Context, in *struct {
	Paging
	Archivable
	Search string `query:"search" maxLength:"255" doc:"Part of the name or external ID, in upper or lower case. A complete id of the customer, in Odometer or at the billing provider, also matches"`
}) (*listCustomersOutput, error) {
	if !storable(in.Search) {
		return nil, metering.Invalid("query.search", "must be UTF-8 without NUL")
	}
	var after metering.CustomerID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	customers, err := s.Store.Customers.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize, in.Archived, in.Search)
	if err != nil {
		return nil, err
	}
	cursorOf := func(c metering.Customer) metering.CustomerID { return c.ID }
	return &listCustomersOutput{listOf(ctx, s, customers, showCustomer, cursorOf)}, nil
}

type createCustomerInput struct {
	Repeatable
	Body struct {
		ExternalID        string          `json:"external_id" minLength:"1" maxLength:"255" doc:"Your own identifier of the customer"`
		Name              string          `json:"name,omitempty" maxLength:"255"`
		BillingProviderID *string         `json:"billing_provider_id,omitempty" maxLength:"255" doc:"Id of the customer at the billing provider"`
		Metadata          json.RawMessage `json:"metadata,omitempty"`
	}
}

func (s *server) createCustomer(ctx context.Context, in *createCustomerInput) (*customerOutput, error) {
	who := principalOf(ctx)
	if in.Body.BillingProviderID != nil && !BillingWrite.allows(who) {
		return nil, metering.Errorf(metering.CodeForbidden, "%s lacks permission %s, which body.billing_provider_id requires because it decides which customer is charged", who, BillingWrite)
	}
	linking, err := s.compareBefore(ctx, in.Body.ExternalID, in.Body.BillingProviderID)
	if err != nil {
		return nil, err
	}
	var id metering.CustomerID
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-customer", in.Body, func(within db.Creators) (customer, error) {
		if linking.refusal != nil {
			return customer{}, linking.refusal
		}
		c, err := within.Customers.Create(ctx, who.Tenant.ID, who.Actor, metering.Customer{
			ExternalID: in.Body.ExternalID, Name: in.Body.Name, BillingProviderID: in.Body.BillingProviderID, Metadata: in.Body.Metadata,
		}, s.Now())
		id = c.ID
		made := showCustomer(c)
		made.PriceComparison = linking.shown
		return made, err
	})
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.storeComparison(ctx, id, linking)
	}
	return &customerOutput{http.StatusCreated, shown}, nil
}

// byExternalID is the path segment of requests that send the external ID in the query instead of the path.
const byExternalID = "by-external-id"

// CustomerPath identifies a customer in a path.
type CustomerPath struct {
	InPath  string `path:"external_id" maxLength:"255" doc:"The customer's external ID, or by-external-id to send it in the query parameter external_id"`
	InQuery string `query:"external_id" maxLength:"255" doc:"The customer's external ID. Required if the path contains 'by-external-id', and not allowed otherwise. The IDs '.', '..' and 'by-external-id' can be sent only here. A path cannot contain the first two, and 'by-external-id' in a path refers to this parameter"`
}

// externalID returns the external ID in the path or the query.
func (p CustomerPath) externalID() (string, error) {
	switch {
	case p.InPath != byExternalID && p.InQuery != "":
		return "", metering.Invalid("query.external_id", "must be absent unless the path contains "+byExternalID)
	case p.InPath != byExternalID:
		return p.InPath, nil
	case p.InQuery == "":
		return "", metering.Invalid("query.external_id", "is required, because the path contains "+byExternalID)
	}
	return p.InQuery, nil
}

type customerByExternalIDInput struct {
	ExternalID string `query:"external_id" required:"true" maxLength:"255"`
}

func (s *server) customerByExternalID(ctx context.Context, in *customerByExternalIDInput) (*customerOutput, error) {
	c, err := s.customer(ctx, in.ExternalID)
	if err != nil {
		return nil, err
	}
	shown := showCustomer(c)
	shown.PriceComparison, err = s.savedComparison(ctx, c)
	return &customerOutput{http.StatusOK, shown}, err
}

type customerByIDInput struct {
	ID string `query:"id" required:"true" maxLength:"64" example:"cus_42" doc:"Id of the customer, as in other responses, messages and the audit log"`
}

func (s *server) customerByID(ctx context.Context, in *customerByIDInput) (*customerOutput, error) {
	id, _ := metering.ParseCustomerID(in.ID)
	c, err := s.Store.Customers.GetByID(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, withLocation("query.id", err)
	}
	return &customerOutput{http.StatusOK, showCustomer(c)}, nil
}

type getCustomerInput struct {
	ExternalID string `path:"external_id" maxLength:"255"`
}

func (s *server) getCustomer(ctx context.Context, in *getCustomerInput) (*customerOutput, error) {
	return s.customerByExternalID(ctx, &customerByExternalIDInput{in.ExternalID})
}

// customer returns the tenant's customer with this external ID. A text that the database cannot store returns
// CodeNotFound without a query.
func (s *server) customer(ctx context.Context, externalID string) (metering.Customer, error) {
	if !storable(externalID) {
		return metering.Customer{}, metering.Errorf(metering.CodeNotFound, "there is no customer with this external_id")
	}
	return s.Store.Customers.Get(ctx, principalOf(ctx).Tenant.ID, externalID)
}

// customerAt returns the tenant's customer that a path identifies.
func (s *server) customerAt(ctx context.Context, path CustomerPath) (metering.Customer, error) {
	externalID, err := path.externalID()
	if err != nil {
		return metering.Customer{}, err
	}
	return s.customer(ctx, externalID)
}

type upsertCustomerInput struct {
	CustomerPath
	Body CustomerFields
}

// CustomerFields is the body of an upsert. Absent fields keep their values.
type CustomerFields struct {
	ExternalID        *string         `json:"external_id,omitempty" maxLength:"255" doc:"If present, must equal the external ID of the path"`
	Name              *string         `json:"name,omitempty" maxLength:"255"`
	BillingProviderID SentText        `json:"billing_provider_id" required:"false" doc:"Id of the customer at the billing provider. Null removes it"`
	Metadata          json.RawMessage `json:"metadata,omitempty" doc:"Replaces the saved metadata"`
}

func (s *server) upsertCustomer(ctx context.Context, in *upsertCustomerInput) (*customerOutput, error) {
	who := principalOf(ctx)
	externalID, err := in.externalID()
	if err != nil {
		return nil, err
	}
	if in.Body.ExternalID != nil && *in.Body.ExternalID != externalID {
		return nil, metering.Invalid("body.external_id", "must equal the external_id of the path, or be absent")
	}
	mayLink, linking := BillingWrite.allows(who), linking{}
	if mayLink {
		if linking, err = s.compareBefore(ctx, externalID, in.Body.BillingProviderID.Text); err != nil {
			return nil, err
		}
	}
	if linking.refusal != nil {
		return nil, linking.refusal
	}
	c, made, err := s.Store.Customers.Upsert(ctx, who.Tenant.ID, who.Actor, externalID, catalog.CustomerChange{
		Name: in.Body.Name, Link: in.Body.BillingProviderID.Sent, LinkStays: !mayLink, BillingProviderID: in.Body.BillingProviderID.Text, Metadata: in.Body.Metadata,
	}, s.Now())
	if err != nil {
		return nil, err
	}
	out := &customerOutput{http.StatusOK, showCustomer(c)}
	out.Body.PriceComparison = linking.shown
	s.storeComparison(ctx, c.ID, linking)
	if made {
		out.Status = http.StatusCreated
	}
	return out, nil
}
