# The operator's image: one static binary on a base without a shell.
# Build for several platforms with `docker buildx build --platform linux/amd64,linux/arm64 .`
ARG BUILDER=docker.io/library/golang:1.26
ARG BASE=gcr.io/distroless/static:nonroot

# The builder runs on the machine's own platform and compiles for the target's.
FROM --platform=$BUILDPLATFORM ${BUILDER} AS builder
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
# The modules change less often than the code: a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY api/ api/
COPY controllers/ controllers/
COPY internal/ internal/
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /manager .

FROM ${BASE}
# Backups go to endpoints with public certificates, whatever the base holds.
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=builder /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
