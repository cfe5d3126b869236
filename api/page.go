package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Paging contains the query parameters of a list.
type Paging struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of items per page. A page also ends at 1 MiB"`
	PageToken string `query:"page_token" maxLength:"2048" doc:"next_page_token of the previous page"`
}

// List is a page of a list.
type List[T any] struct {
	Data          []T     `json:"data"`
	HasMore       bool    `json:"has_more" doc:"Whether another page follows"`
	NextPageToken *string `json:"next_page_token" doc:"page_token of the next page. Null on the last page"`
}

// listOf converts a page of rows to a List. cursorOf returns the cursor for the page that begins after a row.
func listOf[Row, Item, Cursor any](ctx context.Context, s *server, page pg.Page[Row], show func(Row) Item, cursorOf func(Row) Cursor) List[Item] {
	list := List[Item]{Data: make([]Item, 0, len(page.Items)), HasMore: page.More}
	for _, row := range page.Items {
		list.Data = append(list.Data, show(row))
	}
	if page.More {
		token := s.pageToken(ctx, cursorOf(page.Items[len(page.Items)-1]))
		list.NextPageToken = &token
	}
	return list
}

// pageToken encodes a cursor and signs it for the tenant and the query of this request. The token is invalid
// for other tenants and queries.
func (s *server) pageToken(ctx context.Context, cursor any) string {
	text, err := json.Marshal(cursor)
	if err != nil {
		panic(fmt.Sprintf("marshal cursor: %v", err)) // cursors are plain structs
	}
	return base64.RawURLEncoding.EncodeToString(append(s.pageMAC(ctx, text), text...))
}

var errPageToken = metering.Invalid("query.page_token", "is not a page token of this query")

// readPageToken verifies and decodes a token that pageToken returned for the same tenant and query. An empty
// token leaves the cursor unchanged.
func (s *server) readPageToken(ctx context.Context, token string, cursor any) error {
	if token == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != token || len(raw) < macSize || !hmac.Equal(raw[:macSize], s.pageMAC(ctx, raw[macSize:])) {
		return errPageToken
	}
	if err := json.Unmarshal(raw[macSize:], cursor); err != nil {
		return errPageToken
	}
	return nil
}

const macSize = 16

func (s *server) pageMAC(ctx context.Context, cursor []byte) []byte {
	mac := hmac.New(sha256.New, s.pageKey)
	mac.Write([]byte(principalOf(ctx).Tenant.ID.String() + "\n" + queryOf(ctx) + "\n"))
	mac.Write(cursor)
	return mac.Sum(nil)[:macSize]
}

// queryOf returns the path and the query without the paging parameters. The value is the same for all pages
// of a list.
func queryOf(ctx context.Context) string {
	r := exchangeOf(ctx).request
	query := r.URL.Query()
	query.Del("page_token")
	query.Del("page_size")
	for _, values := range query {
		slices.Sort(values)
	}
	return r.URL.Path + "?" + query.Encode()
}
