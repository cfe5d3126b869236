-- +goose Up

-- Each record of the ledger takes its number from this sequence. The numbers and
-- the transactions that were open at an instant determine the records that were
-- known then. The numbers ascend within each tenant. They have gaps: the numbers
-- of records that were not stored.
create sequence ledger_sequence;

-- The part of a bill to which a line belongs. Only usage must have a meter.
create domain billing_component as text check (value in ('usage'));

-- The numbers of reports of usage rise with the epoch. So no new report has the
-- number of a report that was sent before the restore and is unknown since.
create table ledger_epochs (
  -- The Unix time at which it was raised, or the previous epoch + 1 if that is
  -- higher. So two restores of one backup differ.
  epoch     bigint primary key,
  raised_at timestamptz not null,
  -- recorded_at of the last report in the backup; 2000-01-01 without any.
  -- Reports that were recorded later are unknown.
  known_at  timestamptz not null
);
comment on table ledger_epochs is 'The restores of the database from a backup. The highest epoch is the current one. Without restores, the epoch is 0.';

create table billing_connections (
  tenant_id                bigint not null references tenants,
  id                       bigint generated always as identity,
  kind                     text not null,
  statements               boolean not null, -- it receives the whole bill of a period in one report
  invoices                 boolean not null, -- its final invoices are the record of billed usage
  account                  text not null, -- account that the secret belongs to; '': the provider has no accounts
  livemode                 boolean, -- whether reports are charged; null: unknown
  address                  text not null default '', -- URL of a webhook; '' for other providers
  secret                   bytea not null, -- sealed
  secret_last_four         text not null,
  webhook_secret           bytea, -- sealed; the provider signs its events with it
  webhook_secret_last_four text not null default '',
  mapping                  jsonb not null default '{}', -- meter slug to the provider's price
  -- The form in which usage is billed: bills for periods that begin at
  -- bills_since or later, bills_before for earlier periods.
  bills                    text not null default 'quantities' check (bills in ('quantities', 'amounts')),
  bills_before             text not null default 'quantities' check (bills_before in ('quantities', 'amounts')),
  bills_since              timestamptz not null,
  -- Product, tax and payment fields of the lines and invoices that Odometer
  -- creates there, when amounts are billed.
  invoice_text             jsonb not null default '{}',
  validated_at             timestamptz not null,
  created_at               timestamptz not null default now(),
  created_by               text not null,
  retired_at               timestamptz,
  primary key (tenant_id, id)
);
comment on table billing_connections is 'The provider accounts and receivers of statements that bill, or have billed, a tenant''s usage. At most one is active. A new secret, or a new URL of the same receiver, keeps the connection. Test and live mode are two connections.';
create unique index billing_connections_of_account on billing_connections (tenant_id, kind, account, livemode) nulls not distinct where account <> '';
create unique index billing_connections_active on billing_connections (tenant_id) where retired_at is null;

create table billing_links (
  tenant_id         bigint not null,
  customer_id       bigint not null,
  connection_id     bigint not null,
  provider_customer text not null, -- '': the customer is not linked
  subscription      text not null, -- subscription that the customer's periods follow; '': none
  period_start      timestamptz, -- of the subscription's current period, when it was read
  period_end        timestamptz,
  trial             boolean not null default false, -- that period is a trial
  ended             boolean not null default false, -- the subscription has ended: only its last invoice is left
  currency          text not null default '', -- ISO 4217; of the subscription; '': unknown
  destinations      jsonb not null, -- of each meter, with the hash of its price there
  charges           jsonb, -- destinations of each meter's charges, when amounts are billed; null: they were not read
  -- The customer's subscriptions with other periods that bill meters, each with
  -- its period and the destinations of these meters.
  others            jsonb not null default '[]',
  read_at           timestamptz not null,
  primary key (tenant_id, customer_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_links is 'The state of a customer at the provider, with the destination of each meter''s usage, as last read.';

create table billing_subscriptions (
  tenant_id     bigint not null,
  customer_id   bigint not null,
  connection_id bigint not null,
  subscription  text not null,
  began_at      timestamptz not null,
  ended_at      timestamptz, -- null: it has not ended
  targets       text[] not null default '{}', -- of the destinations for which it has, or had, a price
  primary key (tenant_id, customer_id, connection_id, subscription),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_subscriptions is 'The start and end of the customers'' subscriptions, and the targets that they bill, according to the provider.';

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
comment on table billing_streams is 'The subscriptions that have billing schedules (streams) of their own. All other periods of a customer belong to schedule 0.';

create table billing_stream_meters (
  tenant_id      bigint not null,
  customer_id    bigint not null,
  meter_id       bigint not null,
  id             bigint generated always as identity, -- of two rows with one effective_from, the higher id applies
  stream         smallint not null,
  effective_from timestamptz not null,
  recorded_at    timestamptz not null,
  primary key (tenant_id, customer_id, meter_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_stream_meters is 'The billing schedule (stream) that a customer''s meter feeds from an instant on. Before its first row, a meter feeds schedule 0.';

create table billing_periods (
  tenant_id          bigint not null,
  id                 bigint generated always as identity,
  customer_id        bigint not null,
  stream             smallint not null default 0, -- number of the customer's billing schedule
  starts_at          timestamptz not null,
  ends_at            timestamptz not null check (starts_at < ends_at),
  -- The subscription's period that it lies in. Quantities are reported with a
  -- time that lies in both periods.
  subscription       text not null default '', -- '': none; 'own_invoice', or 'own_invoice/N' in schedule N: none, Odometer creates the period's invoice
  subscription_start timestamptz,
  subscription_end   timestamptz,
  subscription_connection bigint, -- connection of the subscription
  trial              boolean not null default false, -- the provider charges nothing for the period
  -- The form in which a provider with invoices bills the period. Once decided,
  -- it never changes. '': undecided, or no provider with invoices bills it.
  bills              text not null default '' check (bills in ('', 'quantities', 'amounts')),
  -- The hash of the provider's price, by meter: the last one that was read
  -- while the subscription's period ran, else the first one read after it.
  prices             jsonb not null default '{}',
  -- The events and settings that the customer's reports take into account,
  -- once all reports are accepted.
  watermark_events        bigint, -- number of events
  watermark_configuration text not null default '', -- hash of the settings; '': usage may be unreported
  closed_at          timestamptz,
  closed_epoch       bigint, -- epoch of the tenant after the closing: events with this epoch or a higher one are late
  closed_sequence    bigint, -- of the ledger
  -- The period is closed, nothing is left to report, no report is outstanding,
  -- and no invoice is awaited.
  complete           boolean not null default false,
  reconciled_through bigint not null default 0, -- compared with the invoices up to this ledger number
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, stream, starts_at),
  unique (tenant_id, customer_id, stream, ends_at),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_periods is 'The billing periods of a customer''s billing schedules. Each begins where the previous one of its schedule ended.';
create index billing_periods_open on billing_periods (tenant_id, customer_id) where closed_at is null;
create index billing_periods_incomplete on billing_periods (tenant_id, customer_id) where not complete;

-- Usage that arrives later is stored apart from these totals. If it is billed,
-- it is an adjustment in another period.
create table billing_period_totals (
  tenant_id        bigint not null,
  period_id        bigint not null,
  component        billing_component not null default 'usage',
  meter_id         bigint, -- null: no meter
  -- The meter in keys and joins, where a null matches nothing. 0: no meter.
  meter_key        bigint not null generated always as (coalesce(meter_id, 0)) stored,
  meter_version_id bigint, -- version that counted the usage; null: it is not for usage
  usage            numeric not null,
  event_count      bigint not null,
  dimensions       jsonb, -- usage by dimension values, if the price has dimensions
  price_version    integer not null, -- 0: the meter had no price, or the provider's own
  terms            bytea, -- terms of the charged price, ours or the provider's; null: the meter had no price
  charge           numeric not null, -- for usage, rounded to the currency's minor unit
  currency         text not null,
  working          jsonb not null, -- breakdown of the charge: the steps of its calculation
  billed           boolean not null, -- whether a provider bills it; otherwise it is never adjusted
  test             boolean not null, -- closed in test mode, which charges nothing
  trial            boolean not null default false, -- neither the usage nor late usage is charged
  scale            smallint, -- decimals of the units that the charge is for; null: all decimals of the usage
  -- The late usage before the last change of the meter's value property or
  -- filters, less the usage of the same events under the new definition. It is
  -- added to the counted late usage.
  late_difference_usage      numeric not null default 0,
  late_difference_count      bigint not null default 0,
  late_difference_dimensions jsonb, -- late_difference_usage by dimension values
  late_usage       numeric, -- late usage up to the deletion of the period's events; null: the events are kept
  late_count       bigint,
  late_dimensions  jsonb, -- late_usage by dimension values
  -- Covers the period's events with the meter's event type that arrived before
  -- the closing. It is computed within hours after the closing; null: not yet.
  digest           bytea,
  digest_algorithm text,
  digest_events    bigint,
  unreconciled     boolean not null default false, -- it awaits the comparison with the last invoice that bills it
  primary key (tenant_id, period_id, meter_key, component),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id),
  foreign key (tenant_id, terms) references price_terms (tenant_id, hash),
  check (component <> 'usage' or meter_id is not null),
  check ((component = 'usage') = (meter_version_id is not null))
);
comment on table billing_period_totals is 'The lines with which a billing period was closed: the total of each meter.';
create index billing_period_totals_unreconciled on billing_period_totals (tenant_id, period_id, meter_key, component) where unreconciled;
create index billing_period_totals_undigested on billing_period_totals (tenant_id, period_id) where digest is null and meter_version_id is not null;

-- Late usage changes the total of a closed period. Each adjustment is the
-- difference from the previous one, or from the closing.
create table billing_adjustments (
  tenant_id     bigint not null,
  id            bigint generated always as identity,
  customer_id   bigint not null,
  period_id     bigint not null, -- the closed one
  component     billing_component not null default 'usage',
  meter_id      bigint, -- null: no meter
  meter_key     bigint not null generated always as (coalesce(meter_id, 0)) stored,
  event_count   bigint not null, -- number of the period's events that it covers, late ones included
  units_before  numeric not null, -- charged units
  units         numeric not null,
  dimensions    jsonb, -- units by dimension values, if the price has dimensions
  charge_before numeric not null, -- rounded to the currency's minor unit
  charge        numeric not null,
  amount        numeric generated always as (charge - charge_before) stored,
  currency      text not null, -- of the closed period
  billed        boolean not null, -- in a target period; otherwise the late policy only reported it
  sequence      bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at   timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, period_id, meter_key, component, event_count),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id, meter_key, component) references billing_period_totals (tenant_id, period_id, meter_key, component)
);
comment on table billing_adjustments is 'The changes of the totals of closed periods since the closing. Each is booked once and never changes.';
create index on billing_adjustments (tenant_id, customer_id);

create table billing_destinations (
  tenant_id         bigint not null,
  id                bigint generated always as identity,
  customer_id       bigint not null,
  connection_id     bigint not null,
  provider_customer text not null, -- '' for a receiver of statements
  invoices_due_at   timestamptz, -- when its invoices are listed again, while a reconciliation is open; null: at once
  created_at        timestamptz not null default now(),
  read_epoch        bigint not null default 0, -- last epoch of the ledger in which the totals there were read
  renamed           boolean not null default false, -- the customer was erased since: it is known there by its previous name
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, connection_id, provider_customer),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table billing_destinations is 'The destinations to which a customer''s usage is, or was, reported: a customer at the provider, or a receiver of statements.';
create index billing_destinations_renamed on billing_destinations (tenant_id, customer_id) where renamed;

-- A change of any of the unique columns ends the series at that instant. The
-- next series reports only the part that the other series of the same period
-- have not billed. All statements to a destination are one series.
create table billing_series (
  tenant_id      bigint not null,
  id             bigint generated always as identity,
  destination_id bigint not null,
  kind           text not null check (kind in ('statement', 'quantity', 'charge', 'invoice_action')),
  -- The object at the provider that receives the reports, such as a meter or a
  -- subscription. For an invoice action it is the invoice. own_invoice is the
  -- invoice that Odometer creates for a period of schedule 0, and own_invoice/N
  -- the one for a period of schedule N.
  target         text not null default '',
  method         text not null default '', -- the provider's name for the way in which a quantity is reported
  counting       text not null check (counting in ('replaces', 'adds', 'latest')),
  component      billing_component not null default 'usage', -- of a quantity or a charge
  meter_id       bigint, -- null: no meter; a statement covers all meters
  meter_key      bigint not null generated always as (coalesce(meter_id, 0)) stored,
  period_id      bigint, -- period of the usage; null for a statement and for an invoice action
  segment        smallint not null default 0, -- part of the period, if the price changes within it
  -- The part of the period for which the provider keeps a quantity or a
  -- charge. For late usage, it is the target period.
  window_start   timestamptz,
  window_end     timestamptz,
  late           boolean not null default false, -- it charges the adjustments of a closed period
  object         text not null default '', -- id of the provider object that the reports overwrite; '': unknown
  created_at     timestamptz not null default now(),
  primary key (tenant_id, id),
  unique nulls not distinct (tenant_id, destination_id, kind, target, method, component, meter_id, period_id, segment, window_start),
  foreign key (tenant_id, destination_id) references billing_destinations (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  check (case when kind in ('statement', 'invoice_action') then num_nonnulls(meter_id, period_id, window_start, window_end) = 0
    else num_nulls(period_id, window_start, window_end) = 0 and (component <> 'usage' or meter_id is not null) end)
);
comment on table billing_series is 'Sequences of reports to one destination that the provider adds up, or of which it keeps the last one.';
create index on billing_series (tenant_id, period_id);

create table billing_reports (
  tenant_id      bigint not null,
  id             uuid not null, -- webhook-id of a statement; with key_revision, the idempotency key at the provider
  customer_id    bigint not null,
  number         bigint not null check (number > 0), -- ascending per customer; the sequence of a statement
  series_id      bigint not null,
  period_id      bigint, -- period of the reported usage; null for a hold or a release of an invoice
  quantity       numeric, -- the sent quantity, money for a charge; null for a statement and for an invoice action
  body           bytea not null, -- JSON: the payload, or the encoded call to the provider; each attempt uses the same
  provider_time  timestamptz, -- timestamp that the provider receives with it
  subscription   text not null default '', -- for a quantity: the invoices of this subscription bill it
  subscription_start timestamptz, -- of the subscription's period
  state          text not null default 'planned' check (state in ('planned', 'sending', 'in_doubt', 'accepted', 'counted', 'rejected')),
  key_revision   integer not null default 0, -- of the idempotency key
  attempts       integer not null default 0,
  first_sent_at  timestamptz,
  lease_until    timestamptz, -- no other attempt sends it before
  response       text not null default '', -- result of the last attempt, without the provider's text
  decided_at     timestamptz, -- when its outcome became known
  mode           text not null default 'live' check (mode in ('live', 'shadow')), -- shadow: it is stored and never sent
  ledger_epoch   bigint not null default 0, -- epoch in which it was created
  rule_version   integer not null default 1, -- of the rules that planned it
  sequence       bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at    timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, number),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, series_id) references billing_series (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
comment on table billing_reports is 'The reports to providers. Each is stored with its body before the call, and sent as it was stored.';
create unique index billing_reports_outstanding on billing_reports (tenant_id, series_id)
  where state in ('planned', 'sending', 'in_doubt');
create index billing_reports_outstanding_of on billing_reports (tenant_id, customer_id)
  where state in ('planned', 'sending', 'in_doubt');
create index on billing_reports (tenant_id, series_id, period_id, number);

create table billing_report_lines (
  tenant_id     bigint not null,
  report_id     uuid not null,
  line          smallint not null, -- in the order of the report
  meter_id      bigint, -- null: no meter
  period_id     bigint not null, -- period of the usage
  component     billing_component not null default 'usage',
  late          boolean not null default false, -- the change that late usage makes to a closed period
  dimensions    jsonb not null default '{}', -- dimension values of the usage; {}: all
  usage         numeric not null, -- of the period, or of one of the provider's windows, when it was read
  event_count   bigint not null,  -- of the usage
  -- The quantity that the provider has with this report: usage minus the
  -- quantity that other series have billed.
  quantity      numeric not null,
  price_version integer not null, -- 0: the meter has no price, or the provider's own
  terms         bytea, -- terms of the charged price, ours or the provider's; null: the meter has no price
  unit_price    numeric not null,
  charge        numeric not null, -- for usage, rounded to the currency's minor unit
  amount        numeric not null, -- charge minus the amount that other series have billed
  currency      text not null,
  primary key (tenant_id, report_id, line),
  unique nulls not distinct (tenant_id, report_id, meter_id, period_id, component, late, dimensions),
  foreign key (tenant_id, report_id) references billing_reports (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, terms) references price_terms (tenant_id, hash),
  check (component <> 'usage' or meter_id is not null)
);
comment on table billing_report_lines is 'The lines of reports: the usage and charge of one meter and period.';
create index on billing_report_lines (tenant_id, period_id) where late;

-- A pass that begins after a request answers the request.
create table billing_syncs (
  tenant_id    bigint not null,
  id           uuid not null,
  customer_id  bigint not null,
  trigger      text not null check (trigger in ('manual', 'schedule', 'provider')),
  actor        text not null,
  status       text not null default 'requested' check (status in ('requested', 'running', 'succeeded', 'failed')),
  error        text not null default '', -- the fix that the operator should make
  requested_at timestamptz not null,
  started_at   timestamptz,
  finished_at  timestamptz,
  delay_reported_at timestamptz, -- time of the message sync.delayed
  -- Only for the customer's last sync, if it failed: the time since which all
  -- syncs have failed. null: another sync is the last one, or it has not failed.
  failing_since timestamptz,
  callers      int not null default 1, -- number of callers that share the request
  pass_id      uuid,                   -- the last pass that took the request; null: none
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_syncs is 'The syncs of customers. Requests that arrive before a pass takes them share a row.';
create unique index billing_syncs_waiting on billing_syncs (tenant_id, customer_id) where status = 'requested';
create index billing_syncs_failing on billing_syncs (tenant_id, customer_id) where failing_since is not null;
create index billing_syncs_pass on billing_syncs (tenant_id, pass_id) where pass_id is not null;
create index on billing_syncs (tenant_id, customer_id, requested_at) where status in ('requested', 'running');
create index billing_syncs_newest on billing_syncs (tenant_id, id);
create index billing_syncs_finished on billing_syncs (finished_at) where finished_at is not null and failing_since is null;

create table billing_pauses (
  tenant_id   bigint not null,
  id          bigint generated always as identity,
  customer_id bigint not null,
  began_at    timestamptz not null,
  began_by    text not null,
  reason      text not null,
  ended_at    timestamptz, -- null: the customer is paused
  ended_by    text,
  end_reason  text,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  check ((ended_at is null) = (ended_by is null) and (ended_at is null) = (end_reason is null))
);
comment on table billing_pauses is 'The pauses of customers by operators. A pause stops the reports of the customer''s usage until an operator ends the pause.';
create unique index billing_pauses_open on billing_pauses (tenant_id, customer_id) where ended_at is null;

create table billing_sync_reports (
  tenant_id bigint not null,
  sync_id   uuid not null,
  report_id uuid not null,
  primary key (tenant_id, sync_id, report_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id) on delete cascade,
  foreign key (tenant_id, report_id) references billing_reports (tenant_id, id)
);
comment on table billing_sync_reports is 'The reports of a sync, which were sent, rejected, or found up to date.';

create table billing_sync_exclusions (
  tenant_id bigint not null,
  sync_id   uuid not null,
  meter_id  bigint not null,
  code      text not null, -- billing.ExclusionCode
  detail    text not null, -- the cause at the provider, in words; '': none is known
  primary key (tenant_id, sync_id, meter_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id) on delete cascade,
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_sync_exclusions is 'The meters that a sync excluded, with the reasons.';

-- The schedules in Temporal follow these settings. Until a tenant's schedule
-- does, applied_at is null or before updated_at.
create table auto_syncs (
  tenant_id  bigint primary key references tenants,
  enabled    boolean not null,
  schedule   text not null, -- hourly, daily, or a cron expression in the tenant's time zone
  paused     boolean not null default false,
  updated_at timestamptz not null,
  updated_by text not null,
  applied_at timestamptz
);
comment on table auto_syncs is 'The tenants'' settings for automatic syncs of their customers.';

create table provider_events (
  tenant_id         bigint not null references tenants,
  id                bigint generated always as identity,
  connection_id     bigint not null, -- connection of the event
  event_id          text not null,
  kind              text not null,
  invoice           boolean not null, -- about an invoice; otherwise about a subscription
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
comment on table provider_events is 'Events of providers. Each is stored once, with the ids of the objects to read at the provider.';
create index provider_events_open on provider_events (received_at) where handled_at is null;
create index provider_events_handled on provider_events (handled_at) where handled_at is not null;

create table provider_event_lists (
  tenant_id     bigint not null,
  connection_id bigint not null,
  seen_until    timestamptz not null, -- events created before are known
  -- The current walk through the list, from the newest event back to seen_until.
  began_at      timestamptz, -- null: there is none
  last_event    text not null default '', -- last event of the previous page
  primary key (tenant_id, connection_id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id)
);
comment on table provider_event_lists is 'The progress in reading a provider''s list of its events. The list also has the events that the provider never sent.';

create table billing_invoices (
  tenant_id        bigint not null,
  connection_id    bigint not null, -- connection with which it was read
  invoice_id       text not null,
  customer_id      bigint not null,
  provider_customer text not null, -- customer at the provider
  subscription     text not null, -- '': none; own_invoice, or own_invoice/N in schedule N: Odometer created the invoice for a period
  period_start     timestamptz not null, -- of the period that ended with it
  period_end       timestamptz not null,
  -- The last invoice of the period: a renewal, the last invoice of a canceled
  -- subscription, or a final standalone invoice.
  renewal          boolean not null,
  status           text not null, -- in the provider's terms
  void             boolean not null, -- no payment is due: it was voided, or credited in full
  reason           text not null, -- why the provider created it, in the provider's terms
  currency         text not null,
  total            numeric not null,
  version          integer not null default 1, -- raised each time that it was read with other content
  -- The usage scales of the tenant's meters when the invoice was first read as
  -- final, by meter. A missing meter has none. null: it is a draft.
  decimals         jsonb,
  created_at       timestamptz not null, -- at the provider
  finalized_at     timestamptz, -- at the provider
  read_at          timestamptz not null,
  sequence         bigint not null default nextval('ledger_sequence'), -- of the ledger; number of the last version
  primary key (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_invoices is 'The invoices of providers, as last read.';
create index on billing_invoices (tenant_id, customer_id);

create table billing_invoice_lines (
  tenant_id        bigint not null,
  connection_id    bigint not null,
  invoice_id       text not null,
  version          integer not null, -- of the invoice
  line             integer not null, -- in the order of the invoice
  line_id          text not null, -- at the provider
  meter_id         bigint, -- meter that the line bills; null: none
  item             text not null default '', -- of the subscription
  price            text not null default '', -- at the provider
  report_id        uuid, -- report that created the line; null: none
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
  connection_id     bigint not null, -- connection with which it was read
  subscription      text not null,
  customer_id       bigint not null,
  provider_customer text not null, -- customer at the provider
  period_start      timestamptz not null, -- of its last period
  period_end        timestamptz not null, -- when it ended
  read_at           timestamptz not null,
  sequence          bigint not null default nextval('ledger_sequence'), -- of the ledger
  primary key (tenant_id, connection_id, subscription),
  foreign key (tenant_id, connection_id) references billing_connections (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_ended_subscriptions is 'Subscriptions that ended before the end of their last period. None of their invoices was a draft when the invoices were listed after that, so none follows.';
create index on billing_ended_subscriptions (tenant_id, customer_id);

-- The reports that hold and release an invoice are a series of their own. So no
-- report releases the invoice while the report that holds it is outstanding.
create table billing_holds (
  tenant_id       bigint not null,
  id              bigint generated always as identity,
  customer_id     bigint not null,
  connection_id   bigint not null,
  invoice_id      text not null,
  grace_until     timestamptz not null, -- until then usage changes its period, and nothing is compared
  deadline        timestamptz not null, -- then the provider makes it final automatically
  draft           jsonb not null, -- the lines when the hold was recorded, and a hash of the other settings
  state           text not null check (state in ('planned', 'held', 'disagrees', 'releasing', 'released', 'expired', 'finalized', 'theirs', 'refused')),
  reasons         jsonb not null default '[]', -- the findings of the last evaluation
  hold_report     uuid, -- null: no hold was planned, because the draft was not automatic or its deadline had passed
  release_report  uuid, -- the last one; null: none was planned
  release_actor   text not null default '', -- actor that requested its release
  release_note    text not null default '', -- why, in the actor's words
  release_asked_at timestamptz,
  looked_at       timestamptz,
  ended_at        timestamptz, -- time from which nothing is left to do
  sequence        bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at     timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, connection_id, invoice_id) references billing_invoices (tenant_id, connection_id, invoice_id),
  foreign key (tenant_id, hold_report) references billing_reports (tenant_id, id),
  foreign key (tenant_id, release_report) references billing_reports (tenant_id, id)
);
comment on table billing_holds is 'Draft invoices that are kept from becoming final until they agree with the reports, an operator releases them, or their deadline passes.';
create index billing_holds_open on billing_holds (recorded_at) where ended_at is null;
create index on billing_holds (tenant_id, customer_id);
create index billing_holds_disagreeing on billing_holds (tenant_id) where state = 'disagrees' and ended_at is null;

create table billing_reconciliations (
  tenant_id   bigint not null,
  id          bigint generated always as identity,
  customer_id bigint not null,
  period_id   bigint not null, -- the closed one
  component   billing_component not null default 'usage',
  meter_id    bigint, -- null: no meter
  meter_key   bigint not null generated always as (coalesce(meter_id, 0)) stored,
  -- In units, or in money if the period is billed in amounts.
  units       numeric not null, -- total with which the period closed, in the decimals that the provider takes
  reported    numeric not null, -- accepted by providers
  invoiced    numeric not null, -- billed by final invoices
  unexplained numeric not null, -- part of invoiced that Odometer has not reported
  elsewhere   numeric not null, -- billed where no such invoice is read
  billed      numeric not null, -- counts as billed, also by other connections, and is never charged again
  state       text not null check (state in ('agreed', 'carried', 'waived', 'disputed', 'written_off')),
  reason      text not null, -- billing.ReconciliationReason; '': the invoices agree
  actor       text not null default '', -- actor that decided it; '': the rules decided it
  note        text not null default '', -- why, in the actor's words
  sequence    bigint not null default nextval('ledger_sequence'), -- of the ledger
  recorded_at timestamptz not null,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id, meter_key, component) references billing_period_totals (tenant_id, period_id, meter_key, component)
);
comment on table billing_reconciliations is 'Comparisons of a line of a closed period with the final invoices. The last one of each line applies.';
create index on billing_reconciliations (tenant_id, customer_id, period_id, meter_key, component, id);
create index on billing_reconciliations (state, tenant_id, period_id, meter_key);

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
drop domain billing_component;
drop sequence ledger_sequence;
