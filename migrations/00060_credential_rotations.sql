-- +goose Up

-- A credential that another replaces: an API key, an HMAC secret, or what the
-- messages to a webhook are signed with. The old one is valid until
-- overlap_until by a column of its own (expires_at, or former_until of the
-- webhook), whoever is alive to record the end.
create table credential_rotations (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  kind           text not null check (kind in ('api_key', 'hmac_secret', 'webhook_secret')),
  old_id         bigint not null, -- of a webhook's secret, the webhook's
  new_id         bigint not null,
  actor          text not null,
  created_at     timestamptz not null,
  overlap_until  timestamptz not null,
  old_expires_at timestamptz, -- the old one's expiry if it were not replaced
  warned_at      timestamptz, -- that the old one is still used
  ended_at       timestamptz,
  outcome        text check (outcome in ('expired', 'finished', 'revoked', 'kept', 'superseded')),
  run_due_at     timestamptz, -- when a run has to be begun, or told to look; null: none has to
  primary key (tenant_id, id),
  check ((ended_at is null) = (outcome is null))
);
create unique index credential_rotations_open on credential_rotations (tenant_id, kind, old_id) where ended_at is null;
create index credential_rotations_old on credential_rotations (tenant_id, kind, old_id);
create index credential_rotations_new on credential_rotations (tenant_id, kind, new_id);
create index credential_rotations_due on credential_rotations (run_due_at) where run_due_at is not null;

insert into credential_rotations (tenant_id, kind, old_id, new_id, actor, created_at, overlap_until, ended_at, outcome)
select tenant_id, 'api_key', old_key_id, new_key_id, actor, created_at, settled_at, settled_at, 'expired'
from api_key_rotations
where status = 'activated';
drop table api_key_rotations;

insert into credential_rotations (tenant_id, kind, old_id, new_id, actor, created_at, overlap_until, old_expires_at, ended_at, outcome, run_due_at)
select h.tenant_id, 'hmac_secret', h.id, h.successor_id, s.created_by, s.created_at, h.expires_at, h.own_expires_at,
  h.revoked_at, case when h.revoked_at is not null then 'expired' end, case when h.revoked_at is null then now() end
from hmac_secrets h
join hmac_secrets s on s.tenant_id = h.tenant_id and s.id = h.successor_id;
alter table hmac_secrets
  drop column own_expires_at,
  drop column successor_id,
  add column last_used_at timestamptz;

insert into credential_rotations (tenant_id, kind, old_id, new_id, actor, created_at, overlap_until, run_due_at)
select tenant_id, 'webhook_secret', id, id, created_by, former_until - interval '1 day', former_until, now()
from webhook_endpoints
where former_until is not null;

-- +goose Down
create table api_key_rotations (
  tenant_id       bigint not null,
  id              bigint generated always as identity,
  old_key_id      bigint not null,
  new_key_id      bigint,
  hash            bytea not null,
  last_four       text not null,
  actor           text not null,
  idempotency_key text collate "C",
  status          text not null default 'pending' check (status in ('pending', 'activated', 'withdrawn', 'refused')),
  pending_until   timestamptz not null,
  created_at      timestamptz not null default now(),
  settled_at      timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, old_key_id) references api_keys (tenant_id, id),
  foreign key (tenant_id, new_key_id) references api_keys (tenant_id, id),
  check ((status = 'activated') = (new_key_id is not null))
);
create unique index api_key_rotations_idempotency on api_key_rotations (tenant_id, idempotency_key)
  where status in ('pending', 'activated');
alter table hmac_secrets
  drop column last_used_at,
  add column successor_id   bigint,
  add column own_expires_at timestamptz,
  add constraint hmac_secrets_successor foreign key (tenant_id, successor_id) references hmac_secrets (tenant_id, id);
update hmac_secrets h
set successor_id = r.new_id, own_expires_at = r.old_expires_at
from credential_rotations r
where r.tenant_id = h.tenant_id
  and r.kind = 'hmac_secret'
  and r.old_id = h.id
  and r.outcome is distinct from 'kept'
  and r.outcome is distinct from 'superseded';
alter table hmac_secrets
  add constraint hmac_secrets_replaced check (successor_id is null or expires_at is not null);
create index hmac_secrets_overlapping on hmac_secrets (expires_at) where successor_id is not null and revoked_at is null;
drop table credential_rotations;
