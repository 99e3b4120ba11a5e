# The images, for those who build with a container engine; "make image" makes the same ones without.
#
#   docker build --target forwarder .
#   docker build --target dlt-replayer .
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# What the images have beside their binary: certificates, a user without rights, and a folder for temporary files.
RUN mkdir -p /rootfs/etc/ssl/certs /rootfs/usr/local/bin /rootfs/usr/share/licenses/redrive \
    && install -d -m 1777 /rootfs/tmp \
    && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
    && printf 'root:x:0:0:root:/:/none\nredrive:x:65532:65532:redrive:/:/none\n' > /rootfs/etc/passwd \
    && printf 'root:x:0:\nredrive:x:65532:\n' > /rootfs/etc/group
COPY LICENSE /rootfs/usr/share/licenses/redrive/
COPY cmd cmd
COPY internal internal
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
ARG TARGETOS
ARG TARGETARCH
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace" \
    LDFLAGS="-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE"

FROM source AS build-forwarder
RUN go build -ldflags "$LDFLAGS" -o /rootfs/usr/local/bin/ ./cmd/forwarder

FROM source AS build-dlt-replayer
RUN go build -ldflags "$LDFLAGS" -o /rootfs/usr/local/bin/ ./cmd/dlt-replayer

FROM scratch AS base
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.created=$DATE \
      org.opencontainers.image.source=https://github.com/kafka-redrive/redrive \
      org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/usr/local/bin
# In numbers, so that a cluster can tell that it is not root.
USER 65532:65532
WORKDIR /

FROM base AS dlt-replayer
LABEL org.opencontainers.image.title="Redrive dlt-replayer" \
      org.opencontainers.image.description="Indexes dead letters of Kafka and replays them"
COPY --from=build-dlt-replayer /rootfs/ /
ENTRYPOINT ["/usr/local/bin/dlt-replayer"]

FROM base AS forwarder
LABEL org.opencontainers.image.title="Redrive forwarder" \
      org.opencontainers.image.description="Brings failed Kafka records back when they are due"
COPY --from=build-forwarder /rootfs/ /
ENTRYPOINT ["/usr/local/bin/forwarder"]
