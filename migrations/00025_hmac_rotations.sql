-- +goose Up

-- A secret that another one replaces is valid until expires_at, whoever is
-- alive to record its revocation then.
alter table hmac_secrets
  add column successor_id   bigint,
  add column own_expires_at timestamptz, -- its expiry if it were not replaced
  add constraint hmac_secrets_successor foreign key (tenant_id, successor_id) references hmac_secrets (tenant_id, id),
  add constraint hmac_secrets_replaced check (successor_id is null or expires_at is not null);
create index hmac_secrets_overlapping on hmac_secrets (expires_at) where successor_id is not null and revoked_at is null;

-- +goose Down
alter table hmac_secrets
  drop column own_expires_at,
  drop column successor_id;
