package db

import (
	"context"
	"fmt"
	"time"
)

// oldRows describes the rows of a table that are deleted by age.
type oldRows struct {
	table string
	key   string // columns of the primary key, separated by commas
	by    string // column with the time from which the age counts
	and   string // a further SQL condition, which begins with "and"; "" for none
	noun  string // for errors
}

// sweep deletes up to limit rows, of any tenant, that are older than before. It skips rows that another
// transaction has locked.
func (o oldRows) sweep(ctx context.Context, q querier, before time.Time, limit int) (deleted int64, err error) {
	tag, err := q.Exec(ctx, `
		delete from `+o.table+`
		where (`+o.key+`) in (
		  select `+o.key+`
		  from `+o.table+`
		  where `+o.by+` < $1 `+o.and+`
		  order by `+o.by+`
		  limit $2
		  for update skip locked)`, before, limit)
	if err != nil {
		return 0, fmt.Errorf("delete old %s: %w", o.noun, coded(err))
	}
	return tag.RowsAffected(), nil
}
