-- +goose Up

-- What a period came to when it was closed. Usage that arrives later is kept
-- apart from it, and billed, if at all, as an adjustment in another period.
create table billing_period_totals (
  tenant_id     bigint not null,
  period_id     bigint not null,
  meter_id      bigint not null,
  usage         numeric not null,
  event_count   bigint not null,
  price_version integer not null, -- 0: the meter had no price
  charge        numeric not null, -- for usage, rounded to the currency's minor unit
  currency      text not null,
  billed        boolean not null, -- whether a provider was told: only then is there something to adjust
  primary key (tenant_id, period_id, meter_id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);

-- An adjustment's series belongs to the closed period that it adjusts; its
-- window is the open period whose snapshots carry it.
alter table billing_series
  drop constraint billing_series_mechanism_check,
  add constraint billing_series_mechanism_check
    check (mechanism in ('snapshot', 'adjustment', 'usage_record', 'meter_window', 'meter_delta', 'meter_last'));

-- What a snapshot took into account, and, once it is acknowledged, what its
-- period's provider knows of. A customer whose open period differs from this is
-- due; totals are compared only then.
alter table billing_snapshots
  add column covered_events  bigint,
  add column covered_catalog text; -- a hash of the meters, prices and account
alter table billing_periods
  add column covered_events  bigint,
  add column covered_catalog text;
create index billing_periods_open on billing_periods (tenant_id, customer_id) where closed_at is null;

-- +goose Down
drop index billing_periods_open;
alter table billing_periods
  drop column covered_catalog,
  drop column covered_events;
alter table billing_snapshots
  drop column covered_catalog,
  drop column covered_events;
alter table billing_series
  drop constraint billing_series_mechanism_check,
  add constraint billing_series_mechanism_check
    check (mechanism in ('snapshot', 'usage_record', 'meter_window', 'meter_delta', 'meter_last'));
drop table billing_period_totals;
