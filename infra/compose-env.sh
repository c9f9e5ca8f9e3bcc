#!/usr/bin/env bash
# Writes random passwords for docker-compose.yml into .env (or the file that is named), readable by
# its owner only. A file that is there already stays as it is: the volumes know its passwords.
#   infra/compose-env.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:-.env}

# 192 bits; hexadecimal, because the passwords become parts of URLs.
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

if [ -e "$file" ] || [ -L "$file" ]; then
    echo "$file is there already: left as it is"
    exit 0
fi
umask 077
new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
cat >"$new" <<END
# Secrets of docker-compose.yml, made by make compose-env. Not for version control. The passwords are
# set when the volumes are first made: a change here later does not change them there.
PERDURE_POSTGRES_PASSWORD=$(random)
PERDURE_RABBITMQ_PASSWORD=$(random)
PERDURE_S3_ACCESS_KEY=$(random)
PERDURE_S3_SECRET_KEY=$(random)
END
# Not mv: a file that came to be meanwhile is not overwritten.
ln "$new" "$file"
echo "wrote $file"
