#!/usr/bin/env bash
# Writes ./secrets once: a password of the database, the URLs made of it, the key of service tokens, the key of bearer tokens.
set -euo pipefail
cd "$(dirname "$0")"
if [ -e secrets ]; then
  echo "secrets/ is there already; nothing was changed." >&2
  exit 1
fi
umask 077
mkdir secrets
password=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
printf '%s' "$password" > secrets/database_password
printf 'postgresql://gateway:%s@pgbouncer:6432/gateway' "$password" > secrets/database_url
printf 'postgresql://gateway:%s@postgres:5432/gateway' "$password" > secrets/database_direct_url
printf '"gateway" "%s"\n' "$password" > secrets/userlist.txt
head -c 32 /dev/urandom | base64 > secrets/encryption_key
head -c 32 /dev/urandom | base64 > secrets/jwt_key
# Containers run as other users: the folder stays closed to everybody else on this machine, the files can be read through a mount.
chmod 644 secrets/*
