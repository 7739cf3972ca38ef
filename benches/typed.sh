#!/usr/bin/env bash
# Prints the CPU seconds of `cargo check` for a typed model of 48 layers, without its dependencies:
# the minimum of five runs, next to that of an empty program.
# benches/typed.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src"
cat > "$work/Cargo.toml" <<TOML
[package]
name = "layers"
version = "0.0.0"
edition = "2024"
[dependencies]
atmesh = { path = "$root" }
[workspace]
TOML
cp Cargo.lock "$work/" 2> /dev/null || true

head='use atmesh::typed::prelude::*;
mesh! { pub struct Pod { X: 2, Y: 4 } }'
empty() { printf '%s\nfn main() {}\n' "$head"; }
# Prints 48 layers: attention and a block of two matrices each, with 13 operations and two stated types.
layers() {
    printf '%s\n' "$head"
    cat <<'RUST'
pub struct Layer {
    q: T![f32; 4096, 4096@Y], k: T![f32; 4096, 4096@Y], v: T![f32; 4096, 4096@Y], o: T![f32; 4096@Y, 4096],
    up: T![f32; 4096, 11008@Y], down: T![f32; 11008@Y, 4096],
}
pub fn model(x: T![f32; 16@X, 2048, 4096], l: &[Layer]) -> T![f32; 16@X, 2048, 4096] {
RUST
    for i in $(seq 0 47); do
        cat <<RUST
    let (q, k, v) = (einsum!("bsd,dh->bsh", x, l[$i].q), einsum!("bsd,dh->bsh", x, l[$i].k), einsum!("bsd,dh->bsh", x, l[$i].v));
    let s: T![f32; 16@X, 2048, 4096@Y] = q.mul(&k).softmax(D1).mul(&v);
    let x = x.add(&s.matmul_to(&l[$i].o, P![=, _, _]));
    let h: T![f32; 16@X, 2048, 11008@Y] = x.matmul(&l[$i].up).relu();
    let x = x.add(&h.matmul_to(&l[$i].down, P![=, _, _]));
RUST
    done
    printf '    x\n}\nfn main() {}\n'
}
least() {
    "$1" > "$work/src/main.rs"
    for _ in 1 2 3 4 5; do
        touch "$work/src/main.rs"
        ( TIMEFORMAT='%U %S'; time cargo check -q --manifest-path "$work/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-$root/target/typed-bench}" ) 2>&1 | tail -1
    done | awk '{ t = $1 + $2; if (NR == 1 || t < least) least = t } END { printf "%.2f", least }'
}
empty > "$work/src/main.rs"
cargo check -q --manifest-path "$work/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-$root/target/typed-bench}"
echo "empty program: $(least empty) s of CPU; 48 typed layers: $(least layers) s"
