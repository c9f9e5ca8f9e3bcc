#!/bin/bash
# Exits with 0 when the service in this container is ready. Bash alone: a Python that starts every
# few seconds in each container would keep a core busy.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/${PERDURE_HEALTH_PORT:?}"
printf 'GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
answer=$(cat <&3)
# What docker inspect shows of a check that failed.
printf '%s\n' "$answer" | tail -n 1
[[ $answer == "HTTP/1.1 200"* ]]
