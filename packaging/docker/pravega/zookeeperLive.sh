#!/usr/bin/env bash
# The liveness probe of pravega's operator.
set -o nounset
[ "$(echo ruok | socat stdio "tcp:localhost:${CLIENT_PORT:-2181}")" = imok ]
