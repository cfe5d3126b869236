-- +goose Up

-- Events before kept_from are not kept: they are gone, or going. It only ever
-- moves ahead, before anything goes.
create table event_retention (
  only_row  boolean primary key default true check (only_row),
  kept_from timestamptz -- null: all events are kept
);
insert into event_retention default values;

-- The days behind kept_from whose keys have been forgotten, until the events
-- themselves go: a key that is used again must not be forgotten again.
create table forgotten_days (
  tenant_id bigint not null references tenants,
  day       date not null, -- UTC
  primary key (tenant_id, day)
);

-- Sent with a timestamp, so that a repeat shows its age. Any other key is
-- known for ever: its repeat would be an event of today.
alter table event_keys add column dated boolean not null default false;

-- Where a meter version's past begins; null: with the first event.
alter table meter_versions add column counted_from timestamptz;

-- What had arrived late when the period's events went; null: they are kept.
alter table billing_period_totals
  add column late_usage numeric,
  add column late_count bigint;

-- +goose Down
alter table billing_period_totals
  drop column late_count,
  drop column late_usage;
alter table meter_versions drop column counted_from;
alter table event_keys drop column dated;
drop table forgotten_days;
drop table event_retention;
