-- +goose Up
create table credentials (
  tenant_id    bigint not null references tenants,
  kind         text not null check (kind in ('api_key', 'hmac_secret')),
  id           bigint generated always as identity,
  name         text not null,
  scope        text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  hash         bytea unique, -- HMAC-SHA256 of the whole API key under the service's secret
  secret       bytea, -- the HMAC secret, sealed
  signatures   text check (signatures in ('v1_and_v2', 'v2')),
  last_four    text not null,
  created_at   timestamptz not null default now(),
  created_by   text not null,
  handed_to    text, -- actor that is responsible for it since the removal of the previous one
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  expiry_reported_at timestamptz, -- time of the message credential.expiring
  primary key (tenant_id, kind, id), -- with the kind, so that reading a tenant's secrets skips its keys
  check ((hash is not null) = (kind = 'api_key')),
  check ((secret is not null) = (kind = 'hmac_secret')),
  check ((signatures is not null) = (kind = 'hmac_secret'))
);
comment on table credentials is 'The API keys, each stored as a hash, and the secrets with which requests are signed, sealed.';
create index credentials_expiring on credentials (expires_at) where expires_at is not null and revoked_at is null and expiry_reported_at is null;

-- A rotation replaces an API key, an HMAC secret, or the signing secret of a
-- webhook. A column of the old credential (expires_at, or former_until of the
-- webhook) ends its validity at overlap_until. So it ends even if no process
-- records the end.
create table credential_rotations (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  kind           text not null check (kind in ('api_key', 'hmac_secret', 'webhook_secret')),
  old_id         bigint not null, -- for a webhook's secret, the webhook
  new_id         bigint not null,
  actor          text not null,
  created_at     timestamptz not null,
  overlap_until  timestamptz not null,
  old_expires_at timestamptz, -- expiry of the old credential without the rotation
  warned_at      timestamptz, -- time of the warning that the old credential is still used
  ended_at       timestamptz,
  outcome        text check (outcome in ('expired', 'finished', 'revoked', 'kept', 'superseded')),
  run_due_at     timestamptz, -- when a run has to start, or to be notified of a change; null: no run has to
  primary key (tenant_id, id),
  check ((ended_at is null) = (outcome is null))
);
comment on table credential_rotations is 'Replacements of credentials, and the instants until which both credentials are valid.';
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

-- An e-mail alone does not identify a person: it is not verified, and the actor
-- that invites it may read the link. So members with the same e-mail in two
-- tenants are the same person only if they have the same password.
create table people (
  id            bigint generated always as identity primary key,
  email         text not null, -- with its ASCII letters in lower case
  password_hash bytea not null, -- argon2id, with a salt that depends on the e-mail
  created_at    timestamptz not null default now(),
  unique (email, password_hash)
);
comment on table people is 'The persons that sign in to one tenant or several, each with an e-mail and a password.';

create table members (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  email          text not null,
  name           text not null,
  role           text not null check (role in ('owner', 'admin', 'developer', 'billing', 'viewer')),
  person_id      bigint references people, -- null: the member has no password
  created_at     timestamptz not null default now(),
  created_by     text not null,
  removed_at     timestamptz,
  reset_asked_at timestamptz, -- time of the last request for a password reset
  primary key (tenant_id, id)
);
comment on table members is 'The members of tenants: persons that may sign in to a tenant, each with a role.';
-- E-mails are compared by the case rules of ASCII, in every database. A letter
-- that only Unicode folds into another must not make two addresses equal.
create unique index members_email on members (tenant_id, lower(email collate "C")) where removed_at is null;
create unique index members_owner on members (tenant_id) where role = 'owner' and removed_at is null;
create index on members (person_id) where person_id is not null;
-- A request for a password reset has an e-mail and no tenant.
create index on members (lower(email collate "C")) where removed_at is null;

create table invitations (
  tenant_id   bigint not null references tenants,
  id          bigint generated always as identity,
  member_id   bigint, -- member that resets how it signs in; null: accepting creates a member
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
comment on table invitations is 'The links with which a person becomes a member, or a member resets how it signs in. The token of each is stored as a hash.';
create unique index invitations_pending on invitations (tenant_id, lower(email collate "C")) where accepted_at is null and revoked_at is null;
create index on invitations (expires_at);

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
comment on table sessions is 'The sessions of signed-in members. A token is accepted while its session is live.';
create index on sessions (tenant_id, member_id, expires_at);
create index on sessions (expires_at);

create table oidc_issuers (
  tenant_id     bigint primary key references tenants,
  issuer        text not null,
  client_id     text not null,
  client_secret bytea, -- sealed; null for a public client
  updated_at    timestamptz not null default now(),
  updated_by    text not null
);
comment on table oidc_issuers is 'The OpenID Connect issuers at which the members of tenants sign in.';

-- The subject of an account at the issuer identifies the member, never an
-- e-mail, because an issuer can state any e-mail.
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
comment on table oidc_identities is 'The accounts of members at the tenant''s issuer. A member accepted an invitation with the account.';

create table oidc_sign_ins (
  tenant_id     bigint not null references oidc_issuers on delete cascade,
  -- HMAC-SHA256 under the service's secret. The nonce and the PKCE verifier
  -- derive from the state, too.
  state_hash    bytea not null,
  invitation_id bigint, -- invitation that the sign-in accepts
  expires_at    timestamptz not null,
  primary key (tenant_id, state_hash),
  unique (state_hash), -- the state alone identifies the sign-in when the browser returns
  foreign key (tenant_id, invitation_id) references invitations (tenant_id, id) on delete cascade
);
comment on table oidc_sign_ins is 'The sign-ins that have not returned from the issuer.';
create index on oidc_sign_ins (tenant_id, expires_at);

-- Keys are never deleted, so that a repeated request never creates anything.
create table idempotency_keys (
  tenant_id    bigint not null references tenants,
  key          text collate "C" not null,
  operation    text not null,
  request_hash bytea not null, -- HMAC-SHA256 of the body under the service's secret
  answer       json not null, -- the response, without secrets
  created_at   timestamptz not null default now(),
  primary key (tenant_id, key)
);
comment on table idempotency_keys is 'The responses of requests that create resources, by their Idempotency-Key.';

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
drop table credentials;
