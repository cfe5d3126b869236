-- +goose Up

-- kept_from only ever moves ahead, before anything goes.
create table event_retention (
  only_row  boolean primary key default true check (only_row),
  kept_from timestamptz -- null: all events are kept
);
comment on table event_retention is 'From when on events are kept: earlier ones are gone, or going.';
insert into event_retention default values;

-- A key that is used again must not be forgotten again.
create table forgotten_days (
  tenant_id bigint not null references tenants,
  day       date not null, -- UTC
  primary key (tenant_id, day)
);
comment on table forgotten_days is 'The days before kept_from whose keys have been forgotten, until their events go.';

-- Customer 0 is the whole tenant. There should never be a row.
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
comment on table usage_discrepancies is 'Where a day''s rollups and its events disagreed when both were counted at one instant.';

-- +goose Down
drop table usage_discrepancies;
drop table forgotten_days;
drop table event_retention;
