-- +goose Up

-- What requests that make something have made, by the Idempotency-Key they
-- came with, so that a repeat makes nothing. Kept without an end.
create table idempotency_keys (
  tenant_id    bigint not null references tenants,
  key          text collate "C" not null,
  operation    text not null,
  request_hash bytea not null, -- HMAC-SHA256 of the body under the service's secret
  answer       json not null, -- as it was shown, without a secret
  created_at   timestamptz not null default now(),
  primary key (tenant_id, key)
);

-- +goose Down
drop table idempotency_keys;
