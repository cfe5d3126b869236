-- +goose Up

-- Written in the transaction that made it so.
create table outbox (
  tenant_id    bigint not null references tenants,
  id           uuid not null,
  kind         text not null,
  payload      jsonb not null, -- internal ids only
  created_at   timestamptz not null,
  delivered_at timestamptz,
  primary key (tenant_id, id)
);
comment on table outbox is 'Messages about what happened, for the webhooks of a tenant.';
create index on outbox (tenant_id, created_at) where delivered_at is null;
create index outbox_created_at on outbox (created_at); -- messages are forgotten by their age

create table webhook_endpoints (
  tenant_id        bigint not null references tenants,
  id               bigint generated always as identity unique,
  url              text not null,
  host             text collate "C" not null, -- of the URL: its budget is shared by all tenants
  description      text not null,
  event_types      text[] not null,
  secret           bytea not null, -- sealed
  secret_last_four text not null,
  former_secret    bytea,          -- sealed; signs beside the other until former_until
  former_until     timestamptz,
  created_at       timestamptz not null,
  created_by       text not null,
  disabled_at      timestamptz,
  disabled_because text check (disabled_because in ('tenant', 'gone', 'failing')),
  failures         int not null default 0, -- in a row
  failing_since    timestamptz,
  backoff_until    timestamptz,            -- nothing is sent before
  lease_until      timestamptz,            -- a run looks after what waits for it
  primary key (tenant_id, id),
  check ((disabled_at is null) = (disabled_because is null))
);
comment on table webhook_endpoints is 'Where a tenant receives messages, and of which event types.';
create unique index webhook_endpoints_url on webhook_endpoints (tenant_id, md5(url)); -- a URL may be too long for an index

-- It holds what the tenant is shown: the payload of the message is its data.
create table webhook_deliveries (
  tenant_id   bigint not null,
  endpoint_id bigint not null,
  message_id  uuid not null,
  status      text not null default 'pending' check (status in ('pending', 'delivered', 'failed')),
  attempts    int not null default 0, -- since it was asked for
  due_at      timestamptz not null,
  settled_at  timestamptz,
  primary key (tenant_id, endpoint_id, message_id),
  foreign key (tenant_id, endpoint_id) references webhook_endpoints (tenant_id, id) on delete cascade,
  foreign key (tenant_id, message_id) references outbox (tenant_id, id) on delete cascade,
  check ((status = 'pending') = (settled_at is null))
);
comment on table webhook_deliveries is 'Messages on their way to an endpoint.';
create index webhook_deliveries_due on webhook_deliveries (tenant_id, endpoint_id, due_at) where status = 'pending';
create index webhook_deliveries_message on webhook_deliveries (tenant_id, message_id);

create table webhook_attempts (
  tenant_id   bigint not null,
  endpoint_id bigint not null,
  message_id  uuid not null,
  id          bigint generated always as identity,
  at          timestamptz not null,
  took        interval not null,
  status      int not null, -- 0: there was no answer
  problem     text not null,
  primary key (tenant_id, endpoint_id, message_id, id),
  foreign key (tenant_id, endpoint_id, message_id) references webhook_deliveries (tenant_id, endpoint_id, message_id) on delete cascade
);
comment on table webhook_attempts is 'Each try to deliver a message to an endpoint.';

-- Every worker takes from the same rows, by the database's clock.
create table webhook_budgets (
  target text collate "C" primary key, -- a tenant's id or a host
  spent  timestamptz not null -- until when the deliveries that were granted use the budget up
);
comment on table webhook_budgets is 'How many deliveries may be sent for a tenant, and to a host, whoever it is for.';

-- +goose Down
drop table webhook_budgets;
drop table webhook_attempts;
drop table webhook_deliveries;
drop table webhook_endpoints;
drop table outbox;
