//! Collectives of manual mode: groups of devices, broadcasts, shuffles, and rows of any number.

mod refusals;

use crate::error_checks::Unquoted as _;
use atmesh::nd::ArrayView2;
use atmesh::prelude::*;
use atmesh::spmd::RowRanges;
use atmesh::{AxisGroups, CollectiveKind, RaggedRows, smap};

/// A function of one device's block, with its name.
type Collective = (&'static str, fn(&Array) -> Array);

fn even() -> AxisGroups {
    AxisGroups::new("X", [[0, 1], [2, 3]])
}
fn strided() -> AxisGroups {
    AxisGroups::new("X", [[0, 2], [1, 3]])
}
/// Groups of devices that are no digits of the axis, in an order of their own.
fn crossed() -> AxisGroups {
    AxisGroups::new("X", [[3, 0], [1, 2]])
}
fn uneven() -> AxisGroups {
    AxisGroups::new("X", [vec![2], vec![3, 0, 1]])
}

/// Sends the first rows of device s to device t, as many as (s + t) % 3, behind one another.
fn ragged(x: &Array) -> Array {
    let sizes = |s: i32, t: i32| (s + t) % 3;
    let table = |f: &dyn Fn(i32, i32) -> i32| {
        let rows: Vec<i32> = (0..4).flat_map(|s| (0..4).map(move |t| (s, t))).map(|(s, t)| f(s, t)).collect();
        Array::from(rows).reshape([4, 4]).take(&axis_index("X"), 0)
    };
    let rows = RaggedRows {
        input_offsets: table(&|s, t| (s + 2 * t) % 5),
        send_sizes: table(&sizes),
        output_offsets: table(&|s, t| (0..s).map(|s| sizes(s, t)).sum()),
        recv_sizes: table(&|t, s| sizes(s, t)),
    };
    let output = x.slice(ix![..7]) * 0.5;
    x.ragged_all_to_all("X", &output, &rows)
}

const COLLECTIVES: &[Collective] = &[
    ("psum of neighbours", |x| x.psum(even())),
    ("psum of strided groups", |x| x.psum(strided())),
    ("psum of crossed groups", |x| x.psum(crossed())),
    ("psum of uneven groups", |x| x.psum(uneven())),
    ("pmean of neighbours", |x| x.pmean(even())),
    ("pmean of uneven groups", |x| x.pmean(uneven())),
    ("all_gather of neighbours", |x| x.all_gather(even(), CollectiveDim::tiled(1))),
    ("all_gather of crossed groups", |x| x.all_gather(crossed(), CollectiveDim::stacked(0))),
    ("psum_scatter of strided groups", |x| x.psum_scatter(strided(), CollectiveDim::tiled(0))),
    ("psum_scatter of crossed groups", |x| x.psum_scatter(crossed(), CollectiveDim::tiled(1))),
    ("all_to_all of neighbours", |x| x.all_to_all(even(), AllToAll::split(0).concat(1))),
    ("all_to_all of crossed groups", |x| x.all_to_all(crossed(), AllToAll::split(1).concat(0))),
    ("pswapaxes", |x| x.pswapaxes("X", 1)),
    ("pswapaxes of strided groups", |x| x.reshape([4, 4, 2]).pswapaxes(strided(), 2)),
    ("pshuffle", |x| x.pshuffle("X", [2, 0, 3, 1])),
    ("pbroadcast", |x| x.pbroadcast("X", 2)),
    ("ragged_all_to_all", ragged),
];

fn mesh() -> Mesh {
    Mesh::new([("X", 4)]).unwrap()
}
/// Returns the blocks of all devices: 8 × 4 elements on each.
fn blocks() -> Array {
    Key::new(7).normal([32, 4]).astype(F64).put(&mesh(), p!["X"])
}
/// Runs a collective in a region that tracks what varies, or in one that does not.
fn region(f: fn(&Array) -> Array, checked: bool) -> ShardMap<'static, Array, Array> {
    let map = shard_map(&mesh(), p!["X"], p!["X"], f);
    if checked { map } else { map.unchecked() }
}

#[test]
fn gradients_agree_with_differences() {
    let (x, step) = (blocks(), Key::new(8).normal([32, 4]).astype(F64).put(&mesh(), p!["X"]));
    for (name, f) in COLLECTIVES {
        for checked in [true, false] {
            let map = region(*f, checked);
            let loss = |x: &Array| {
                let y = map.call(x)?;
                let weights = Array::iota(y.ty()?, 0) * 0.01 + 1.0;
                Ok::<_, atmesh::Error>((y.square() * weights).sum(..))
            };
            let slope = (grad(&x, |x| loss(&x)) * &step).sum(..).item::<f64>().unwrap();
            let at = |h: f64| loss(&(&x + &step * h)).unwrap().item::<f64>().unwrap();
            let difference = (at(1e-4) - at(-1e-4)) / 2e-4;
            let close = (slope - difference).abs() <= 1e-6 * difference.abs().max(1.0);
            assert!(close, "{name}, checked: {checked}: {slope} instead of {difference}");
            // the second derivative along the step is that of a quadratic function
            let (_, second) = jvp(&x, &step, |x| grad(&x, |x| loss(&x)));
            let second = (second * &step).sum(..).item::<f64>().unwrap();
            let difference = (at(1e-2) - 2.0 * at(0.0) + at(-1e-2)) / 1e-4;
            assert!((second - difference).abs() <= 1e-5 * difference.abs().max(1.0), "{name}: {second}");
        }
    }
}

#[test]
fn all_engines_give_the_same_bits() {
    let x = blocks();
    for (name, f) in COLLECTIVES {
        let run = |engine| region(*f, true).engine(engine).call(&x).unwrap().to_vec::<f64>().unwrap();
        let want = run(EngineKind::Reference);
        assert_eq!(run(EngineKind::Lockstep), want, "{name}");
        assert_eq!(run(EngineKind::Threads), want, "{name}");
        assert_eq!(jit(region(*f, false)).call(&x).unwrap().to_vec::<f64>().unwrap(), want, "{name}, jit");
    }
}

#[test]
fn vmap_runs_each_example() {
    let x = blocks();
    for (name, f) in COLLECTIVES {
        let examples = |x: &Array| vmap(stack([x, &(x * 2.0)], 0), |x| f(&x)).slice(ix![1]);
        let got = shard_map(&mesh(), p!["X"], p!["X"], examples).call(&x).unwrap();
        let want = region(*f, true).call(&x * 2.0).unwrap();
        assert_eq!(got.to_vec::<f64>().unwrap(), want.to_vec::<f64>().unwrap(), "{name}");
    }
}

#[test]
fn groups_move_only_what_their_devices_exchange() {
    let x = Array::ones([32, 4]).put(&mesh(), p!["X"]);
    let bytes = |f: fn(&Array) -> Array| {
        let lowered = region(f, true).lower(&x).unwrap();
        lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device, c.exact)).collect::<Vec<_>>()
    };
    let block = 8 * 4 * 4;
    let all_reduce = vec![(CollectiveKind::AllReduce, block, true)];
    assert_eq!(bytes(|x| x.psum(even())), all_reduce);
    assert_eq!(bytes(|x| x.psum(strided())), all_reduce);
    assert_eq!(bytes(|x| x.psum(AxisGroups::new("X", [[0], [1], [2], [3]]))), []);
    assert_eq!(bytes(|x| x.psum(crossed())), [(CollectiveKind::Permute, block, true)]);
    let all_gather = vec![(CollectiveKind::AllGather, block, true)];
    assert_eq!(bytes(|x| x.all_gather(even(), CollectiveDim::tiled(0))), all_gather);
    assert_eq!(bytes(|x| x.all_gather(crossed(), CollectiveDim::tiled(0))), all_gather);
    let half = |kind| vec![(kind, block / 2, true)];
    let scatter = |x: &Array| x.psum_scatter(strided(), CollectiveDim::tiled(0));
    assert_eq!(bytes(scatter), half(CollectiveKind::ReduceScatter));
    let exchange = |x: &Array| x.all_to_all(crossed(), AllToAll::split(0).concat(1));
    assert_eq!(bytes(exchange), half(CollectiveKind::AllToAll));
    assert_eq!(bytes(|x| x.pbroadcast("X", 1)), [(CollectiveKind::Permute, block, true)]);
    assert_eq!(bytes(|x| x.pshuffle("X", [1, 0, 3, 2])), [(CollectiveKind::Permute, block, true)]);
}

#[test]
fn a_group_of_all_devices_is_no_group() {
    let x = blocks();
    let all = || AxisGroups::new("X", [[0, 1, 2, 3]]);
    let groups: [fn(&Array, AxisGroups) -> Array; 4] = [
        |x, all| x.psum(all),
        |x, all| x.all_gather(all, CollectiveDim::tiled(0)),
        |x, all| x.psum_scatter(all, CollectiveDim::tiled(0)),
        |x, all| x.all_to_all(all, AllToAll::split(1).concat(0)),
    ];
    for (k, f) in groups.iter().enumerate() {
        let run = |over: &dyn Fn() -> AxisGroups| {
            let body = |x: &Array| f(x, over());
            let y = shard_map(&mesh(), p!["X"], p!["X"], body).unchecked().call(&x).unwrap();
            y.to_vec::<f64>().unwrap()
        };
        assert_eq!(run(&all), run(&|| "X".into()), "{k}");
    }
}

#[test]
fn rows_that_are_out_of_bounds_are_not_sent() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let exchange = |first: i32, size: i32, start: i32| {
        let body = move |x: &Array| {
            let both = |k: i32| Array::from([k, k]);
            let rows = RaggedRows {
                input_offsets: both(first),
                send_sizes: both(size),
                output_offsets: both(start) + axis_index("X"),
                recv_sizes: both(size),
            };
            x.ragged_all_to_all("X", &Array::zeros(I32.array_type([3])), &rows)
        };
        let f = shard_map(&mesh, p!["X"], p!["X"], body);
        f.call(Array::from([1, 2, 3, 4])).unwrap().to_vec::<i32>().unwrap()
    };
    assert_eq!(exchange(0, 1, 0), [1, 3, 0, 1, 3, 0]);
    assert_eq!(exchange(1, 3, 0), [2, 4, 0, 2, 4, 0]);
    assert_eq!(exchange(0, 1, 2), [0, 0, 1, 0, 0, 1], "the output is too small for device 1's row");
    assert_eq!(exchange(-1, 2, 0), [0, 0, 0, 0, 0, 0]);
    assert_eq!(exchange(0, 1, i32::MAX - 1), [0; 6]);
    assert_eq!(exchange(0, 1, i32::MIN), [0; 6]);
    assert_eq!(exchange(0, -1, 0), [0; 6]);
}

#[test]
fn smap_splits_dimensions() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let x = Array::arange(0.0..16.0f32).reshape([4, 4]);
    let norm = |x: &Array| smap(&mesh, "Y", -1, -1, |x: &Array| x / x.square().sum(..).psum("Y")).call(x);
    let rows = smap(&mesh, "X", 0, 0, |x: &Array| Ok(norm(x)? * axis_size("X")?));
    let want = stack([x.slice(ix![..2]), x.slice(ix![2..])].map(|x| &x / x.square().sum(..) * 2.0), 0);
    assert!(rows.call(&x).unwrap().allclose(&want.reshape([4, 4])).unwrap());
    let slope =
        grad(&x, |x| smap(&mesh, "X", [Some(1)], None, |x: &Array| x.square().sum(..).psum("X")).call(x));
    assert!(slope.allclose(&(&x * 2.0)).unwrap());
    let explicit = x.put(&mesh, p![_, "X"]);
    let doubled = smap(&mesh, "X", Inferred, 1, |x: &Array| x * 2.0).call(&explicit).unwrap();
    assert_eq!(type_of(doubled), "float32[4,4@X]");
}

#[test]
fn native_code_has_the_same_collectives() {
    let x = Array::arange(0..64).reshape([16, 4]);
    let native = spmd(&mesh(), p!["X"], p!["X"], |dev: &Device, x: ArrayView2<i32>| {
        Ok((
            (dev.psum(&x, crossed())?, dev.pmax(&x, uneven())?),
            (dev.all_gather(&x, crossed(), 1)?, dev.psum_scatter(&x, strided(), 0)?),
            (dev.all_to_all(&x, crossed(), AllToAll::split(0).concat(1))?, dev.pswapaxes(&x, "X", 1)?),
            (dev.pbroadcast(&x, "X", 2)?, dev.pshuffle(&x, "X", &[2, 0, 3, 1])?),
        ))
    });
    let traced = shard_map(&mesh(), p!["X"], p!["X"], |x: &Array| {
        (
            (x.psum(crossed()), x.pmax(uneven())),
            (
                x.all_gather(crossed(), CollectiveDim::tiled(1)),
                x.psum_scatter(strided(), CollectiveDim::tiled(0)),
            ),
            (x.all_to_all(crossed(), AllToAll::split(0).concat(1)), x.pswapaxes("X", 1)),
            (x.pbroadcast("X", 2), x.pshuffle("X", [2, 0, 3, 1])),
        )
    });
    let (got, want) = (native.call(&x).unwrap(), traced.call(&x).unwrap());
    let list = |all: [(Array, Array); 4]| all.map(|(a, b)| [a, b]).concat();
    for (k, (got, want)) in list(got.into()).into_iter().zip(list(want.into())).enumerate() {
        assert_eq!(got.shape().unwrap(), want.shape().unwrap(), "{k}");
        assert_eq!(got.to_vec::<i32>().unwrap(), want.to_vec::<i32>().unwrap(), "{k}");
    }
}

/// A program of one device.
type DeviceProgram<'a> = &'a (dyn Fn(&Device, ArrayView2<i32>) -> Result<atmesh::nd::Array2<i32>> + Sync);

#[test]
fn native_code_rejects_what_does_not_fit() {
    let x = Array::arange(0..16).reshape([8, 2]);
    let error = |f: DeviceProgram<'_>| {
        let run = spmd(&mesh(), p!["X"], p!["X"], |dev: &Device, x: ArrayView2<i32>| f(dev, x));
        run.call(&x).unwrap_err().unquoted()
    };
    let text = error(&|dev, x| dev.psum(&x, AxisGroups::new("X", [[0, 1]])));
    assert!(text.contains("the groups [[0,1]] leave out device 2 of 4 along X"), "{text}");
    let text = error(&|dev, x| dev.pbroadcast(&x, "X", 4));
    assert!(text.contains("there is no device 4 along X, which has 4"), "{text}");
    let exchange = |offset: usize, size: usize, start: usize, received: usize| {
        error(&move |dev, x| {
            let rows = RowRanges {
                input_offsets: &[offset; 4],
                send_sizes: &[size; 4],
                output_offsets: &[start; 4],
                recv_sizes: &[received; 4],
            };
            dev.ragged_all_to_all(&x, x.to_owned(), "X", rows)
        })
    };
    let text = exchange(1, 2, 0, 2);
    assert!(text.contains("entry 0 sends 2 rows from row 1 on, but the block has 2 rows"), "{text}");
    let text = exchange(0, 1, 2, 1);
    assert!(text.contains("writes rows 2..3, but the output has 2 rows"), "{text}");
    let text = exchange(0, 1, 0, 2);
    assert!(text.contains("sends 1 rows, and `recv_sizes` has 2 for it"), "{text}");
}
