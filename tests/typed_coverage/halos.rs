//! Halos: on every engine, size and edge, blocks with a rim give the elements that shifts of the
//! global array give.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::size::{DeviceShare, WithRim};
use atmesh::typed::{HaloEdge, prelude::*};

mesh! { struct Grid { X: 2, Y: 4 } }
dim!(Rows);

/// Elements that differ from seed to seed.
fn random(n: [usize; 2], seed: u64) -> Array {
    Key::new(seed).normal(DType::F64.array_type(n))
}
fn seeds() -> [u64; 4] {
    let first = std::env::var("ATMESH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    [first, first + 1, first + 2, first + 3]
}
fn grid() -> atmesh::Mesh {
    atmesh::Mesh::new([("X", 2), ("Y", 4)]).unwrap()
}

/// The neighbours along the first dim, `B` positions before and after, through a rim of `K`.
fn neighbours<N: Tiles<X>, M: Size, K: typed_sizes::Width, B: typed_sizes::Within<K>>(
    u: T![f64; N@X, M],
    edge: HaloEdge<f64>,
) -> (T![f64; N@X, M], T![f64; N@X, M], T![f64; N@X, M]) {
    Grid.shard_map((u,), (P![X, _], P![X, _], P![X, _]), |(u,)| {
        let rim = u.halo_with::<K, _, _>(D0, X, edge);
        (rim.before::<B, _>(D0), rim.center(D0), rim.after::<B, _>(D0))
    })
}
/// Bounds of the test's own generic functions.
mod typed_sizes {
    pub(super) use atmesh::typed::rules::halo::WithinRim as Within;
    pub(super) use atmesh::typed::size::KnownSize as Width;
}

fn compare<N: Tiles<X>, K: typed_sizes::Width, B: typed_sizes::Within<K>>(
    n: usize,
    engine: EngineKind,
    seed: u64,
) {
    let by = B::VALUE.unwrap() as i64;
    for edge in [HaloEdge::Zero, HaloEdge::Fill(0.5), HaloEdge::Periodic] {
        let u: T![f64; N@X, 3] = random([n, 3], seed).put(&grid(), p!["X"]).typed().unwrap();
        let f = |u: &T![f64; N@X, 3]| neighbours::<N, N![3], K, B>(u.clone(), edge);
        let (before, center, after) = jit(f).engine(engine).call(&u).unwrap();
        let shifted = |by: i64| match edge {
            HaloEdge::Periodic => u.roll(by, D0),
            HaloEdge::Fill(value) => u.shift(by, D0, value),
            _ => u.shift(by, D0, 0.0),
        };
        let what = format!("{n} rows, rim {:?}, distance {by}, {edge:?}, {engine}, seed {seed}", K::VALUE);
        assert_eq!(before.to_vec().unwrap(), shifted(by).to_vec().unwrap(), "before: {what}");
        assert_eq!(center.to_vec().unwrap(), u.to_vec().unwrap(), "center: {what}");
        assert_eq!(after.to_vec().unwrap(), shifted(-by).to_vec().unwrap(), "after: {what}");
    }
}

#[test]
fn a_rim_holds_the_neighbours() {
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        for seed in seeds() {
            compare::<N![4], N![1], N![1]>(4, engine, seed);
            compare::<N![16], N![2], N![1]>(16, engine, seed);
            compare::<N![6], N![3], N![3]>(6, engine, seed);
            compare::<N![6], N![2], N![0]>(6, engine, seed);
            compare::<Rows, N![1], N![1]>(4 + 2 * (seed as usize % 5), engine, seed);
            compare::<Rows, N![2], N![2]>(4 + 2 * (seed as usize % 3), engine, seed);
        }
    }
}

/// One bound of the prelude for each sharded dim.
fn heat<N: Tiles<X>, M: Tiles<Y>>(u: &T![f64; N@X, M@Y], c: f64) -> T![f64; N@X, M@Y] {
    Grid.shard_map((u,), P![X, Y], |(u,)| {
        let rim = u.halo::<N![1], _, _>(D0, X).halo::<N![1], _, _>(D1, Y);
        let (rows, columns) = (rim.center(D1), rim.center(D0));
        let around = rows.before::<N![1], _>(D0) + rows.after::<N![1], _>(D0);
        let around = around + columns.before::<N![1], _>(D1) + columns.after::<N![1], _>(D1);
        &u + (around - &u * 4.0) * c
    })
}

#[test]
fn a_generic_stencil_equals_the_one_by_shifts() {
    for seed in seeds() {
        let u: T![f64; Rows@X, 12@Y] = random([6, 12], seed).put(&grid(), p!["X", "Y"]).typed().unwrap();
        let by_shifts = {
            let around = u.shift(1, D0, 0.0) + u.shift(-1, D0, 0.0);
            let around = around + u.shift(1, D1, 0.0) + u.shift(-1, D1, 0.0);
            &u + (around - &u * 4.0) * 0.1
        };
        assert_eq!(heat(&u, 0.1).to_vec().unwrap(), by_shifts.to_vec().unwrap(), "seed {seed}");
    }
}

/// The same exchange written with slices, `ppermute` and `concat` of untyped arrays.
#[test]
fn a_stencil_equals_its_untyped_twin() {
    let u = random([16, 5], 3).put(&grid(), p!["X"]);
    let untyped = shard_map(&grid(), p!["X"], p!["X"], |u: &Array| {
        let below = u.slice(ix![..1]).ppermute("X", [(1, 0)]);
        atmesh::array::concat([u, &below], 0).slice(ix![1..9]) - u
    });
    let typed: T![f64; 16@X, 5] = u.typed().unwrap();
    let typed: T![f64; 16@X, 5] =
        Grid.shard_map((typed,), P![X, _], |(u,)| u.halo::<N![1], _, _>(D0, X).after::<N![1], _>(D0) - u);
    assert_eq!(typed.to_vec().unwrap(), untyped.call(&u).unwrap().to_vec::<f64>().unwrap());
}

#[test]
fn the_second_halo_has_the_corners() {
    let u: T![f64; 6@X, 8@Y] = random([6, 8], 4).put(&grid(), p!["X", "Y"]).typed().unwrap();
    let corner: T![f64; 6@X, 8@Y] = Grid.shard_map((&u,), P![X, Y], |(u,)| {
        let rim = u.halo::<N![1], _, _>(D0, X).halo::<N![2], _, _>(D1, Y);
        rim.before::<N![1], _>(D0).after::<N![2], _>(D1)
    });
    assert_eq!(corner.to_vec().unwrap(), u.shift(1, D0, 0.0).shift(-2, D1, 0.0).to_vec().unwrap());
}

#[test]
fn a_dim_may_be_sharded_over_two_axes() {
    let u: T![f64; 16@(X, Y), 2] = random([16, 2], 5).put(&grid(), p![("X", "Y")]).typed().unwrap();
    let next: T![f64; 16@(X, Y), 2] =
        Grid.shard_map((&u,), P![(X, Y), _], |(u,)| u.halo::<N![1], _, _>(D0, (X, Y)).after::<N![1], _>(D0));
    assert_eq!(next.to_vec().unwrap(), u.shift(-1, D0, 0.0).to_vec().unwrap());
}

#[test]
fn a_rim_is_printed_with_the_block() {
    type Rim<Z, K> = atmesh::typed::Typed<f64, S![WithRim<Z, K>, 4]>;
    assert_eq!(<Rim<DeviceShare<Rows, X>, N![1]>>::type_text(), "float64[Rows/X+2,4]");
    assert_eq!(<Rim<N![8], N![3]>>::type_text(), "float64[14,4]");
}

#[test]
fn a_rim_is_at_most_as_wide_as_a_block() {
    let u: T![f64; 4@X] = random([4, 1], 6).ravel().put(&grid(), p!["X"]).typed().unwrap();
    let wide = Grid.shard_map((u,), P![X], |(u,)| u.halo::<N![3], _, _>(D0, X).center(D0));
    let error = wide.untyped().ty().unwrap_err().unquoted();
    assert!(
        error.contains("a rim of 3 elements is wider than a block, whose dimension 0 has size 2"),
        "{error}"
    );
}
