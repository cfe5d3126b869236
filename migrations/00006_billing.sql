-- +goose Up

-- One sequence for all that is written down about billing: with it, and the
-- transactions that were open, what was known at an instant can be told later.
-- Numbers rise in each tenant; those that were given to what was not written
-- down are missing.
create sequence ledger_sequence;

-- Numbers of reports rise with it too, so that no report made since has the
-- number of one that was sent and is not known any more.
create table ledger_epochs (
  epoch     bigint primary key, -- in seconds since 1970 when it was raised, so that two restores of one backup differ
  raised_at timestamptz not null,
  known_at  timestamptz not null -- of the last report that the backup had, long ago where it had none: what was reported later is not known
);
comment on table ledger_epochs is 'When the database was restored from a backup. The highest epoch holds; without any it is 0.';

create table billing_connections (
  tenant_id                bigint not null references tenants,
  id                       bigint generated always as identity,
  kind                     text not null,
  statements               boolean not null, -- it takes the bill of a period in one report
  invoices                 boolean not null, -- its final invoices say what is billed
  account                  text not null, -- whom the secret belongs to; '': nobody, it is whoever is at the address
  livemode                 boolean, -- whether what is reported is charged; null: the provider does not tell
  address                  text not null default '', -- the URL that is called, where the tenant sets it
  secret                   bytea not null, -- sealed
  secret_last_four         text not null,
  webhook_secret           bytea, -- sealed; what the provider signs its events with
  webhook_secret_last_four text not null default '',
  mapping                  jsonb not null default '{}', -- meter slug to the provider's price
  bills                    text not null default 'quantities' check (bills in ('quantities', 'amounts')), -- in what periods are billed that begin from bills_since on
  bills_before             text not null default 'quantities' check (bills_before in ('quantities', 'amounts')), -- those that began before
  bills_since              timestamptz not null,
  invoice_text             jsonb not null default '{}', -- what the lines say that go to its invoices where it bills amounts
  validated_at             timestamptz not null,
  created_at               timestamptz not null default now(),
  created_by               text not null,
  retired_at               timestamptz,
  primary key (tenant_id, id)
);
comment on table billing_connections is 'The accounts and receivers that a tenant has been billed with: one of them is active. Another secret, or another URL of the same receiver, is the same connection; test and live mode are two.';
create unique index billing_connections_of_account on billing_connections (tenant_id, kind, account, livemode) nulls not distinct where account <> '';
create unique index billing_connections_active on billing_connections (tenant_id) where retired_at is null;

create table billing_links (
  tenant_id         bigint not null,
  customer_id       bigint not null,
  connection_id     bigint not null,
  provider_customer text not null, -- '': the customer is linked to none
  subscription      text not null, -- whose periods the customer's are; '': none
  period_start      timestamptz,
  period_end        timestamptz,
  trial             boolean not null default false, -- that period is a trial
  ended             boolean not null default false, -- the subscription has: only its last invoice is left
  currency          text not null default '', -- ISO 4217; that the subscription is billed in; '': not known
  destinations      jsonb not null, -- of each meter, with the hash of its price there
  charges           jsonb, -- where the charges of each meter go, where amounts are billed; null: nobody has asked
  others            jsonb not null default '[]', -- its subscriptions with other periods that meters go to, each with its period and their destinations
  read_at           timestamptz not null,
  primary key (tenant_id, customer_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_links is 'What a customer is at the provider and where each meter''s usage goes, as last read there.';

create table billing_subscriptions (
  tenant_id     bigint not null,
  customer_id   bigint not null,
  connection_id bigint not null,
  subscription  text not null,
  began_at      timestamptz not null,
  ended_at      timestamptz, -- null: it runs
  targets       text[] not null default '{}', -- of destinations that it has, or had, a price of
  primary key (tenant_id, customer_id, connection_id, subscription),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_subscriptions is 'From when and until when the subscriptions of customers run, and what they bill, as the provider says.';

create table billing_streams (
  tenant_id     bigint not null,
  customer_id   bigint not null,
  connection_id bigint not null,
  subscription  text not null,
  stream        smallint not null check (stream > 0),
  recorded_at   timestamptz not null,
  primary key (tenant_id, customer_id, connection_id, subscription),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_streams is 'Which subscriptions have streams of their own. All other periods of a customer are of its stream 0.';

create table billing_stream_meters (
  tenant_id      bigint not null,
  customer_id    bigint not null,
  meter_id       bigint not null,
  id             bigint generated always as identity, -- of two at one instant the higher one holds
  stream         smallint not null,
  effective_from timestamptz not null,
  recorded_at    timestamptz not null,
  primary key (tenant_id, customer_id, meter_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_stream_meters is 'Which stream a customer''s meter feeds, and from when on. Before the first row, and without any, it is stream 0.';

create table billing_periods (
  tenant_id          bigint not null,
  id                 bigint generated always as identity,
  customer_id        bigint not null,
  stream             smallint not null default 0, -- the customer's that it is of
  starts_at          timestamptz not null,
  ends_at            timestamptz not null check (starts_at < ends_at),
  -- The subscription's period that it lies in: what is sent of it has to be
  -- sent with a time in both.
  subscription       text not null default '', -- 'own_invoice': none, its invoice is made here
  subscription_start timestamptz,
  subscription_end   timestamptz,
  subscription_connection bigint, -- where it is
  trial              boolean not null default false, -- it is one: the provider charges nothing for it
  bills              text not null default '' check (bills in ('', 'quantities', 'amounts')), -- in what a provider with invoices bills it, for good; '': that is not decided, or there is none
  prices             jsonb not null default '{}', -- by meter, the hash of the price that the provider said last while it ran, or first after that
  -- What the customer's reports take into account once all of them are accepted.
  watermark_events        bigint,
  watermark_configuration text not null default '', -- '': something is unreported
  closed_at          timestamptz,
  closed_epoch       bigint, -- the tenant's when it was closed: events from it on are late
  closed_sequence    bigint, -- of the ledger
  complete           boolean not null default false, -- closed, and nothing of it is to be reported, on its way, or to be seen on an invoice
  reconciled_through bigint not null default 0, -- invoices up to this number of the ledger
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, stream, starts_at),
  unique (tenant_id, customer_id, stream, ends_at),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_periods is 'The billing periods of a customer''s streams: each begins where the former of its stream ended.';
create index billing_periods_open on billing_periods (tenant_id, customer_id) where closed_at is null;
create index billing_periods_incomplete on billing_periods (tenant_id, customer_id) where not complete;

-- Usage that arrives later is kept apart from it, and billed, if at all, as an
-- adjustment in another period.
create table billing_period_totals (
  tenant_id        bigint not null,
  period_id        bigint not null,
  meter_id         bigint not null,
  meter_version_id bigint not null, -- that has counted the usage
  usage            numeric not null,
  event_count      bigint not null,
  dimensions       jsonb, -- usage by dimension values, of a price by dimension
  price_version    integer not null, -- 0: the meter had no price, or the provider's own
  terms            bytea, -- that the charge is by, ours or the provider's; null: the meter had no price
  charge           numeric not null, -- for usage, rounded to the currency's minor unit
  currency         text not null,
  working          jsonb not null, -- how the charge was worked out, step by step
  billed           boolean not null, -- whether a provider bills it: only then is there something to adjust
  test             boolean not null, -- in test mode, in which nobody is charged
  trial            boolean not null default false, -- nothing is charged for it, nor for what comes later
  scale            smallint, -- decimals of the units that the charge is for; null: all that the usage has
  late_usage       numeric, -- what had arrived late when the period's events went; null: they are kept
  late_count       bigint,
  late_dimensions  jsonb, -- late_usage by dimension values
  digest           bytea, -- of the events behind it, made within hours of the closing; null: not yet
  digest_algorithm text,
  digest_events    bigint,
  unreconciled     boolean not null default false, -- invoices are to bill it, and it was not compared with the last one yet
  primary key (tenant_id, period_id, meter_id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id),
  foreign key (tenant_id, terms) references price_terms (tenant_id, hash)
);
comment on table billing_period_totals is 'What a billing period came to for each meter when it was closed.';
create index billing_period_totals_unreconciled on billing_period_totals (tenant_id, period_id, meter_id) where unreconciled;
create index billing_period_totals_undigested on billing_period_totals (tenant_id, period_id) where digest is null;

-- Late usage, and what the provider was not reported in time. Each is counted
-- from the one before it, or from the closing.
create table billing_adjustments (
  tenant_id     bigint not null,
  id            bigint generated always as identity,
  customer_id   bigint not null,
  period_id     bigint not null, -- the closed one
  meter_id      bigint not null,
  event_count   bigint not null, -- that it is up to, late ones included
  units_before  numeric not null, -- that are charged
  units         numeric not null,
  dimensions    jsonb, -- units by dimension values, of a price by dimension
  charge_before numeric not null, -- in the currency's minor unit
  charge        numeric not null,
  amount        numeric generated always as (charge - charge_before) stored,
  currency      text not null, -- the closed period's
  billed        boolean not null, -- in a target period; else it is only reported, as the late policy said
  sequence      bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at   timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, period_id, meter_id, event_count),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id, meter_id) references billing_period_totals (tenant_id, period_id, meter_id)
);
comment on table billing_adjustments is 'What a closed period came to more, or less, since it closed: booked once, and never changed.';
create index on billing_adjustments (tenant_id, customer_id);

create table billing_destinations (
  tenant_id         bigint not null,
  id                bigint generated always as identity,
  customer_id       bigint not null,
  connection_id     bigint not null,
  provider_customer text not null, -- ''; of who takes statements
  invoices_due_at   timestamptz, -- when the invoices there are listed again, while a reconciliation is open; null: at once
  created_at        timestamptz not null default now(),
  read_epoch        bigint not null default 0, -- of the ledger: the last one in which what was added up there was read
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, connection_id, provider_customer),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_destinations is 'Who adds up a customer''s usage: what the customer is, or was, at a connection.';

-- A change of any of the unique columns ends the series at that instant; the
-- next one carries only what the others of the same period have billed less.
-- All statements to a destination are one series.
create table billing_series (
  tenant_id      bigint not null,
  id             bigint generated always as identity,
  destination_id bigint not null,
  kind           text not null check (kind in ('statement', 'quantity', 'charge', 'invoice_action')),
  target         text not null default '', -- what adds it up there; of an invoice action, the invoice; own_invoice: the period's, which is made here
  method         text not null default '', -- the provider's word for how a quantity is reported
  counting       text not null check (counting in ('replaces', 'adds', 'latest')),
  meter_id       bigint, -- null: a statement has all of them, an invoice action none
  period_id      bigint, -- whose usage it is; null: of a statement and of an invoice action
  segment        smallint not null default 0, -- of the period, where its price changes
  window_start   timestamptz, -- of the far side's; of a charge, the target period's
  window_end     timestamptz,
  late           boolean not null default false, -- it carries what late usage adds to a closed period
  object         text not null default '', -- what is overwritten, in the provider's words; '': nobody knows
  created_at     timestamptz not null default now(),
  primary key (tenant_id, id),
  unique nulls not distinct (tenant_id, destination_id, kind, target, method, meter_id, period_id, segment, window_start),
  foreign key (tenant_id, destination_id) references billing_destinations (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  check ((kind in ('statement', 'invoice_action')) = (meter_id is null and period_id is null and window_start is null and window_end is null))
);
comment on table billing_series is 'What a provider adds up, or overwrites, on its side.';
create index on billing_series (tenant_id, period_id);

create table billing_reports (
  tenant_id      bigint not null,
  id             uuid not null, -- a statement's webhook-id, and the idempotency key at the provider
  customer_id    bigint not null,
  number         bigint not null check (number > 0), -- in the order in which the customer's were made; a statement's sequence
  series_id      bigint not null,
  period_id      bigint, -- that it is about; null: what holds or releases an invoice is about that
  quantity       numeric, -- that goes out; of a charge money; null: of a statement and of an invoice action
  body           bytea not null, -- JSON: what is sent, byte for byte
  provider_time  timestamptz, -- that the provider is told with it
  subscription   text not null default '', -- of a quantity: whose invoices bill it
  subscription_start timestamptz, -- of the subscription's period
  state          text not null default 'planned' check (state in ('planned', 'sending', 'in_doubt', 'accepted', 'counted', 'rejected')),
  key_revision   integer not null default 0, -- of the idempotency key
  attempts       integer not null default 0,
  first_sent_at  timestamptz,
  lease_until    timestamptz, -- nobody else sends it before
  response       text not null default '', -- what came of the last attempt, without the provider's words
  decided_at     timestamptz, -- when its outcome became known
  mode           text not null default 'live' check (mode in ('live', 'shadow')), -- shadow: it is kept and never sent
  ledger_epoch   bigint not null default 0, -- in which it was made
  rule_version   integer not null default 1, -- of the rules that planned it
  sequence       bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at    timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, number),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, series_id) references billing_series (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
comment on table billing_reports is 'What was, or is about to be, sent to a provider, with its bytes: written down before the call, and sent as it was written down.';
create unique index billing_reports_outstanding on billing_reports (tenant_id, series_id)
  where state in ('planned', 'sending', 'in_doubt');
create index billing_reports_outstanding_of on billing_reports (tenant_id, customer_id)
  where state in ('planned', 'sending', 'in_doubt');
create index on billing_reports (tenant_id, series_id, period_id, number);

create table billing_report_lines (
  tenant_id     bigint not null,
  report_id     uuid not null,
  line          smallint not null, -- in the order of the report
  meter_id      bigint, -- null: of none
  period_id     bigint not null, -- whose usage it is
  component     text not null default 'usage' check (component in ('usage', 'adjustment')), -- adjustment: what late usage adds to a closed period
  dimensions    jsonb not null default '{}', -- the values that it is of; {}: all
  usage         numeric not null, -- of the period, or of one of the provider's windows, when it was read
  event_count   bigint not null,  -- behind it
  quantity      numeric not null, -- what the far side has with it: usage less what other series have billed
  price_version integer not null, -- 0: the meter has no price, or the provider's own
  terms         bytea, -- that the charge is by, ours or the provider's; null: the meter has no price
  unit_price    numeric not null,
  charge        numeric not null, -- for usage, rounded to the currency's minor unit
  amount        numeric not null, -- charge less what other series have billed
  currency      text not null,
  primary key (tenant_id, report_id, line),
  unique nulls not distinct (tenant_id, report_id, meter_id, period_id, component, dimensions),
  foreign key (tenant_id, report_id) references billing_reports (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, terms) references price_terms (tenant_id, hash)
);
comment on table billing_report_lines is 'What a report says of one meter and period.';
create index on billing_report_lines (tenant_id, period_id) where component = 'adjustment';

-- A pass that begins after the request completes it.
create table billing_syncs (
  tenant_id    bigint not null,
  id           uuid not null,
  customer_id  bigint not null,
  trigger      text not null check (trigger in ('manual', 'schedule', 'provider')),
  actor        text not null,
  status       text not null default 'requested' check (status in ('requested', 'running', 'succeeded', 'failed')),
  error        text not null default '', -- what the operator should do
  requested_at timestamptz not null,
  started_at   timestamptz,
  finished_at  timestamptz,
  delay_reported_at timestamptz, -- time of the message sync.delayed
  failing_since timestamptz, -- of the customer's last sync, where it has failed: since when all have; null: it is not the last one, or has not failed
  callers      int not null default 1, -- that share the request: those that came before a pass took it
  pass_id      uuid,                   -- the last pass that took the request; null: none has
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_syncs is 'Requests to sync a customer. Those that come before a pass takes them share a row.';
create unique index billing_syncs_waiting on billing_syncs (tenant_id, customer_id) where status = 'requested';
create index billing_syncs_failing on billing_syncs (tenant_id, customer_id) where failing_since is not null;
create index billing_syncs_pass on billing_syncs (tenant_id, pass_id) where pass_id is not null;
create index on billing_syncs (tenant_id, customer_id, requested_at) where status in ('requested', 'running');
create index billing_syncs_newest on billing_syncs (tenant_id, id);

create table billing_pauses (
  tenant_id   bigint not null,
  id          bigint generated always as identity,
  customer_id bigint not null,
  began_at    timestamptz not null,
  began_by    text not null,
  reason      text not null,
  ended_at    timestamptz, -- null: it holds
  ended_by    text,
  end_reason  text,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  check ((ended_at is null) = (ended_by is null) and (ended_at is null) = (end_reason is null))
);
comment on table billing_pauses is 'When operators kept a customer from being reported. It holds whatever runs, until one of them ends it.';
create unique index billing_pauses_open on billing_pauses (tenant_id, customer_id) where ended_at is null;

create table billing_sync_reports (
  tenant_id bigint not null,
  sync_id   uuid not null,
  report_id uuid not null,
  primary key (tenant_id, sync_id, report_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, report_id) references billing_reports (tenant_id, id)
);
comment on table billing_sync_reports is 'What answers a sync: what it sent and what it found up to date.';

create table billing_sync_exclusions (
  tenant_id bigint not null,
  sync_id   uuid not null,
  meter_id  bigint not null,
  reason    text not null,
  primary key (tenant_id, sync_id, meter_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_sync_exclusions is 'The meters that a sync left out, and why.';

-- The schedules in Temporal follow. One that has not followed yet has
-- applied_at before updated_at, or none.
create table auto_syncs (
  tenant_id  bigint primary key references tenants,
  enabled    boolean not null,
  schedule   text not null, -- hourly, daily, or a cron expression in the tenant's time zone
  paused     boolean not null default false,
  updated_at timestamptz not null,
  updated_by text not null,
  applied_at timestamptz
);
comment on table auto_syncs is 'When the customers of a tenant are synced by themselves.';

create table provider_events (
  tenant_id         bigint not null references tenants,
  id                bigint generated always as identity,
  connection_id     bigint not null, -- that it came for
  event_id          text not null,
  kind              text not null,
  invoice           boolean not null, -- it is about an invoice, else about a subscription
  object_id         text not null,
  provider_customer text not null,
  made_at           timestamptz not null, -- at the provider
  received_at       timestamptz not null,
  handled_at        timestamptz,
  outcome           text not null default '',
  primary key (tenant_id, id),
  unique (tenant_id, connection_id, event_id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table provider_events is 'Events that a provider sent: each once, with what it takes to look up the rest.';
create index provider_events_open on provider_events (received_at) where handled_at is null;

create table provider_event_lists (
  tenant_id     bigint not null,
  connection_id bigint not null,
  seen_until    timestamptz not null, -- what was made before is known
  -- The walk through the list that is under way, from the newest event to seen_until.
  began_at      timestamptz, -- null: there is none
  last_event    text not null default '', -- that it has come to
  primary key (tenant_id, connection_id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table provider_event_lists is 'How far a provider''s own list of its events was read, for those that it never sent.';

create table billing_invoices (
  tenant_id        bigint not null,
  connection_id    bigint not null, -- with which it was read
  invoice_id       text not null,
  customer_id      bigint not null,
  provider_customer text not null, -- that it is to
  subscription     text not null, -- '': none made it; own_invoice: we have, for a period
  period_start     timestamptz not null, -- that ended with it
  period_end       timestamptz not null,
  renewal          boolean not null, -- it is the last one of the period: a renewal, a cancelled subscription's last, or a standalone invoice
  status           text not null, -- in the provider's words
  void             boolean not null, -- nobody has to pay it: it was voided, or credited in full
  reason           text not null, -- why the provider made it, in its own words
  currency         text not null,
  total            numeric not null,
  version          integer not null default 1, -- how often it was read with something else in it
  -- The decimals of the tenant's meters when it became final, by meter; of
  -- those that are missing none. null: it is a draft.
  decimals         jsonb,
  created_at       timestamptz not null, -- at the provider
  finalized_at     timestamptz, -- at the provider
  read_at          timestamptz not null,
  sequence         bigint not null default nextval('ledger_sequence'), -- of the ledger: of its last version
  primary key (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_invoices is 'Invoices of the provider''s, as they were last read there.';
create index on billing_invoices (tenant_id, customer_id);

create table billing_invoice_lines (
  tenant_id        bigint not null,
  connection_id    bigint not null,
  invoice_id       text not null,
  version          integer not null, -- of the invoice
  line             integer not null, -- in the order of the invoice
  line_id          text not null, -- at the provider
  meter_id         bigint, -- whose usage made it; null: none of ours
  item             text not null default '', -- of the subscription
  price            text not null default '', -- at the provider
  report_id        uuid, -- that put it there; null: none did
  proration        boolean not null,
  quantity         numeric not null, -- units
  amount           numeric not null, -- before discounts and tax, in the invoice's currency
  period_start     timestamptz not null,
  period_end       timestamptz not null,
  recorded_at      timestamptz not null,
  primary key (tenant_id, connection_id, invoice_id, version, line),
  foreign key (tenant_id, connection_id, invoice_id) references billing_invoices (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_invoice_lines is 'The lines of each version of an invoice that was read.';
create index on billing_invoice_lines (tenant_id, report_id) where report_id is not null;

create table billing_ended_subscriptions (
  tenant_id         bigint not null,
  connection_id     bigint not null, -- with which it was read
  subscription      text not null,
  customer_id       bigint not null,
  provider_customer text not null, -- whose it was
  period_start      timestamptz not null, -- of its last period
  period_end        timestamptz not null, -- when it ended
  read_at           timestamptz not null,
  sequence          bigint not null default nextval('ledger_sequence'), -- of the ledger
  primary key (tenant_id, connection_id, subscription),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_ended_subscriptions is 'Subscriptions that ended before their last period did, and none of whose invoices was a draft when they were listed after that: none follows.';
create index on billing_ended_subscriptions (tenant_id, customer_id);

-- Its reports are a series of their own: while the hold is outstanding nothing
-- releases the invoice.
create table billing_holds (
  tenant_id       bigint not null,
  id              bigint generated always as identity,
  customer_id     bigint not null,
  connection_id   bigint not null,
  invoice_id      text not null,
  grace_until     timestamptz not null, -- its period takes usage until then, and nothing is compared before
  deadline        timestamptz not null, -- then it becomes final by itself
  draft           jsonb not null, -- the lines as they were when it was to be held, and a hash of the rest
  state           text not null check (state in ('planned', 'held', 'disagrees', 'releasing', 'released', 'expired', 'finalized', 'theirs', 'refused')),
  reasons         jsonb not null default '[]', -- what was found when it was looked at last
  hold_report     uuid, -- null: nothing was sent, it was somebody else's from the beginning
  release_report  uuid, -- the last one; null: none was planned
  release_actor   text not null default '', -- who has asked for its release
  release_note    text not null default '', -- why, in the actor's words
  release_asked_at timestamptz,
  looked_at       timestamptz,
  ended_at        timestamptz, -- there is nothing left to do
  sequence        bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at     timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id, invoice_id) references billing_invoices (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, hold_report) references billing_reports (tenant_id, id),
  foreign key (tenant_id, release_report) references billing_reports (tenant_id, id)
);
comment on table billing_holds is 'Draft invoices that are kept from becoming final until they agree with the reports, an operator releases them, or their deadline is over.';
create index billing_holds_open on billing_holds (recorded_at) where ended_at is null;
create index on billing_holds (tenant_id, customer_id);
create index billing_holds_disagreeing on billing_holds (tenant_id) where state = 'disagrees' and ended_at is null;

create table billing_reconciliations (
  tenant_id   bigint not null,
  id          bigint generated always as identity,
  customer_id bigint not null,
  period_id   bigint not null, -- the closed one
  meter_id    bigint not null,
  -- Units, or, of a period that is billed in amounts, money.
  units       numeric not null, -- that the period closed at, in the decimals that the provider takes
  reported    numeric not null, -- of them, what the provider has accepted
  invoiced    numeric not null, -- that final invoices bill
  unexplained numeric not null, -- of these, what nobody has reported from here
  elsewhere   numeric not null, -- that were billed where no such invoice is read
  billed      numeric not null, -- that count as billed, elsewhere too: they are never charged again
  state       text not null check (state in ('agreed', 'carried', 'waived', 'disputed', 'written_off')),
  reason      text not null, -- why the invoices bill something else; '': they do not
  actor       text not null default '', -- who decided it; '': the rules
  note        text not null default '', -- why, in the actor's words
  sequence    bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at timestamptz not null,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id, meter_id) references billing_period_totals (tenant_id, period_id, meter_id)
);
comment on table billing_reconciliations is 'What final invoices bill of a closed period''s meter, beside what it came to: the last one of each holds.';
create index on billing_reconciliations (tenant_id, customer_id, period_id, meter_id, id);
create index on billing_reconciliations (state, tenant_id, period_id, meter_id);

-- +goose Down
drop table billing_reconciliations;
drop table billing_holds;
drop table billing_ended_subscriptions;
drop table billing_invoice_lines;
drop table billing_invoices;
drop table provider_event_lists;
drop table provider_events;
drop table auto_syncs;
drop table billing_sync_exclusions;
drop table billing_sync_reports;
drop table billing_pauses;
drop table billing_syncs;
drop table billing_report_lines;
drop table billing_reports;
drop table billing_series;
drop table billing_destinations;
drop table billing_adjustments;
drop table billing_period_totals;
drop table billing_periods;
drop table billing_stream_meters;
drop table billing_streams;
drop table billing_subscriptions;
drop table billing_links;
drop table billing_connections;
drop table ledger_epochs;
drop sequence ledger_sequence;
