-- +goose Up

-- The hours that a backfill has counted, of the days that it has begun. As
-- with the days, the mark is inserted first in the transaction that counts.
create table backfill_hours (
  tenant_id     bigint not null,
  meter_version_id bigint not null,
  hour          timestamptz not null, -- UTC
  events        bigint not null default 0,
  primary key (tenant_id, meter_version_id, hour),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);

-- +goose Down
drop table backfill_hours;
