-- +goose Up
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
create index on sessions (tenant_id, member_id, expires_at);

-- Where a tenant's members sign in, besides here.
create table oidc_issuers (
  tenant_id     bigint primary key references tenants,
  issuer        text not null,
  client_id     text not null,
  client_secret bytea, -- sealed; null for a public client
  redirect_base text not null,
  updated_at    timestamptz not null default now(),
  updated_by    text not null
);

-- Sign-ins that have gone to the issuer and not come back.
create table oidc_sign_ins (
  tenant_id  bigint not null references oidc_issuers on delete cascade,
  state      text not null,
  nonce      text not null,
  verifier   text not null, -- PKCE
  expires_at timestamptz not null,
  primary key (tenant_id, state),
  unique (state) -- the issuer sends back nothing else
);
create index on oidc_sign_ins (tenant_id, expires_at);

-- +goose Down
drop table oidc_sign_ins;
drop table oidc_issuers;
drop table sessions;
drop table members;
