package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDocsNameEveryOperationAndNeedNobodyElse(t *testing.T) {
	t.Parallel()
	s := newServer(Deps{})
	answer := httptest.NewRecorder()
	s.docs()(answer, httptest.NewRequest(http.MethodGet, "/docs", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	page := answer.Body.String()
	for path, item := range s.api.OpenAPI().Paths {
		require.Contains(t, page, path)
		if item.Get != nil {
			require.Contains(t, page, `id="`+item.Get.OperationID+`"`)
		}
	}
	require.NotContains(t, page, "<script")
	require.NotContains(t, strings.ReplaceAll(page, "http://127.0.0.1", ""), "http://")
	require.NotContains(t, page, "https://")
}
