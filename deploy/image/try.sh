#!/usr/bin/env bash
# Builds the image without a daemon and without a registry (buildah on a base made by mmdebstrap), starts it as it is meant to run (root
# read-only, an ordinary user, no capabilities), and asks it for its health. Needs root, buildah, mmdebstrap and curl. The wheel must be in dist/.
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
  --constraint constraints.txt "$(echo dist/agent_governance_gateway-*.whl)[otel]" 2>"$work/download" || { cat "$work/download" >&2; exit 1; }
buildah "${storage[@]}" bud --quiet --format docker --file "$work/context/deploy/image/Containerfile" --build-arg BASE=localhost/base \
  --build-arg PIP_OPTIONS="--no-index --find-links /build/dist" --build-arg EXTRAS=[otel] --tag localhost/gateway "$work/context"

container=$(buildah "${storage[@]}" from localhost/gateway)
run() { buildah "${storage[@]}" run "$@"; }
told() { buildah "${storage[@]}" inspect --type image --format "$1" localhost/gateway; }
[ "$(told '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}')" = "10001:10001 [gateway] [serve]" ]
[ "$(run "$container" -- id -u)" = 10001 ]
run "$container" -- gateway --help >/dev/null
run "$container" -- sh -c '! command -v gcc && ! command -v make && ! [ -e /opt/gateway/bin/pip ]'
if run "$container" -- sh -c 'touch /opt/gateway/x' 2>/dev/null; then echo "an ordinary user can change the program" >&2; exit 1; fi
run "$container" -- cat /opt/gateway/LICENSES.txt >"$work/licenses"
for package in agent-governance-gateway starlette psycopg cryptography opentelemetry-sdk; do grep -q "^$package [^:]*: ." "$work/licenses"; done
if grep "not told" "$work/licenses" >&2; then echo "a licence is not known" >&2; exit 1; fi

# Settings that are wrong stop it, all of them told.
if run "$container" -- gateway serve >"$work/faults" 2>&1; then exit 1; fi
grep -q DATABASE_URL "$work/faults" || { cat "$work/faults" >&2; exit 1; }

# buildah cannot make a root read-only, so the image's root is bound read-only in a mount namespace of its own.
root=$(buildah "${storage[@]}" mount "$container")
mapfile -t image < <(told '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' | grep .)
mapfile -t health < <(told '{{range .Docker.Config.Healthcheck.Test}}{{println .}}{{end}}' | grep .)
confined() {
  # shellcheck disable=SC2016 # of the inner shell
  exec unshare --mount --propagation private sh -ec '
    mount --bind "$0" "$0"; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; mount -o remount,ro,bind "$0"
    exec env -i "$(command -v chroot)" "$0" /usr/bin/setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
      /usr/bin/env "$@"' "$root" "${image[@]}" GATEWAY_PORT=18080 "$@"
}
[ "$(confined id -u)" = 10001 ]
if (confined sh -c 'touch /tmp/x || touch /opt/gateway/x || touch /x') 2>/dev/null; then echo "something can be written" >&2; exit 1; fi
if (confined "${health[@]:1}") 2>/dev/null; then echo "healthy before it runs" >&2; exit 1; fi

# Right settings and a database that is away: alive, and not ready.
key=$(head -c 32 /dev/urandom | base64)
confined DATABASE_URL=postgresql://nobody@127.0.0.1:1/none API_ENCRYPTION_KEY="$key" GATEWAY_JWT_KEY="$key" GATEWAY_MODERATION=none \
  GATEWAY_HOST=127.0.0.1 GATEWAY_DRAIN_DELAY_SECONDS=0 gateway serve 2>"$work/log" &
serving=$!
for _ in $(seq 100); do curl -fsS -o /dev/null http://127.0.0.1:18080/healthz 2>/dev/null && break; sleep 0.2; done
curl -fsS -o /dev/null http://127.0.0.1:18080/healthz || { cat "$work/log" >&2; exit 1; }
(confined "${health[@]:1}")
[ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:18080/readyz)" = 503 ]
grep -q '^Uid:.10001.10001.10001.10001' "/proc/$serving/status"
grep -q '^CapEff:.0000000000000000' "/proc/$serving/status"
kill -TERM "$serving"
wait "$serving"
echo "image: built, runs as 10001 on a read-only root without capabilities, healthy without a database, stops when told; $(wc -l <"$work/licenses") licences"
