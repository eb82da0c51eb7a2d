#!/bin/bash
# Where Bitnami's chart looks for the server.
set -o errexit -o nounset
exec lockkeeper docker-entrypoint --style bitnami "$@"
