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
  handed_to    text, -- who answers for it since the maker was removed
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  expiry_reported_at timestamptz, -- time of the message credential.expiring
  primary key (tenant_id, id)
);
comment on table api_keys is 'API keys, each kept as a hash.';
create index api_keys_expiring on api_keys (expires_at) where expires_at is not null and revoked_at is null and expiry_reported_at is null;

create table hmac_secrets (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  name           text not null,
  scope          text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  signatures     text not null default 'v1_and_v2' check (signatures in ('v1_and_v2', 'v2')),
  secret         bytea not null, -- sealed
  last_four      text not null,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  handed_to      text, -- who answers for it since the maker was removed
  expires_at     timestamptz,
  revoked_at     timestamptz,
  last_used_at   timestamptz,
  expiry_reported_at timestamptz, -- time of the message credential.expiring
  primary key (tenant_id, id)
);
comment on table hmac_secrets is 'Secrets that requests are signed with, sealed.';
create index hmac_secrets_expiring on hmac_secrets (expires_at) where expires_at is not null and revoked_at is null and expiry_reported_at is null;

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
comment on table credential_rotations is 'Credentials that others replace, and until when both are valid.';
create unique index credential_rotations_open on credential_rotations (tenant_id, kind, old_id) where ended_at is null;
create index credential_rotations_old on credential_rotations (tenant_id, kind, old_id);
create index credential_rotations_new on credential_rotations (tenant_id, kind, new_id);
create index credential_rotations_due on credential_rotations (run_due_at) where run_due_at is not null;

create table request_ids (
  tenant_id  bigint not null,
  request_id text collate "C" not null,
  expires_at timestamptz not null,
  primary key (tenant_id, request_id)
);
comment on table request_ids is 'The ids of signed requests, each until its signature is too old to be accepted again.';
create index on request_ids (expires_at);

-- An e-mail alone names nobody: nobody has verified it, and whoever invites it may
-- read the link. So the one who has an e-mail in one tenant need not be the one who
-- has it in another, until both know the same password.
create table people (
  id            bigint generated always as identity primary key,
  email         text not null, -- in lower case, as far as it is ASCII
  password_hash bytea not null, -- argon2id, under a salt of the e-mail's own
  created_at    timestamptz not null default now(),
  unique (email, password_hash)
);
comment on table people is 'Who signs in, to one tenant or several: an e-mail and a password.';

create table members (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  email          text not null,
  name           text not null,
  role           text not null check (role in ('owner', 'admin', 'developer', 'billing', 'viewer')),
  person_id      bigint references people, -- null: has no password
  created_at     timestamptz not null default now(),
  created_by     text not null,
  removed_at     timestamptz,
  reset_asked_at timestamptz, -- when somebody last asked for another password
  primary key (tenant_id, id)
);
comment on table members is 'The people who may sign in to a tenant, each with a role.';
-- Case is that of ASCII, in every database alike: a letter that only Unicode
-- folds into another must not make two addresses one.
create unique index members_email on members (tenant_id, lower(email collate "C")) where removed_at is null;
create unique index members_owner on members (tenant_id) where role = 'owner' and removed_at is null;
create index on members (person_id) where person_id is not null;
-- Who has forgotten the password says an e-mail and no tenant.
create index on members (lower(email collate "C")) where removed_at is null;

create table invitations (
  tenant_id   bigint not null references tenants,
  id          bigint generated always as identity,
  member_id   bigint, -- who gets another way to sign in; null: who accepts becomes a member
  email       text not null,
  name        text not null,
  role        text not null check (role in ('owner', 'admin', 'developer', 'billing', 'viewer')),
  token_hash  bytea not null unique, -- HMAC-SHA256 under the service's secret
  last_four   text not null,
  created_at  timestamptz not null default now(),
  created_by  text not null,
  expires_at  timestamptz not null,
  accepted_at timestamptz,
  revoked_at  timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, member_id) references members (tenant_id, id)
);
comment on table invitations is 'Links with which somebody becomes a member, or a member gets another way to sign in. The token of each is kept as a hash.';
create unique index invitations_pending on invitations (tenant_id, lower(email collate "C")) where accepted_at is null and revoked_at is null;

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
  updated_at    timestamptz not null default now(),
  updated_by    text not null
);
comment on table oidc_issuers is 'Where the members of a tenant sign in by OpenID Connect.';

-- Who signs in is found by what the issuer calls them, never by an e-mail: an
-- issuer says of anybody what it likes.
create table oidc_identities (
  tenant_id  bigint not null references tenants,
  issuer     text collate "C" not null,
  subject    text collate "C" not null,
  member_id  bigint not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, issuer, subject),
  unique (tenant_id, issuer, member_id),
  foreign key (tenant_id, member_id) references members (tenant_id, id)
);
comment on table oidc_identities is 'Which account at the tenant''s issuer is which member: it was theirs when they accepted an invitation.';

create table oidc_sign_ins (
  tenant_id     bigint not null references oidc_issuers on delete cascade,
  state_hash    bytea not null, -- HMAC-SHA256 under the service's secret; nonce and PKCE verifier are made of the state, too
  invitation_id bigint, -- which is accepted by it
  expires_at    timestamptz not null,
  primary key (tenant_id, state_hash),
  unique (state_hash), -- the issuer sends back nothing else
  foreign key (tenant_id, invitation_id) references invitations (tenant_id, id)
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
drop table oidc_identities;
drop table oidc_issuers;
drop table sessions;
drop table invitations;
drop table members;
drop table people;
drop table request_ids;
drop table credential_rotations;
drop table hmac_secrets;
drop table api_keys;
