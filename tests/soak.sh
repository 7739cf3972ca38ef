#!/usr/bin/env bash
# Random programs until something fails or the minutes are over: tests/soak.sh [minutes [first seed]]
set -eu
cd "$(dirname "$0")/.."
minutes=${1:-10} seed=${2:-1}
cargo test --test properties --test reshards --no-run
end=$((SECONDS + 60 * minutes))
while [ $SECONDS -lt $end ]; do
  echo "seed $seed"
  PROPERTIES_SEED=$seed PROPTEST_CASES=2000 cargo test -q --test properties
  seed=$((seed + 1))
done
RESHARDS=all cargo test -q --test reshards
