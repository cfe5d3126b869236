package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Page is a part of a list: as many items as were asked for, fewer where they are large, and
// one at least.
type Page[T any] struct {
	Items []T
	More  bool // whether others follow
}

// Bounds of a page.
const (
	pageBytes = 1 << 20 // of its rows
	rowBytes  = 256     // that each row costs beside its columns
)

type roomKey struct{}

// WithRoom returns a context in which a page ends where take refuses the bytes of its next row.
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

// fits reports whether so many bytes more fit, and takes them. The first ones always do.
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

// readPage reads rows, which are those of up to limit items and one more, until the page is
// full. It holds no row beyond the page.
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

// pageOf is a page of items, up to limit and one more, that were worked out from others.
func pageOf[T any](ctx context.Context, items []T, limit int, bytes func(T) int) Page[T] {
	room := roomOf(ctx)
	for i, item := range items {
		if i == limit || !room.fits(bytes(item)) {
			return Page[T]{items[:i], true}
		}
	}
	return Page[T]{Items: items}
}
