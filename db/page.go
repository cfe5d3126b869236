package db

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
	pageBytes = 1 << 20 // maximum size of the rows
	rowBytes  = 256     // overhead of each row
)

type roomKey struct{}

// WithRoom returns a context in which a page ends before the row for which take returns false.
func WithRoom(ctx context.Context, take func(bytes int64) bool) context.Context {
	return context.WithValue(ctx, roomKey{}, take)
}

// pageRoom is the room for the rows of a page.
type pageRoom struct {
	take func(bytes int64) bool
	held int
}

func roomOf(ctx context.Context) *pageRoom {
	take, limited := ctx.Value(roomKey{}).(func(int64) bool)
	if !limited {
		take = func(int64) bool { return true }
	}
	return &pageRoom{take: take}
}

// fits reports whether a row with so many bytes fits, and takes room for it. The first row always fits.
func (r *pageRoom) fits(bytes int) bool {
	bytes += rowBytes
	first := r.held == 0
	if !first && r.held+bytes > pageBytes {
		return false
	}
	if taken := r.take(int64(bytes)); !taken && !first {
		return false
	}
	r.held += bytes
	return true
}

// readPage reads a page from rows, which have up to limit+1 items, until the page is full. It holds no
// row in memory beyond the page.
func readPage[T any](ctx context.Context, rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) (page Page[T], err error) {
	defer rows.Close()
	room := roomOf(ctx)
	for rows.Next() {
		if len(page.Items) == limit || !room.fits(bytesOf(rows)) {
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

func bytesOf(rows pgx.Rows) (bytes int) {
	for _, column := range rows.RawValues() {
		bytes += len(column)
	}
	return bytes
}

// pageOf returns a page of items, of which there are up to limit+1. bytes returns the size of an item.
func pageOf[T any](ctx context.Context, items []T, limit int, bytes func(T) int) Page[T] {
	room := roomOf(ctx)
	for i, item := range items {
		if i == limit || !room.fits(bytes(item)) {
			return Page[T]{items[:i], true}
		}
	}
	return Page[T]{Items: items}
}
