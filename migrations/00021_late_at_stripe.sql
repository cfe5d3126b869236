-- +goose Up

-- Late usage is billed at Stripe by an invoice item: money, which it adds up.
-- Its window is the open period that carries it, as with 'adjustment'.
alter table billing_series
  drop constraint billing_series_mechanism_check,
  add constraint billing_series_mechanism_check
    check (mechanism in ('snapshot', 'adjustment', 'usage_record', 'meter_window', 'meter_delta', 'meter_last', 'invoice_item'));

-- What the provider was told of usage by the closing, in whole units, and what
-- the charge is for; null: all of it, exactly.
alter table billing_period_totals add column told numeric;

-- +goose Down
alter table billing_period_totals drop column told;
alter table billing_series
  drop constraint billing_series_mechanism_check,
  add constraint billing_series_mechanism_check
    check (mechanism in ('snapshot', 'adjustment', 'usage_record', 'meter_window', 'meter_delta', 'meter_last'));
