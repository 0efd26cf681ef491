# An image that holds the static binary and nothing else.
#
#     scripts/static-binary.sh
#     docker build -t revstore .
#     docker run --rm -p 127.0.0.1:2379:2379 revstore
#
# Built for the architecture of the machine that built the binary. Data are in memory: the container
# needs no volume, and stopping it discards them.
FROM scratch
COPY target/static/revstore /revstore
USER 65534:65534
EXPOSE 2379
STOPSIGNAL SIGTERM
ENTRYPOINT ["/revstore"]
CMD ["--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"]
