-- +goose Up
create table api_keys (
  tenant_id    bigint not null references tenants,
  id           bigint generated always as identity,
  name         text not null,
  scope        text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  hash         bytea not null unique, -- HMAC-SHA256 of the whole key under the service's secret
  last_four    text not null,
  created_at   timestamptz not null default now(),
  created_by   text not null,
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  primary key (tenant_id, id)
);
comment on table api_keys is 'API keys, each kept as a hash.';

-- The hash waits here, where nobody is let in with it, until one transaction
-- makes it a key and revokes the old one.
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
  pending_until   timestamptz not null, -- nobody waits for the key after that, so it never becomes one
  created_at      timestamptz not null default now(),
  settled_at      timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, old_key_id) references api_keys (tenant_id, id),
  foreign key (tenant_id, new_key_id) references api_keys (tenant_id, id),
  check ((status = 'activated') = (new_key_id is not null))
);
comment on table api_key_rotations is 'Exchanges of an API key for a new one.';
create unique index api_key_rotations_idempotency on api_key_rotations (tenant_id, idempotency_key)
  where status in ('pending', 'activated');

-- A secret that another one replaces is valid until expires_at, whoever is
-- alive to record its revocation then.
create table hmac_secrets (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  name           text not null,
  scope          text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  secret         bytea not null, -- sealed
  last_four      text not null,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  expires_at     timestamptz,
  revoked_at     timestamptz,
  successor_id   bigint,
  own_expires_at timestamptz, -- its expiry if it were not replaced
  primary key (tenant_id, id),
  constraint hmac_secrets_successor foreign key (tenant_id, successor_id) references hmac_secrets (tenant_id, id),
  constraint hmac_secrets_replaced check (successor_id is null or expires_at is not null)
);
comment on table hmac_secrets is 'Secrets that requests are signed with, sealed.';
create index hmac_secrets_overlapping on hmac_secrets (expires_at) where successor_id is not null and revoked_at is null;

create table request_ids (
  tenant_id  bigint not null,
  request_id text collate "C" not null,
  expires_at timestamptz not null,
  primary key (tenant_id, request_id)
);
comment on table request_ids is 'The ids of signed requests, each until its signature is too old to be accepted again.';
create index on request_ids (expires_at);

create table members (
  tenant_id     bigint not null references tenants,
  id            bigint generated always as identity,
  email         text not null,
  name          text not null,
  role          text not null check (role in ('owner', 'admin', 'developer', 'billing', 'viewer')),
  password_hash text, -- argon2id, as a PHC string; null: signs in by OIDC only
  created_at    timestamptz not null default now(),
  created_by    text not null,
  removed_at    timestamptz,
  primary key (tenant_id, id)
);
comment on table members is 'The people who may sign in to a tenant, each with a role.';
-- Case is that of ASCII, in every database alike: a letter that only Unicode
-- folds into another must not make two addresses one.
create unique index members_email on members (tenant_id, lower(email collate "C")) where removed_at is null;
create unique index members_owner on members (tenant_id) where role = 'owner' and removed_at is null;
-- Who signs in says an e-mail, and often no tenant.
create index on members (lower(email collate "C")) where removed_at is null;

create table sessions (
  tenant_id  bigint not null,
  id         uuid not null,
  member_id  bigint not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  ended_at   timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, member_id) references members (tenant_id, id)
);
comment on table sessions is 'The sign-ins of members: a token is accepted while its session lives.';
create index on sessions (tenant_id, member_id, expires_at);

create table oidc_issuers (
  tenant_id     bigint primary key references tenants,
  issuer        text not null,
  client_id     text not null,
  client_secret bytea, -- sealed; null for a public client
  redirect_base text not null,
  updated_at    timestamptz not null default now(),
  updated_by    text not null
);
comment on table oidc_issuers is 'Where the members of a tenant sign in by OpenID Connect.';

create table oidc_sign_ins (
  tenant_id  bigint not null references oidc_issuers on delete cascade,
  state      text not null,
  nonce      text not null,
  verifier   text not null, -- PKCE
  expires_at timestamptz not null,
  primary key (tenant_id, state),
  unique (state) -- the issuer sends back nothing else
);
comment on table oidc_sign_ins is 'Sign-ins that have gone to the issuer and not come back.';
create index on oidc_sign_ins (tenant_id, expires_at);

-- Kept without an end, so that a repeat never makes anything.
create table idempotency_keys (
  tenant_id    bigint not null references tenants,
  key          text collate "C" not null,
  operation    text not null,
  request_hash bytea not null, -- HMAC-SHA256 of the body under the service's secret
  answer       json not null, -- as it was shown, without a secret
  created_at   timestamptz not null default now(),
  primary key (tenant_id, key)
);
comment on table idempotency_keys is 'What requests that create something have created, by their Idempotency-Key.';

-- +goose Down
drop table idempotency_keys;
drop table oidc_sign_ins;
drop table oidc_issuers;
drop table sessions;
drop table members;
drop table request_ids;
drop table hmac_secrets;
drop table api_key_rotations;
drop table api_keys;
