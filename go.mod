module github.com/odometer-metering/odometer

go 1.26.0

ignore node_modules // npm's may hold Go files that are not ours

require (
	code.dny.dev/ssrf v0.3.0 // which addresses a tenant's URL may lead to
	github.com/compose-spec/compose-go/v2 v2.16.2 // tests: docker-compose.yml loads
	github.com/coreos/go-oidc/v3 v3.21.0 // discovery and ID tokens of a tenant's own sign-in
	github.com/danielgtaylor/huma/v2 v2.39.0 // HTTP operations, their validation and their OpenAPI document
	github.com/getkin/kin-openapi v0.142.0 // tests: answers are what the OpenAPI document says
	github.com/go-jose/go-jose/v4 v4.1.8 // our own JWTs; go-oidc's library too
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // jsontext: events are read in one pass; the standard library's own one day
	github.com/golang-jwt/jwt/v5 v5.3.1 // tests: mockoidc's claims
	github.com/google/uuid v1.6.0 // ids of events, snapshots and syncs (version 7)
	github.com/hashicorp/golang-lru/v2 v2.0.7 // ingest's bounded caches
	github.com/jackc/pgx/v5 v5.12.0 // PostgreSQL
	github.com/oauth2-proxy/mockoidc v0.0.0-20240214162133-caebfff84d25 // tests: an OpenID provider to sign in at
	github.com/odometer-metering/odometer/client v0.0.0 // tests and demo: the generated client
	github.com/pressly/goose/v3 v3.29.0 // migrations, under a lock
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/redis/go-redis/v9 v9.23.0 // one rate limit for all replicas, where REDIS_URL is set
	github.com/robfig/cron/v3 v3.0.1 // whether a cron expression is one
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.2 // tests: statements are what their JSON Schema says
	github.com/shopspring/decimal v1.6.0 // exact numbers, inside metering.Decimal
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1 // signatures of webhooks
	github.com/stretchr/testify v1.12.1 // tests: require
	github.com/stripe/stripe-go/v76 v76.25.0 // Stripe, in providers/stripe alone
	github.com/stripe/stripe-mock v0.185.0 // tests: whether calls to Stripe are well-formed
	github.com/wagslane/go-password-validator v0.3.0 // which passwords are guessed first
	go.opentelemetry.io/otel/exporters/prometheus v0.69.0 // metrics of the SDK of Temporal, among ours
	go.opentelemetry.io/otel/sdk/metric v1.47.0 // metrics of Temporal's SDK
	go.temporal.io/api v1.64.1 // Temporal's enums and errors
	go.temporal.io/sdk v1.50.0 // Temporal
	go.temporal.io/sdk/contrib/envconfig v1.0.2 // Temporal's own environment configuration
	go.temporal.io/sdk/contrib/opentelemetry v0.8.1 // metrics of Temporal's SDK
	golang.org/x/crypto v0.58.0 // hashes of passwords, by argon2id
	golang.org/x/oauth2 v0.37.0 // the code flow and PKCE of OIDC
	google.golang.org/grpc v1.84.0 // calls of Temporal that it gave up on, again
	google.golang.org/protobuf v1.36.12 // the durations in what Temporal is asked for
	pgregory.net/rapid v1.3.0 // tests: properties over random histories
)

require (
	github.com/BurntSushi/toml v1.4.0 // indirect
	github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/distribution/reference v0.6.0 // indirect
	github.com/docker/go-connections v0.8.2 // indirect
	github.com/docker/go-units v0.5.0 // indirect
	github.com/facebookgo/clock v0.0.0-20150410010913-600d898af40a // indirect
	github.com/go-jose/go-jose/v3 v3.0.5 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v0.22.5 // indirect
	github.com/go-openapi/swag/jsonname v0.25.5 // indirect
	github.com/go-viper/mapstructure/v2 v2.4.0 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/mock v1.6.0 // indirect
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.2 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.22.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/lestrrat-go/jspointer v0.0.0-20181205001929-82fadba7561c // indirect
	github.com/lestrrat-go/jsref v0.0.0-20181205001954-1b590508f37d // indirect
	github.com/lestrrat-go/jsschema v0.0.0-20181205002244-5c81c58ffcc3 // indirect
	github.com/lestrrat-go/jsval v0.0.0-20181205002323-20277e9befc0 // indirect
	github.com/lestrrat-go/pdebug v0.0.0-20180220043849-39f9a71bcabe // indirect
	github.com/lestrrat-go/structinfo v0.0.0-20190212233437-acd51874663b // indirect
	github.com/mattn/go-shellwords v1.0.12 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/nexus-rpc/nexus-proto-annotations v0.1.0 // indirect
	github.com/nexus-rpc/sdk-go v0.7.0 // indirect
	github.com/oapi-codegen/runtime v1.8.0 // indirect
	github.com/oasdiff/yaml v0.1.1 // indirect
	github.com/oasdiff/yaml3 v0.0.14 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/pkg/errors v0.8.1-0.20170505043639-c605e284fe17 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/otlptranslator v1.0.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/robfig/cron v1.2.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/sirupsen/logrus v1.10.1 // indirect
	github.com/stretchr/objx v0.5.3 // indirect
	github.com/swaggest/swgui v1.8.5 // Swagger UI, embedded: the reference at /docs
	github.com/xeipuuv/gojsonschema v1.2.0 // indirect
	github.com/xhit/go-str2duration/v2 v2.1.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.4 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8 // indirect
)

replace github.com/odometer-metering/odometer/client => ./client
