package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/crypto/bcrypt"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// protectedUI is Temporal's UI behind nginx, with the configuration of docs/operating/temporal.md.
type protectedUI struct {
	*testing.T
	folder  string
	trusted *x509.CertPool
	ports   map[string]string // addresses, by the ports in the docs
}

const protectedHost = "temporal.example.com"

// protectUI starts nginx in front of the UI of Temporal, with users that can read and operators that can act.
func protectUI(t *testing.T) *protectedUI {
	t.Helper()
	ui := os.Getenv("TEST_TEMPORAL_UI_URL")
	require.NotEmpty(t, ui, "TEST_TEMPORAL_UI_URL is not set: run make test, or dev/up test go test ./...")
	p := &protectedUI{t, t.TempDir(), x509.NewCertPool(), map[string]string{"443": proc.FreeAddress(t), "80": proc.FreeAddress(t)}}
	p.certify()
	p.let("viewers", "grace", "ada")
	p.let("operators", "ada")

	text, err := os.ReadFile("../../docs/operating/temporal.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```nginx\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, shown)
	servers := string(shown[1])
	for _, here := range [][2]string{
		{"listen 443 ", "listen " + p.ports["443"] + " "}, {"listen 80;", "listen " + p.ports["80"] + ";"}, {"http://127.0.0.1:8233;", ui + ";"},
		{"/etc/nginx/temporal.crt;", p.folder + "/temporal.crt;"}, {"/etc/nginx/temporal.key;", p.folder + "/temporal.key;"},
		{"/etc/nginx/$file;", p.folder + "/$file;"}, {"/var/log/nginx/operators.log", p.folder + "/operators.log"},
	} {
		require.Equal(t, 1, strings.Count(servers, here[0]), here[0])
		servers = strings.Replace(servers, here[0], here[1], 1)
	}
	elsewhere := "access_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		elsewhere += kind + "_temp_path " + p.folder + ";\n"
	}
	p.write("nginx.conf", "daemon off;\nmaster_process off;\npid "+p.folder+"/pid;\nevents {}\nhttp {\n"+elsewhere+servers+"}\n")
	p.start()
	return p
}

// write creates a file in the folder of the proxy.
func (p *protectedUI) write(name, text string) {
	p.Helper()
	require.NoError(p, os.WriteFile(filepath.Join(p.folder, name), []byte(text), 0o600))
}

// certify creates a certificate of protectedHost and adds it to p.trusted.
func (p *protectedUI) certify() {
	p.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(p, err)
	now := time.Now()
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{protectedHost}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	require.NoError(p, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(p, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	require.True(p, p.trusted.AppendCertsFromPEM(public))
	p.write("temporal.crt", string(public))
	p.write("temporal.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// let writes names to a file as htpasswd -B does. The password of each name is the name itself.
func (p *protectedUI) let(file string, names ...string) {
	p.Helper()
	lines := ""
	for _, name := range names {
		hash, err := bcrypt.GenerateFromPassword([]byte(name), bcrypt.MinCost)
		require.NoError(p, err)
		lines += fmt.Sprintf("%s:%s\n", name, hash)
	}
	p.write(file, lines)
}

// start runs nginx and waits until it accepts connections.
func (p *protectedUI) start() {
	p.Helper()
	serve(p.T, "nginx", "-p", p.folder, "-e", "stderr", "-c", p.folder+"/nginx.conf")
	dbtest.Eventually(p.T, func() error {
		conn, err := net.Dial("tcp", p.ports["443"])
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// browser returns an HTTP client that trusts the certificates and follows no redirect.
func (p *protectedUI) browser(trusted *x509.CertPool) *http.Client {
	p.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(p, err)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, p.ports[port])
		},
	}
	p.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request with the name and password, or without credentials if name is "". It includes the CSRF
// token that the UI gave the browser.
func (p *protectedUI) ask(browser *http.Client, name, password, method, path, body string) (status int, answer string) {
	p.Helper()
	request, err := http.NewRequestWithContext(p.Context(), method, "https://"+protectedHost+path, strings.NewReader(body))
	require.NoError(p, err)
	if name != "" {
		request.SetBasicAuth(name, password)
	}
	for _, cookie := range browser.Jar.Cookies(request.URL) {
		if cookie.Name == "_csrf" {
			request.Header.Set("X-CSRF-Token", cookie.Value)
		}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := browser.Do(request)
	require.NoError(p, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p, err)
	return response.StatusCode, string(text)
}

// TestTheTemporalUIIsProtectedAsTheDocsSay runs nginx in front of Temporal's own UI, with the configuration that
// docs/operating/temporal.md shows.
func TestTheTemporalUIIsProtectedAsTheDocsSay(t *testing.T) {
	t.Parallel()
	p := protectUI(t)
	namespace := proc.Namespace(t, temporalAddress(t))
	c := proc.Temporal(t, temporalAddress(t), namespace)
	w := worker.New(c, "waiting", worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		workflow.SetCurrentDetails(ctx, "it waits for ever")
		return workflow.Await(ctx, func() bool { return false })
	}, workflow.RegisterOptions{Name: "Wait"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), temporal.StartWorkflowOptions{ID: "sync-customer/2/10", TaskQueue: "waiting"}, "Wait")
	require.NoError(t, err)

	workflows := "/api/v1/namespaces/" + namespace + "/workflows"
	of := workflows + "/" + url.PathEscape(run.GetID())
	details := of + "/query/__temporal_workflow_metadata"
	stranger, viewer, operator := p.browser(p.trusted), p.browser(p.trusted), p.browser(p.trusted)
	for _, path := range []string{"/", workflows, of, "/api/v1/settings"} {
		for _, credentials := range [][2]string{{}, {"ada", "grace"}, {"mallory", "mallory"}} {
			status, text := p.ask(stranger, credentials[0], credentials[1], "GET", path, "")
			require.Equal(t, 401, status, "%s: %s", path, text)
		}
	}
	for name, browser := range map[string]*http.Client{"grace": viewer, "ada": operator} {
		status, text := p.ask(browser, name, name, "GET", "/namespaces/"+namespace+"/workflows", "")
		require.Equal(t, 200, status, text)
		require.Contains(t, text, "<html")
		status, text = p.ask(browser, name, name, "GET", workflows, "")
		require.Equal(t, 200, status, text)
		status, text = p.ask(browser, name, name, "POST", details, "{}")
		require.Equal(t, 200, status, text)
		status, _ = p.ask(browser, name, name, "GET", of, "")
		require.Equal(t, 200, status)
	}
	for _, path := range []string{of + "/cancel", of + "/terminate", of + "/signal/resume", of + "/query/x/terminate", "/api/v1/namespaces"} {
		for name, browser := range map[string]*http.Client{"": stranger, "grace": viewer, "mallory": stranger} {
			status, text := p.ask(browser, name, name, "POST", path, "{}")
			require.Equal(t, 401, status, "%s by %q: %s", path, name, text)
		}
	}
	described, err := c.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
	require.NoError(t, err)
	require.Equal(t, "Running", described.GetWorkflowExecutionInfo().GetStatus().String(), "nobody has stopped it")
	status, text := p.ask(operator, "ada", "ada", "POST", of+"/terminate", `{"reason":"it waits for ever"}`)
	require.Equal(t, 200, status, text)
	require.ErrorContains(t, run.Get(t.Context(), nil), "terminated")

	_, err = p.browser(x509.NewCertPool()).Get("https://" + protectedHost + "/")
	require.ErrorContains(t, err, "certificate")
	redirect, err := stranger.Get("http://" + protectedHost + "/namespaces?a=b")
	require.NoError(t, err)
	require.NoError(t, redirect.Body.Close())
	require.Equal(t, 301, redirect.StatusCode)
	require.Equal(t, "https://"+protectedHost+"/namespaces?a=b", redirect.Header.Get("Location"))
	log, err := os.ReadFile(p.folder + "/operators.log")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\S+ 127\.0\.0\.1 ada "POST \S+/terminate HTTP/1\.1" 200$`, string(log))
}
