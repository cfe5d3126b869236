# `docker build .` makes the image to deploy: the odometer binary and nothing else of ours.
# `--target demo` adds what docker-compose.yml needs to show it: the demo, the webhook receiver and the fake of Stripe.
FROM node:22.20.0-trixie-slim AS dashboard
WORKDIR /src
COPY client/typescript client/typescript
COPY dashboard dashboard
RUN --mount=type=cache,target=/root/.npm npm ci --ignore-scripts --prefix dashboard && npm run build --prefix dashboard

FROM golang:1.26.8-trixie AS build
WORKDIR /src
COPY . .
COPY --from=dashboard /src/dashboard/dist/built dashboard/dist/built
ENV CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -ldflags="-s -w" -o /out/odometer ./cmd/odometer && \
    go build -ldflags="-s -w" -o /out/demo ./dev/demo && \
    go build -ldflags="-s -w" -o /out/receiver ./dev/receiver/cmd && \
    go build -ldflags="-s -w" -o /out/stripe ./dev/stripefake

FROM debian:13.1-slim AS base
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates curl && \
    rm -rf /var/lib/apt/lists/* && \
    groupadd --system --gid 65532 odometer && \
    useradd --system --uid 65532 --gid 65532 --no-create-home odometer && \
    install -d -o odometer /var/lib/odometer-demo
COPY LICENSE /usr/share/doc/odometer/
USER 65532:65532
CMD ["odometer", "api"]
ENV LISTEN_ADDRESS=:8080
EXPOSE 8080

FROM base AS demo
COPY --from=build /out/ /usr/local/bin/

FROM base AS odometer
COPY --from=build /out/odometer /usr/local/bin/
