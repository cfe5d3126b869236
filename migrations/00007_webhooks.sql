-- +goose Up

-- The transaction that makes a change stores its message.
create table outbox (
  tenant_id    bigint not null references tenants,
  id           uuid not null,
  kind         text not null,
  payload      jsonb not null, -- internal ids only
  created_at   timestamptz not null,
  delivered_at timestamptz,
  primary key (tenant_id, id)
);
comment on table outbox is 'The messages for the webhooks of tenants.';
create index on outbox (tenant_id, created_at) where delivered_at is null;
create index outbox_created_at on outbox (created_at); -- for deletion by age

create table webhook_endpoints (
  tenant_id        bigint not null references tenants,
  id               bigint generated always as identity unique,
  url              text not null,
  host             text collate "C" not null, -- of the URL; all tenants share its budget
  description      text not null,
  event_types      text[] not null,
  secret           bytea not null, -- sealed
  secret_last_four text not null,
  former_secret    bytea,          -- sealed; also signs messages until former_until
  former_until     timestamptz,
  created_at       timestamptz not null,
  created_by       text not null,
  disabled_at      timestamptz,
  disabled_because text check (disabled_because in ('tenant', 'gone', 'failing')),
  failures         int not null default 0, -- consecutive
  failing_since    timestamptz,
  backoff_until    timestamptz,            -- no message is sent before
  lease_until      timestamptz,            -- until then a run delivers, and no other run starts
  primary key (tenant_id, id),
  check ((disabled_at is null) = (disabled_because is null))
);
comment on table webhook_endpoints is 'The endpoints at which tenants receive messages, and the event types of these messages.';
create unique index webhook_endpoints_url on webhook_endpoints (tenant_id, md5(url)); -- a URL may be too long for an index

-- The API shows deliveries to the tenant, with the payload of the message as the
-- data.
create table webhook_deliveries (
  tenant_id   bigint not null,
  endpoint_id bigint not null,
  message_id  uuid not null,
  status      text not null default 'pending' check (status in ('pending', 'delivered', 'failed')),
  attempts    int not null default 0, -- since the message was published, or sent again on request
  due_at      timestamptz not null,
  settled_at  timestamptz,
  primary key (tenant_id, endpoint_id, message_id),
  foreign key (tenant_id, endpoint_id) references webhook_endpoints (tenant_id, id) on delete cascade,
  foreign key (tenant_id, message_id) references outbox (tenant_id, id) on delete cascade,
  check ((status = 'pending') = (settled_at is null))
);
comment on table webhook_deliveries is 'The deliveries of messages to endpoints.';
create index webhook_deliveries_due on webhook_deliveries (tenant_id, endpoint_id, due_at) where status = 'pending';
create index webhook_deliveries_message on webhook_deliveries (tenant_id, message_id);

create table webhook_attempts (
  tenant_id   bigint not null,
  endpoint_id bigint not null,
  message_id  uuid not null,
  id          bigint generated always as identity,
  at          timestamptz not null,
  took        interval not null,
  status      int not null, -- of the HTTP response; 0: there was none
  problem     text not null,
  primary key (tenant_id, endpoint_id, message_id, id),
  foreign key (tenant_id, endpoint_id, message_id) references webhook_deliveries (tenant_id, endpoint_id, message_id) on delete cascade
);
comment on table webhook_attempts is 'The attempts to deliver a message to an endpoint.';

-- All workers spend from the same rows, by the database's clock.
create table webhook_budgets (
  target text collate "C" primary key, -- a tenant's id, or 'host ' and a host
  spent  timestamptz not null -- until then the claimed deliveries use the budget up
);
comment on table webhook_budgets is 'The budgets of deliveries for a tenant, and to a host. All tenants share the budget of a host.';

-- +goose Down
drop table webhook_budgets;
drop table webhook_attempts;
drop table webhook_deliveries;
drop table webhook_endpoints;
drop table outbox;
