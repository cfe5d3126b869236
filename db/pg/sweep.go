package pg

import (
	"context"
	"fmt"
	"time"
)

// OldRows describes the rows of a table that are deleted by age.
type OldRows struct {
	Table string
	Key   string // columns of the primary key, separated by commas
	By    string // column with the time that determines the age of a row
	And   string // a further SQL condition, which begins with "and"; "" for none
	Noun  string // for errors
}

// Sweep deletes up to limit rows, of any tenant, if the time in the column By is earlier than the given instant. It
// skips rows that another transaction has locked.
func (o OldRows) Sweep(ctx context.Context, q Querier, before time.Time, limit int) (deleted int64, err error) {
	tag, err := q.Exec(ctx, `
		delete from `+o.Table+`
		where (`+o.Key+`) in (
		  select `+o.Key+`
		  from `+o.Table+`
		  where `+o.By+` < $1 `+o.And+`
		  order by `+o.By+`
		  limit $2
		  for update skip locked)`, before, limit)
	if err != nil {
		return 0, fmt.Errorf("delete old %s: %w", o.Noun, Coded(err))
	}
	return tag.RowsAffected(), nil
}
