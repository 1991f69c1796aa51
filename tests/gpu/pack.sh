#!/usr/bin/env bash
# Builds what tests/gpu/run.py needs and puts it into an archive, so that it can run on a machine without Rust:
#
#     tests/gpu/pack.sh ARCHIVE [WHEEL ...]
#
# The wheels are those of the Python packages that the other machine lacks (pytest, RMM). FLOODMARK names a command that was
# built already, PYTHON the interpreter that the other machine has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
archive=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{inject,capi,wheels}
target=${CARGO_TARGET_DIR:-$PWD/target}

if [ -z "${FLOODMARK:-}" ]; then
    cargo build --quiet --locked --release -p floodmark --bin floodmark
    FLOODMARK="$target/release/floodmark"
fi
strip -o "$folder/floodmark" "$FLOODMARK"
tests=$(cargo test --locked --no-run --message-format=json -p floodmark-inject --test it 2>/dev/null |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"): print(message["executable"])')
strip -o "$folder/inject/tests" "$tests"
strip -g -o "$folder/inject/libfloodmark_inject.so" "${tests%/*}/libfloodmark_inject.so"
cargo build --quiet --locked -p floodmark-capi
strip -g -o "$folder/capi/libfloodmark_capi.so" "$target/debug/libfloodmark_capi.so"
FLOODMARK_WHEEL_COMMAND=none "${BUILD_PYTHON:-.venv/bin/python}" crates/python/build_backend.py "$folder/wheels" --quiet \
    --interpreter "${PYTHON:-python3.12}" --compatibility linux --target-dir "$target/python/gpu"
for wheel in "$@"; do cp "$wheel" "$folder/wheels/"; done
mkdir -p "$(dirname "$archive")"
tar -czf "$archive" -C "$folder" .
du -sh "$archive"
