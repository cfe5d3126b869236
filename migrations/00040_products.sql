-- +goose Up

-- A catalog entry: its prices hold for the customers who have it, instead of
-- the meters' own.
create table products (
  tenant_id  bigint not null references tenants,
  id         bigint generated always as identity,
  slug       text collate "C" not null,
  name       text not null,
  created_at timestamptz not null default now(),
  created_by text not null,
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);

-- A meter's versions are numbered across its own prices and its products'.
alter table meter_prices
  add column product_id bigint, -- null: the meter's own
  add foreign key (tenant_id, product_id) references products (tenant_id, id);

-- Which product a customer has from an instant on.
create table customer_products (
  tenant_id      bigint not null,
  id             bigint generated always as identity,
  customer_id    bigint not null,
  product_id     bigint, -- null: none
  effective_from timestamptz not null,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, product_id) references products (tenant_id, id)
);
create index on customer_products (tenant_id, customer_id, effective_from, id);

-- +goose Down
drop table customer_products;
alter table meter_prices drop column product_id;
drop table products;
