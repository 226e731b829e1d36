# Debian's PostgreSQL with the packages of this source: docs/packages.md says how to build and run
# it.  PG_MAJOR is 15, 17 or 18.  The target "extension" has the files of the extension alone, for
# operators on Kubernetes: docs/kubernetes.md.
ARG PG_MAJOR=15
FROM debian:bookworm AS debian-15
FROM debian:trixie AS debian-17
FROM debian:forky AS debian-18

FROM debian-$PG_MAJOR AS package
ARG PG_MAJOR
COPY . /usr/local/src/blobext
RUN DEB_BUILD_OPTIONS=nocheck DEB_BUILD_PROFILES=nocheck \
	/usr/local/src/blobext/dev/package /packages

FROM package AS layout
ARG PG_MAJOR
RUN /usr/local/src/blobext/docker/extension /layout /packages/postgresql-$PG_MAJOR-blobext_*.deb \
	&& rm /layout/Dockerfile /layout/.dockerignore

FROM scratch AS extension
COPY --from=layout /layout/ /

FROM debian-$PG_MAJOR
ARG PG_MAJOR
COPY --from=package /packages/postgresql-$PG_MAJOR-blobext_*.deb /packages/
# No cluster of the package's: the entry point makes one in the volume.  Its files belong to the same
# numbers in the images of all versions.
RUN groupadd --system --gid 102 postgres \
	&& useradd --system --uid 100 --gid 102 --home-dir /var/lib/postgresql --shell /bin/bash \
		postgres \
	&& apt-get update \
	&& mkdir -p /etc/postgresql-common /docker-entrypoint-initdb.d \
	&& echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		postgresql-$PG_MAJOR xz-utils zstd /packages/*.deb \
	&& rm -rf /var/lib/apt/lists/* /packages \
	&& install -d -m 700 -o postgres -g postgres /var/lib/postgresql/data
COPY docker/entrypoint /usr/local/bin/blobext-entrypoint
ENV PATH=/usr/lib/postgresql/$PG_MAJOR/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	LANG=C.UTF-8
USER postgres
VOLUME /var/lib/postgresql/data
EXPOSE 5432
# A fast shutdown.
STOPSIGNAL SIGINT
HEALTHCHECK CMD pg_isready -q
ENTRYPOINT ["/usr/local/bin/blobext-entrypoint"]
