#!/usr/bin/env bash
# Builds the image without a daemon and without a registry (buildah on a base made by mmdebstrap), starts it as it is meant to run, and asks
# it for its health. Needs root, buildah, mmdebstrap and curl. The wheel must be in dist/.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
storage=(--root "$work/storage" --runroot "$work/run")
trap 'buildah "${storage[@]}" rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

mmdebstrap --quiet --variant=essential --include=python3,python3-venv,ca-certificates,libstdc++6 bookworm "$work/base.tar"
container=$(buildah "${storage[@]}" from scratch)
buildah "${storage[@]}" add --quiet "$container" "$work/base.tar" / >/dev/null
buildah "${storage[@]}" commit --quiet "$container" localhost/base >/dev/null

# The build has no network: the wheels are fetched here, once, and lie in the context.
mkdir -p "$work/context/deploy/image"
cp -r constraints.txt dist "$work/context/"
cp deploy/image/Containerfile deploy/image/licenses.py "$work/context/deploy/image/"
# The base has Python 3.11; the wheels must be of that version whatever runs here.
python3 -m pip download --quiet --disable-pip-version-check --only-binary :all: --python-version 3.11 --dest "$work/context/dist" \
  --constraint constraints.txt dist/*.whl 2>"$work/download" || { cat "$work/download" >&2; exit 1; }
buildah "${storage[@]}" bud --quiet --format docker --file "$work/context/deploy/image/Containerfile" --build-arg BASE=localhost/base \
  --build-arg PIP_OPTIONS="--no-index --find-links /build/dist" --tag localhost/gateway "$work/context"

container=$(buildah "${storage[@]}" from localhost/gateway)
run() { buildah "${storage[@]}" run "$@"; }
[ "$(run "$container" -- id -u)" = 10001 ]
run "$container" -- gateway --help >/dev/null
run "$container" -- sh -c '! command -v gcc && ! command -v make && ! [ -e /opt/gateway/bin/pip ] && test -s /opt/gateway/LICENSES.txt'
if run "$container" -- sh -c 'touch /opt/gateway/x' 2>/dev/null; then echo "an ordinary user can change the program" >&2; exit 1; fi

# Settings that are wrong stop it, all of them told; right ones start it with a database that is away: alive, and not ready.
if run "$container" -- gateway serve >"$work/faults" 2>&1; then exit 1; fi
grep -q DATABASE_URL "$work/faults" || { cat "$work/faults" >&2; exit 1; }
mkdir -m 777 "$work/pid"
key=$(head -c 32 /dev/urandom | base64)
run --env DATABASE_URL=postgresql://nobody@127.0.0.1:1/none --env API_ENCRYPTION_KEY="$key" --env GATEWAY_JWT_KEY="$key" \
  --env GATEWAY_MODERATION=none --env GATEWAY_PORT=18080 --env GATEWAY_HOST=127.0.0.1 --env GATEWAY_DRAIN_DELAY_SECONDS=0 \
  --volume "$work/pid:/pid" "$container" -- sh -c 'echo $$ > /pid/pid; exec gateway serve' 2>"$work/log" &
serving=$!
for _ in $(seq 100); do curl -fsS -o /dev/null http://127.0.0.1:18080/healthz 2>/dev/null && break; sleep 0.2; done
curl -fsS http://127.0.0.1:18080/healthz
[ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:18080/readyz)" = 503 ]
kill -TERM "$(cat "$work/pid/pid")"
wait "$serving"
echo "image: built, runs as 10001, alive without a database, stops when told"
