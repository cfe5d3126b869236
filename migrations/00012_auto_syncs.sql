-- +goose Up

-- What each tenant wants; the schedules in Temporal follow. One that has not
-- followed yet has applied_at before updated_at, or none.
create table auto_syncs (
  tenant_id  bigint primary key references tenants,
  enabled    boolean not null,
  schedule   text not null, -- hourly, daily, or a cron expression in the tenant's zone
  paused     boolean not null default false,
  updated_at timestamptz not null,
  updated_by text not null,
  applied_at timestamptz
);

create index billing_syncs_newest on billing_syncs (tenant_id, id);

-- +goose Down
drop index billing_syncs_newest;
drop table auto_syncs;
