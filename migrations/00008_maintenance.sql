-- +goose Up

-- kept_from only moves forward. It moves before any event is deleted.
create table event_retention (
  only_row  boolean primary key default true check (only_row),
  kept_from timestamptz -- null: all events are kept
);
comment on table event_retention is 'The instant from which events are kept. Earlier events are deleted, or are being deleted.';
insert into event_retention default values;

-- A key may be used again after it was forgotten. Then it must not be forgotten
-- again, so the keys of a day are forgotten once.
create table forgotten_days (
  tenant_id bigint not null references tenants,
  day       date not null, -- UTC
  primary key (tenant_id, day)
);
comment on table forgotten_days is 'The days before kept_from with forgotten keys, until the events of the days are deleted.';

-- Customer 0 is the whole tenant. Without defects, the table is empty.
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
comment on table usage_discrepancies is 'The differences between the rollups and the events of a day, which were counted at one instant.';

-- +goose Down
drop table usage_discrepancies;
drop table forgotten_days;
drop table event_retention;
