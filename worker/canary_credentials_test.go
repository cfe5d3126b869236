package worker_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// keys creates and rotates API keys, and sends requests with invalid keys.
func (c *canary) keys() {
	made := c.must(201, "POST", "/v1/api-keys", object{"name": "canary-key", "scope": "read_write"}, "Idempotency-Key: canary-once")
	c.secret("an API key", made["key"].(string))
	c.must(409, "POST", "/v1/api-keys", object{"name": "canary-key", "scope": "read_write"}, "Idempotency-Key: canary-once")
	rotated := c.must(201, "POST", "/v1/api-keys/"+made["id"].(string)+"/rotate", nil)
	c.secret("a rotated API key", rotated["key"].(string))
	c.must(401, "GET", "/v1/customers", nil, "Authorization: Bearer "+made["key"].(string))
	beside := c.must(201, "POST", "/v1/api-keys/"+rotated["id"].(string)+"/rotate", object{"overlap_seconds": 3600}, "Idempotency-Key: canary-rotation")
	c.secret("an API key beside the one that it replaces", beside["key"].(string))
	c.must(409, "POST", "/v1/api-keys/"+rotated["id"].(string)+"/rotate", object{"overlap_seconds": 3600}, "Idempotency-Key: canary-rotation")
	c.must(401, "GET", "/v1/customers", nil, "Authorization: Bearer svc_adm_canarycanarycanarycanarycanary")
	c.must(403, "GET", "/v1/tenant", nil, "Authorization: Bearer "+rotated["key"].(string))
}

// signatures creates and rotates an HMAC secret, and sends signed requests.
func (c *canary) signatures() {
	made := c.must(201, "POST", "/v1/hmac-secrets", object{"name": "canary-service", "scope": "admin"})
	id, secret := made["id"].(string), made["secret"].(string)
	c.secret("an HMAC secret", secret)
	c.must(200, "GET", "/v1/customers", nil, c.sign(secret)...)
	fresh := c.must(201, "POST", "/v1/hmac-secrets/"+id+"/rotate", object{"overlap_seconds": 3600})
	c.secret("its successor", fresh["secret"].(string))
	c.finish("hmac_secret", strings.TrimPrefix(id, "sec_"))
	c.must(401, "GET", "/v1/customers", nil, c.sign(secret)...)
	c.must(200, "GET", "/v1/customers", nil, c.sign(fresh["secret"].(string))...)
}

// finish ends the old credential of a rotation at once.
func (c *canary) finish(kind, old string) {
	c.Helper()
	var run string
	require.NoError(c, c.conn.QueryRow(c.Context(), `
		select format('rotate-credential/%s/%s', tenant_id, id) from credential_rotations where kind = $1 and old_id = $2::bigint`, kind, old).Scan(&run))
	dbtest.Eventually(c, func() error { // if starting the run took too long, a worker starts it
		handle, err := c.temporal.UpdateWorkflow(c.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run, UpdateName: "finish-now", Args: []any{asks}, WaitForStage: client.WorkflowUpdateStageCompleted})
		if err != nil {
			return err
		}
		return handle.Get(c.Context(), nil)
	})
}

// sign returns the headers of a signed GET.
func (c *canary) sign(secret string) []string {
	timestamp, id := fmt.Sprint(time.Now().Unix()), rand.Text()
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s:%s:", timestamp, id)
	return []string{"Authorization: HMAC v1:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		"X-Timestamp: " + timestamp, "X-Request-Id: " + id, "X-Tenant-Id: " + c.tenant}
}
