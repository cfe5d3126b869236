# `docker build .` builds the image to deploy. It contains the odometer binary and no other program of this repository.
# `--target demo` builds the image for docker-compose.yml, which adds the demo, the webhook receiver and the fake of
# Stripe.
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

FROM debian:13.1-slim AS demo
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates curl && \
    rm -rf /var/lib/apt/lists/* && \
    install -d -o 65532 -g 65532 /var/lib/odometer-demo
COPY --from=build /out/ /usr/local/bin/
COPY LICENSE /usr/share/doc/odometer/
USER 65532:65532

# The image has no shell, no packages, and only the files below. The binary embeds the time zone database.
FROM scratch AS odometer
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/odometer /usr/local/bin/
COPY LICENSE /usr/share/doc/odometer/
ENV PATH=/usr/local/bin LISTEN_ADDRESS=:8080
USER 65532:65532
EXPOSE 8080
CMD ["odometer", "api"]
