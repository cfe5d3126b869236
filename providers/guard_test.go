package providers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

func TestTenantURLMustBePublicHTTPSURL(t *testing.T) {
	t.Parallel()
	for url, rule := range map[string]string{
		"https://billing.example.com/usage":      "",
		"https://billing.example.com:8443/u?k=v": "",
		"https://8.8.8.8/":                       "",
		"http://billing.example.com/":            "must begin with https://",
		"ftp://billing.example.com/":             "must begin with https://",
		"http://127.0.0.1:8090/":                 "must begin with https://",
		"https://user:pw@example.com/":           "must not contain a user name or password",
		"https://example.com/#part":              "must not contain a fragment",
		"https:///path":                          "must be an absolute URL",
		"":                                       "must be an absolute URL",
		"https:billing":                          "must be an absolute URL",
		"https://169.254.169.254/latest":         "must not name a private or reserved address",
		"https://168.63.129.16/machine":          "must not name a private or reserved address",
		"https://127.0.0.1/":                     "must not name a private or reserved address",
		"https://10.0.0.1/":                      "must not name a private or reserved address",
		"https://100.64.0.1/":                    "must not name a private or reserved address",
		"https://[::1]/":                         "must not name a private or reserved address",
		"https://[::ffff:127.0.0.1]/":            "must not name a private or reserved address",
		"https://[64:ff9b::7f00:1]/":             "must not name a private or reserved address",
		"https://[64:ff9b:1::a00:1]/":            "must not name a private or reserved address",
		"https://[2002:a00:1::]/":                "must not name a private or reserved address",
		"https://[fd00:ec2::254]/":               "must not name a private or reserved address",
		"https://[fe80::1%25eth0]/":              "must not name a private or reserved address",
		"https://[::ffff:168.63.129.16]/":        "must not name a private or reserved address",
		"https://[::a9fe:a9fe]/":                 "must not name a private or reserved address",
		"https://" + strings.Repeat("a", 2048):   "must have at most 2048 characters",
		"https://bücher.example/":                "must be ASCII",
		"https://xn--bcher-kva.example/%C3%BC":   "",
	} {
		err := providers.Guard{}.CheckURL("body.url", url)
		if rule == "" {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, "body.url "+rule, url)
		require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	}
}

func TestDevelopmentGuardAllowsLoopbackButNoPrivateAddress(t *testing.T) {
	t.Parallel()
	development := providers.Guard{AllowLoopback: true}
	for _, url := range []string{"http://127.0.0.1:8090/", "http://localhost/", "https://127.0.0.1/", "http://[::1]:80/"} {
		require.NoError(t, development.CheckURL("body.url", url), url)
	}
	for _, url := range []string{"http://example.com/", "https://10.0.0.1/", "http://192.168.1.1/"} {
		require.Error(t, development.CheckURL("body.url", url), url)
	}
}
