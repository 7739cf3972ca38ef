#!/usr/bin/env bash
# Runs all cases of the tests that run a part of them in `cargo test`, then random programs and device
# code until something fails or the time is over, then 20,000 calls of all kinds:
# tests/soak.sh [minutes [first seed]]
set -eu
cd "$(dirname "$0")/.."
minutes=${1:-10} seed=${2:-1}
# Optimised tests run more programs per minute.
export CARGO_PROFILE_TEST_OPT_LEVEL=1
parts=(--test bad_input --test bytes_moved --test completeness --test conformance --test fixits --test laws --test messages --test operations --test properties --test reports --test xla_agreement)
cargo test --lib "${parts[@]}" --test sharding --test limits --no-run
ATMESH_SOAK=1 BYTES_MOVED_VARIANTS=2 DEGENERATE=8 FIXITS=4000 cargo test -q "${parts[@]}"
ATMESH_SOAK=1 cargo test -q -p atmesh_linalg -p atmesh_playground
ATMESH_SOAK=1 cargo test -q --features safetensors --test safetensors -- killed:: char_gpt::
ATMESH_SOAK=1 cargo test -q --test training -- a_million_draws layouts::
ATMESH_SOAK=1 cargo test -q --test processes
# programs of several processes on the relay, if its plugin can be fetched
if plugin=$(timeout 600 scripts/plugin); then
  cargo build -q -p atmesh_relay
  cargo build -q --features xla --example processes
  relay=$(find "$(realpath "${CARGO_TARGET_DIR:-target}")/debug" -maxdepth 1 -name 'libatmesh_relay.*' ! -name '*.d' | head -1)
  ATMESH_SOAK=1 ATMESH_MPIRUN=$(scripts/mpi || echo mpirun) ATMESH_RELAY=$relay ATMESH_RELAY_PLUGIN=$plugin \
    cargo test -q --features xla,safetensors --test relayed -- --test-threads 2
fi
DRAFTS=0..300 cargo test -q --lib random_programs
end=$((SECONDS + 60 * minutes))
while [ $SECONDS -lt $end ]; do
  echo "seed $seed"
  PROPERTIES_SEED=$seed PROPTEST_CASES=2000 cargo test -q --test properties
  ATMESH_SEED=$((1000000 * seed)) ATMESH_SECONDS=30 cargo test -q --test limits random_device_code_ends
  LAWS_SEED=$((1000000 * seed)) LAWS_SECONDS=60 cargo test -q --test laws
  seed=$((seed + 1))
done
scripts/notebooks || {
  [ $? = 3 ] || exit 1
  echo '*** SKIPPED: the notebooks were not executed, because their kernel cannot be installed ***'
}
RESHARDS=all ATMESH_SOAK=1 cargo test -q --test sharding
ATMESH_CALLS=20000 cargo test -q --test limits many_calls_leave_nothing_behind
