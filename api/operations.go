package api

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

func get(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodGet, id, path, permission, summary, description)
}

func post(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPost, id, path, permission, summary, description)
}

func put(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPut, id, path, permission, summary, description)
}

func patch(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPatch, id, path, permission, summary, description)
}

func remove(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodDelete, id, path, permission, summary, description)
}

// operation returns an operation with the fields that all operations have. Its tag is the first segment of
// the path after /v1/, or health.
func operation(method, id, path string, permission Permission, summary, description string) huma.Operation {
	op := huma.Operation{
		Method: method, OperationID: id, Path: path, Summary: summary, Description: description, DefaultStatus: http.StatusOK,
		Tags:     []string{tag(path)},
		Metadata: map[string]any{"permission": permission},
		// x-permission documents the permission for readers of the document.
		Extensions: map[string]any{"x-permission": permission},
	}
	op.Security = noCredential
	if permission == Public {
		return withBodyUpTo(op, smallBody)
	}
	op.Extensions["x-rate-limit"] = "calls"
	op.Security = []map[string][]string{{"apiKey": {}}, {"hmac": {}}, {"session": {}}, {"cookie": {}}}
	return withBodyUpTo(op, maxBody)
}

// maxBody is the maximum size in bytes of a body, unless the operation sets another one.
const maxBody = 1 << 20

// withBodyUpTo sets the maximum size of an operation's body, in bytes. huma refuses a body of MaxBodyBytes bytes.
func withBodyUpTo(op huma.Operation, largest int64) huma.Operation {
	op.MaxBodyBytes = largest + 1
	return op
}

// largestBody returns the maximum size of an operation's body, in bytes.
func largestBody(op *huma.Operation) int64 { return op.MaxBodyBytes - 1 }

// decodesInHuma reports whether huma decodes the operation's body. The operations that accept events, and a
// provider's events, decode their bodies themselves.
func decodesInHuma(op *huma.Operation) bool {
	return op.Metadata["limited"] != true && !op.SkipValidateBody
}

// tag returns the first segment of a path after /v1/, such as meters for /v1/meters/{slug}. All other paths
// have the tag health.
func tag(path string) string {
	noun, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return "health"
	}
	noun, _, _ = strings.Cut(noun, "/")
	return noun
}

// redirect sets the success status of an operation to 302.
func redirect(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusFound
	return op
}

// created sets the success status of an operation to 201.
func created(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusCreated
	return op
}

// accepted sets the success status of an operation to 202.
func accepted(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusAccepted
	return op
}
