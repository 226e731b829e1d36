# Debian's PostgreSQL 15 with blobext: docs/packages.md says how to build and run it.
FROM debian:bookworm AS build
RUN apt-get update \
	&& apt-get install -y --no-install-recommends \
		build-essential postgresql-server-dev-15 liburing-dev libssl-dev liblz4-dev libzstd-dev
COPY . /usr/local/src/blobext
RUN make -C /usr/local/src/blobext -j"$(nproc)" PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config \
	&& make -C /usr/local/src/blobext install DESTDIR=/out \
		PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config

FROM debian:bookworm
# No cluster of the package's: the entry point makes one in the volume.
RUN apt-get update \
	&& mkdir -p /etc/postgresql-common \
	&& echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
	&& apt-get install -y --no-install-recommends postgresql-15 liburing2 libssl3 liblz4-1 libzstd1 \
	&& rm -rf /var/lib/apt/lists/* \
	&& install -d -m 700 -o postgres -g postgres /var/lib/postgresql/data
COPY --from=build /out/ /
COPY docker/entrypoint /usr/local/bin/blobext-entrypoint
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8
USER postgres
VOLUME /var/lib/postgresql/data
EXPOSE 5432
# A fast shutdown.
STOPSIGNAL SIGINT
HEALTHCHECK CMD pg_isready -q
ENTRYPOINT ["/usr/local/bin/blobext-entrypoint"]
