#!/bin/bash
# Where Bitnami's chart looks for the entry point. What it did, `lockkeeper docker-entrypoint` does, in run.sh.
set -o errexit -o nounset
exec "$@"
