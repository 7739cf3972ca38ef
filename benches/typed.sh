#!/usr/bin/env bash
# Prints the CPU seconds of `cargo check` for a typed model of 48 layers, without its dependencies,
# and of rustc (`--emit=metadata`) for programs of one operation many times: the minimum of five
# runs, next to that of an empty program.
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
target=${CARGO_TARGET_DIR:-$root/target/typed-bench}
empty > "$work/src/main.rs"
cargo check -q --manifest-path "$work/Cargo.toml" --target-dir "$target"
echo "empty program: $(least empty) s of CPU; 48 typed layers: $(least layers) s"

# Prints 1,000 operations in functions of 20: products, elementwise operations and reductions.
operations() {
    for f in $(seq 50); do
        echo "pub fn f$f(x: &T![f32; 32@X, 4096], w: &T![f32; 4096, 11008@Y], v: &T![f32; 11008@Y, 4096], g: &T![f32; 4096]) -> T![f32; 32@X, 4096] { let x = x.clone();"
        for _ in 1 2 3 4; do
            echo 'let y = &x * g; let y = y.matmul(w); let y = y.relu(); let y = y.matmul_to(v, P![=, _]); let x = &y - y.mean(keep(D1));'
        done
        echo 'x }'
    done
}
# Prints 200 functions; the body is an awk statement that prints one, with r(low, high) for sizes.
functions() {
    awk -v seed=1 'function r(low, high) { return low + int(rand() * (high - low)) }
        BEGIN { srand(seed); for (i = 0; i < 200; i++) { '"$1"' } }'
}
x='pub fn f%d(x: &T![f32; 8@X, '
concat() { functions 'a = r('"$1"'); b = r('"$1"'); printf "'"$x"'%d], y: &T![f32; 8@X, %d]) -> T![f32; 8@X, %d] { x.concat(y, D1) }\n", i, a, b, a + b'; }
concat3() { concat '100, 499'; }
concat5() { concat '10000, 49999'; }
concat9() { concat '100000000, 499999999'; }
slice() { functions 'n = r(10000, 99999); a = r(0, n / 2); b = r(n / 2, n); printf "'"$x"'%d]) -> T![f32; 8@X, %d] { x.slice::<N![%d], N![%d], _>(D1) }\n", i, n, b - a, a, b'; }
split_dim() { functions 'a = r(2, 300); b = r(2, 300); printf "'"$x"'%d]) -> T![f32; 8@X, %d, %d] { x.split_dim::<N![%d], N![%d], _>(D1) }\n", i, a * b, a, b, a, b'; }
merge_dims() { functions 'a = r(2, 300); b = r(2, 300); printf "'"$x"'%d, %d]) -> T![f32; 8@X, %d] { x.merge_dims(D1) }\n", i, a, b, a * b'; }
reshape() { functions 'a = r(2, 300); b = r(2, 300); c = r(2, 30); printf "pub fn f%d(x: &T![f32; %d, %d]) -> T![f32; %d, %d] { x.reshape() }\n", i, a * c, b, a, b * c'; }
reshard() { functions 'a = 8 * r(1, 9000); printf "'"$x"'%d]) -> T![f32; 8, %d@X] { x.reshard(P![_, X]) }\n", i, a, a'; }
einsums() { functions 'printf "'"$x"'16, %d], w: &T![f32; %d, 8@Y, 64]) -> T![f32; 8@X, 8@Y, 16, 64] { einsum!(\"bsd,dhk->bhsk\", x, w) }\n", i, 32 + i, 32 + i'; }

library=$(ls -t "$target"/debug/deps/libatmesh-*.rmeta | head -1)
rustc_least() {
    { printf '%s\nfn main() {}\n' "$head"; "$1"; } > "$work/program.rs"
    for _ in 1 2 3 4 5; do
        ( TIMEFORMAT='%U %S'; time rustc --edition=2024 --emit=metadata -A warnings -L "dependency=${library%/*}" \
            --extern "atmesh=$library" -o "$work/program.rmeta" "$work/program.rs" ) 2>&1 | tail -1
    done | awk '{ t = $1 + $2; if (NR == 1 || t < least) least = t } END { printf "%.2f", least }'
}
printf '\n| program | CPU s of rustc |\n|---|---|\n'
row() { printf '| %s | %s |\n' "$1" "$(rustc_least "$2")"; }
row 'empty' :
row '1,000 operations' operations
row '200 `concat`, sizes of 3 digits' concat3
row '200 `concat`, 5 digits' concat5
row '200 `concat`, 9 digits' concat9
row '200 `slice`, 5 digits' slice
row '200 `split_dim`, 5 digits' split_dim
row '200 `merge_dims`, 5 digits' merge_dims
row '200 `reshape`, 6 digits' reshape
row '200 `reshard`, 5 digits' reshard
row '200 `einsum!`' einsums
