-- +goose Up

-- Rules read these: whoever writes a row says when, by the clock that the
-- rules are asked with.
alter table customers alter column created_at drop default;
alter table billing_syncs alter column requested_at drop default;
alter table outbox alter column created_at drop default;

-- +goose Down
alter table outbox alter column created_at set default now();
alter table billing_syncs alter column requested_at set default now();
alter table customers alter column created_at set default now();
