-- +goose Up

-- Where a day's rollups and its events disagreed when both were counted at one
-- instant. Customer 0 is the whole tenant. There should never be a row.
create table usage_discrepancies (
  tenant_id    bigint not null references tenants,
  customer_id  bigint not null,
  meter_id     bigint not null,
  day          date not null, -- UTC
  rollup_sum   numeric not null,
  rollup_count bigint not null,
  event_sum    numeric not null,
  event_count  bigint not null,
  found_at     timestamptz not null,
  primary key (tenant_id, day, customer_id, meter_id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);

-- +goose Down
drop table usage_discrepancies;
