-- +goose Up

-- A key that is to take another's place. Its hash waits here, where nobody is
-- let in with it, until one transaction makes it a key and revokes the old one.
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
create unique index api_key_rotations_idempotency on api_key_rotations (tenant_id, idempotency_key)
  where status in ('pending', 'activated');

-- +goose Down
drop table api_key_rotations;
