-- +goose Up
create table hmac_secrets (
  tenant_id  bigint not null references tenants,
  id         bigint generated always as identity,
  name       text not null,
  scope      text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  secret     bytea not null, -- sealed
  last_four  text not null,
  created_at timestamptz not null default now(),
  created_by text not null,
  expires_at timestamptz,
  revoked_at timestamptz,
  primary key (tenant_id, id)
);

-- The ids of signed requests, each until the signature is too old to be
-- accepted again.
create table request_ids (
  tenant_id  bigint not null,
  request_id text collate "C" not null,
  expires_at timestamptz not null,
  primary key (tenant_id, request_id)
);
create index on request_ids (expires_at);

-- +goose Down
drop table request_ids;
drop table hmac_secrets;
