package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Page is a part of a list: at most as many items as requested, and fewer if they are large. It has at
// least one item unless the list has ended.
type Page[T any] struct {
	Items []T
	More  bool // whether more items follow
}

// Bounds of a page.
const (
	PageBytes = 1 << 20 // maximum size of the rows
	RowBytes  = 256     // overhead of each row
)

type roomKey struct{}

// WithRoom returns a context with a memory budget for pages. The function take reserves memory for each row of a page.
// If it returns false, the page ends before that row, unless it is the first row.
func WithRoom(ctx context.Context, take func(bytes int64) bool) context.Context {
	return context.WithValue(ctx, roomKey{}, take)
}

// PageRoom is the memory budget for the rows of a page.
type PageRoom struct {
	take func(bytes int64) bool
	held int
}

// RoomOf returns the memory budget for one page, with the function that WithRoom has stored in ctx. Without it, only
// PageBytes bounds the page.
func RoomOf(ctx context.Context) *PageRoom {
	take, limited := ctx.Value(roomKey{}).(func(int64) bool)
	if !limited {
		take = func(int64) bool { return true }
	}
	return &PageRoom{take: take}
}

// Fits reports whether a row of the given size fits on the page, and reserves memory for it. The first row always
// fits.
func (r *PageRoom) Fits(bytes int) bool {
	bytes += RowBytes
	first := r.held == 0
	if !first && r.held+bytes > PageBytes {
		return false
	}
	if taken := r.take(int64(bytes)); !taken && !first {
		return false
	}
	r.held += bytes
	return true
}

// ReadPage reads a page of up to limit items from rows. rows has up to limit+1 items, of which the last one shows
// that more items follow. ReadPage holds only the items of the page in memory.
func ReadPage[T any](ctx context.Context, rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) (page Page[T], err error) {
	defer rows.Close()
	room := RoomOf(ctx)
	for rows.Next() {
		if len(page.Items) == limit || !room.Fits(BytesOf(rows)) {
			page.More = true
			return page, nil
		}
		item, err := scan(rows)
		if err != nil {
			return Page[T]{}, err
		}
		page.Items = append(page.Items, item)
	}
	return page, rows.Err()
}

// BytesOf returns the size of the current row.
func BytesOf(rows pgx.Rows) (bytes int) {
	for _, column := range rows.RawValues() {
		bytes += len(column)
	}
	return bytes
}

// NewPage returns a page of up to limit items. items has up to limit+1 items, of which the last one shows that more
// items follow. bytes returns the size of an item.
func NewPage[T any](ctx context.Context, items []T, limit int, bytes func(T) int) Page[T] {
	room := RoomOf(ctx)
	for i, item := range items {
		if i == limit || !room.Fits(bytes(item)) {
			return Page[T]{items[:i], true}
		}
	}
	return Page[T]{Items: items}
}
