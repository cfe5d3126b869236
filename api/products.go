package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

type product struct {
	ID        string    `json:"id" example:"prd_3"`
	Slug      string    `json:"slug"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`

	ArchivedAt *time.Time `json:"archived_at" doc:"Since when lists leave it out, and nobody gets it anew; null: it is not archived"`
}

func showProduct(p metering.Product) product {
	return product{ID: p.ID.String(), Slug: p.Slug, Name: p.Name, CreatedAt: p.CreatedAt.UTC(), ArchivedAt: sinceWhen(p.ArchivedAt)}
}

type productOutput struct{ Body product }

type createProductInput struct {
	Repeatable
	Body struct {
		Slug string `json:"slug" minLength:"1" maxLength:"64" pattern:"^[a-z0-9][a-z0-9_-]*$"`
		Name string `json:"name,omitempty" maxLength:"255"`
	}
}

func (s *server) createProduct(ctx context.Context, in *createProductInput) (*productOutput, error) {
	who := principalOf(ctx)
	shown, _, err := once(ctx, s, in.Repeatable, "create-product", in.Body, func(within db.Creators) (product, error) {
		p, err := within.Products.Create(ctx, who.Tenant.ID, who.Actor, metering.Product{Slug: in.Body.Slug, Name: in.Body.Name})
		return showProduct(p), err
	})
	if err != nil {
		return nil, err
	}
	return &productOutput{shown}, nil
}

type listProductsOutput struct{ Body List[product] }

func (s *server) listProducts(ctx context.Context, in *struct {
	Paging
	Archivable
}) (*listProductsOutput, error) {
	var after metering.ProductID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	products, err := s.Store.Products.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize, in.Archived)
	if err != nil {
		return nil, err
	}
	cursorOf := func(p metering.Product) metering.ProductID { return p.ID }
	return &listProductsOutput{listOf(ctx, s, products, showProduct, cursorOf)}, nil
}

// product returns the tenant's product of that slug.
func (s *server) product(ctx context.Context, slug string) (metering.Product, error) {
	if !storable(slug) {
		return metering.Product{}, metering.Errorf(metering.CodeNotFound, "there is no product with this slug")
	}
	return s.Store.Products.Get(ctx, principalOf(ctx).Tenant.ID, slug)
}

type productSlug struct {
	Slug string `path:"slug" maxLength:"64"`
}

func (s *server) getProduct(ctx context.Context, in *productSlug) (*productOutput, error) {
	p, err := s.product(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return &productOutput{showProduct(p)}, nil
}

// ProductMeter names a meter in a product.
type ProductMeter struct {
	Slug  string `path:"slug" maxLength:"64"`
	Meter string `path:"meter" maxLength:"64" doc:"The meter's slug"`
}

func (s *server) inProduct(ctx context.Context, in ProductMeter) (p metering.Product, m metering.Meter, err error) {
	if p, err = s.product(ctx, in.Slug); err != nil {
		return p, m, err
	}
	m, err = s.meter(ctx, in.Meter)
	return p, m, err
}

func (s *server) getProductPricing(ctx context.Context, in *ProductMeter) (*pricingOutput, error) {
	p, m, err := s.inProduct(ctx, *in)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, p.ID)
}

type setProductPricingInput struct {
	ProductMeter
	Body struct{ NewPrice }
}

func (s *server) setProductPricing(ctx context.Context, in *setProductPricingInput) (*pricingOutput, error) {
	p, m, err := s.inProduct(ctx, in.ProductMeter)
	if err != nil {
		return nil, err
	}
	return s.setPrice(ctx, m, p.ID, in.Body.NewPrice)
}

type customerProduct struct {
	Product  *string      `json:"product" doc:"The slug of the plan that charges the current period; null: the meters' own prices do"`
	Versions []assignment `json:"versions" doc:"In the order in which they hold"`
}

type assignment struct {
	Product       *string   `json:"product"`
	EffectiveFrom time.Time `json:"effective_from"`
}

type customerProductOutput struct{ Body customerProduct }

func (s *server) getCustomerProduct(ctx context.Context, in *CustomerPath) (*customerProductOutput, error) {
	c, err := s.customerAt(ctx, *in)
	if err != nil {
		return nil, err
	}
	return s.productOf(ctx, c)
}

// productOf shows the customer's plan and assignments.
func (s *server) productOf(ctx context.Context, c metering.Customer) (*customerProductOutput, error) {
	period, err := s.Store.Ledger.CurrentPeriod(ctx, principalOf(ctx).Tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	list, err := s.Store.Products.Assignments(ctx, principalOf(ctx).Tenant.ID, c.ID)
	if err != nil {
		return nil, err
	}
	out := &customerProductOutput{customerProduct{Versions: []assignment{}}}
	for _, a := range list {
		shown := assignment{EffectiveFrom: a.EffectiveFrom.UTC()}
		if a.Slug != "" {
			shown.Product = &a.Slug
		}
		out.Body.Versions = append(out.Body.Versions, shown)
		if !a.EffectiveFrom.After(period.Start) {
			out.Body.Product = shown.Product
		}
	}
	return out, nil
}

type assignProductInput struct {
	CustomerPath
	Body struct {
		Product       *string   `json:"product" maxLength:"64" nullable:"true" doc:"The plan's slug; null: none"`
		EffectiveFrom *SentTime `json:"effective_from,omitempty" doc:"A period is charged at the prices of the plan in force at its start. When absent: the start of the customer's next billing period, or of the current one if the customer was made in it"`
		Confirm
	}
}

func (s *server) assignProduct(ctx context.Context, in *assignProductInput) (*customerProductOutput, error) {
	who := principalOf(ctx)
	c, err := s.customerAt(ctx, in.CustomerPath)
	if err != nil {
		return nil, err
	}
	var a billing.Assignment
	if in.Body.Product != nil {
		p, err := s.product(ctx, *in.Body.Product)
		if err != nil {
			return nil, err
		}
		if !p.ArchivedAt.IsZero() {
			return nil, metering.Invalid("body.product", "is archived: nobody gets it anew")
		}
		a.ProductID = p.ID
	}
	period, err := s.Store.Ledger.CurrentPeriod(ctx, who.Tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	switch {
	case in.Body.EffectiveFrom != nil:
		a.EffectiveFrom = in.Body.EffectiveFrom.Time
	case period.Contains(c.CreatedAt):
		a.EffectiveFrom = period.Start
	default:
		a.EffectiveFrom = period.End
	}
	err = s.writeCatalog(ctx, catalogWrite{
		change: struct {
			Operation string
			Customer  metering.CustomerID
			Product   metering.ProductID
			From      time.Time
		}{"assign-product", c.ID, a.ProductID, a.EffectiveFrom.UTC()},
		subject: "The plan", confirm: in.Body.Token,
		impact: func(now time.Time) (db.Impact, error) {
			return s.Store.Ledger.AssignmentImpact(ctx, who.Tenant.ID, c.ID, a, now)
		},
		write: func(within db.Catalog) error { return within.Products.Assign(ctx, who.Tenant.ID, who.Actor, c.ID, a) },
	})
	if err != nil {
		return nil, err
	}
	return s.productOf(ctx, c)
}
