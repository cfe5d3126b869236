package main

import (
	"context"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/pg"
)

// migrate migrates the database schema to this version, and grants permissions to the roles of the API and the worker.
func migrate(ctx context.Context, env *environment) error {
	url, roles := env.databaseURL(), pg.Roles{API: env.get("API_ROLE"), Worker: env.get("WORKER_ROLE")}
	if err := env.err(); err != nil {
		return err
	}
	store, err := db.Open(ctx, url, nil, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrate(ctx, roles)
}
