//! A dependency with another name: `other = { package = "atmesh", .. }`.
use other::prelude::*;
use other::typed::prelude::*;

mesh! { pub struct Pod { X: 2, Y: 4 } }
dim!(pub Batch);

#[derive(Clone, Tree)]
#[tree(crate = other)]
pub struct Layer<T = Array> {
    w: T,
    #[tree(skip)]
    rate: f32,
}

#[derive(Tree)]
#[tree(crate = other, derive(Clone, Debug))]
pub struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@Y],
    down: T![f32; H@Y, D],
}

#[derive(Blocks)]
#[tree(crate = other)]
pub struct Pair<W, B>(W, B);

pub fn apply<B: Size, D: Size, H: Size>(mlp: &Mlp<D, H>, x: &T![f32; B@X, D]) -> T![f32; B@X, D] {
    let h: T![f32; B@X, H@Y] = einsum!("bd,dh->bh", x, mlp.up).relu();
    h.matmul_to(&mlp.down, P![=, _])
}

pub type Parts = Pair<T![f32; 8@X], T![f32; 4]>;

pub fn doubled(pair: Parts) -> Parts {
    Pod.shard_map((pair,), Pair(P![X], P![_]), |(pair,)| Pair(pair.0 * 2.0, pair.1 * 2.0))
}

pub fn call(x: &Array) -> Result<Array> {
    let layer = Layer { w: x.clone(), rate: 0.5 };
    jit(|l: &Layer, x: &Array| l.w.slice(ix![.., 0]) * x).call((&layer, x))
}
