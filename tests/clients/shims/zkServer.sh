#!/usr/bin/env bash
# Stands for ZooKeeper's bin/zkServer.sh in the Go client's suite, which uses `start-foreground zoo.cfg` alone.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ "$1" != start-foreground ]; then
  echo "zkServer.sh stand-in: only start-foreground is known, not $1" >&2
  exit 64
fi
# Word splitting is meant: the harness puts several -D properties into one variable.
# shellcheck disable=SC2086
exec "$here/../bin/server-under-test" ${SERVER_JVMFLAGS:-} "$2"
