package metering_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestWorkflowUpdateRequiresAuthorAndReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked metering.Asked
		field string // the refused field; "": none
	}{
		"a user":              {metering.Asked{By: "ada", Reason: "the receiver is being moved"}, ""},
		"an actor":            {metering.Asked{By: "member_12", Reason: "für “alle”\nund jeden"}, ""},
		"the longest reason":  {metering.Asked{By: "a.b-c", Reason: strings.Repeat("ä", 500)}, ""},
		"nobody":              {metering.Asked{Reason: "why not"}, "by"},
		"an e-mail":           {metering.Asked{By: "ada@example.com", Reason: "why not"}, "by"},
		"too long a name":     {metering.Asked{By: strings.Repeat("a", 65), Reason: "why not"}, "by"},
		"a key for a name":    {metering.Asked{By: "svc_adm_0123456789abcdef", Reason: "why not"}, "by"},
		"no reason":           {metering.Asked{By: "ada", Reason: " \n"}, "reason"},
		"too long a reason":   {metering.Asked{By: "ada", Reason: strings.Repeat("ä", 501)}, "reason"},
		"a control character": {metering.Asked{By: "ada", Reason: "a\x00b"}, "reason"},
		"no UTF-8":            {metering.Asked{By: "ada", Reason: "a\xff"}, "reason"},
		"a key of ours":       {metering.Asked{By: "ada", Reason: "I use svc_rw_0123456789abcdef0123456789abcdef now"}, "reason"},
		"a key of Stripe's":   {metering.Asked{By: "ada", Reason: "sk_live_51ABCDEFGH is revoked"}, "reason"},
		"a signing secret":    {metering.Asked{By: "ada", Reason: "it was whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "reason"},
		"a token":             {metering.Asked{By: "ada", Reason: "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x"}, "reason"},
		"a header":            {metering.Asked{By: "ada", Reason: "with Authorization: Bearer 0123456789abcdef0123"}, "reason"},
		"the word bearer":     {metering.Asked{By: "ada", Reason: "the bearer was wrong"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.asked.Validate()
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.field)
			require.NotContains(t, err.Error(), "0123456789", "a secret is not echoed")
		})
	}
}
