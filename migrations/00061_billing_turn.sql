-- +goose Up

-- Raised by whoever plans the customer's billing, so that another who waited
-- for it fails and reads again.
alter table customers add column billing_turn bigint not null default 0;

-- +goose Down
alter table customers drop column billing_turn;
