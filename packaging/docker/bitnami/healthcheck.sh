#!/bin/bash
# The probe of Bitnami's chart: does the server answer `ruok`? ZOO_HC_TIMEOUT: seconds it may take.
set -o nounset
port="${ZOO_PORT_NUMBER:-2181}"
answer="$(echo ruok | timeout "${ZOO_HC_TIMEOUT:-5}" nc -w "${ZOO_HC_TIMEOUT:-5}" localhost "$port")"
[ "$answer" = imok ]
