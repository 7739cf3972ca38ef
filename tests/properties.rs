//! Random programs on random arrays, meshes and shardings: nothing panics, a sharded result equals
//! the unsharded one, the engines agree, and printed types parse back to themselves.
//!
//! The cases are the same at every run. `PROPERTIES_SEED=7 PROPTEST_CASES=1000 cargo test --test
//! properties` tries others; `tests/soak.sh` keeps trying new ones.

use atmesh::mesh::AxisType;
use atmesh::prelude::*;
use atmesh::{Axes, ConvOptions, ErrorKind, Padding, ScanOptions, WindowOptions, scan_with};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

#[path = "properties/asides.rs"]
mod asides;
#[path = "properties/bits.rs"]
mod bits;
#[path = "error_checks/mod.rs"]
mod error_checks;
#[path = "properties/expressions.rs"]
mod expressions;
#[path = "soak/mod.rs"]
mod soak;
#[path = "properties/sums.rs"]
mod sums;

use soak::share;

const NAMES: [&str; 3] = ["A", "B", "C"];
const SIZES: [usize; 10] = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16];

/// Runs a property on a part of `cases` (`soak::share`), or on `PROPTEST_CASES`.
fn holds<S: Strategy>(cases: u32, of: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let set = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let cases = set("PROPTEST_CASES").unwrap_or(share(cases.into()) as u32);
    let mut seed = [7; 32];
    seed[..4].copy_from_slice(&set("PROPERTIES_SEED").unwrap_or(7).to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    if let Err(e) = TestRunner::new_with_rng(config, rng).run(&of, test) {
        panic!("{e}");
    }
}

/// The sizes and types of axes, and the rotation of the device order.
type Axed = (Vec<(usize, AxisType)>, usize);

/// Returns one to three axes, with one to eight devices in any order.
fn meshes() -> impl Strategy<Value = Axed> {
    let sizes = prop_oneof![
        (1..=8usize).prop_map(|n| vec![n]),
        select(vec![vec![2, 2], vec![2, 4], vec![4, 2], vec![3, 2], vec![1, 5], vec![8, 1]]),
        select(vec![vec![2, 2, 2], vec![2, 1, 3], vec![1, 4, 2]]),
    ];
    let kinds = prop_oneof![
        4 => Just([AxisType::Explicit; 3]),
        1 => Just([AxisType::Auto; 3]),
        1 => Just([AxisType::Explicit, AxisType::Auto, AxisType::Explicit]),
        1 => Just([AxisType::Auto, AxisType::Explicit, AxisType::Explicit]),
    ];
    let turned = prop_oneof![3 => Just(0), 1 => 1..64usize];
    (sizes, kinds, turned).prop_map(|(sizes, kinds, turned)| (sizes.into_iter().zip(kinds).collect(), turned))
}

fn mesh_of((axes, turned): &Axed) -> Mesh {
    let mut ids = atmesh::devices(axes.iter().map(|a| a.0).product()).unwrap();
    // Rotated, and reversed for odd values.
    let n = ids.len();
    ids.rotate_left(turned / 2 % n);
    if turned % 2 == 1 {
        ids.reverse();
    }
    let named = || axes.iter().zip(NAMES);
    let mesh = Mesh::of_devices(&ids, named().map(|(a, name)| (name, a.0))).unwrap();
    let auto: Vec<Axis> =
        named().filter(|(a, _)| a.1 == AxisType::Auto).map(|(_, name)| name.into()).collect();
    mesh.with_axis_types(auto, AxisType::Auto).unwrap()
}

/// Returns a sharding of the shape: axes of one of these types, in the order given by `picks`, each
/// on a dimension that it divides.
fn spec_for(mesh: &Mesh, shape: &[usize], picks: &[u8], kinds: &[AxisType]) -> Spec {
    let mut dims = vec![Axes::none(); shape.len()];
    let mut left = shape.to_vec();
    let mut names = mesh.axis_names().to_vec();
    for pick in picks {
        if names.is_empty() || shape.is_empty() {
            break;
        }
        let axis = names.remove(*pick as usize / 16 % names.len());
        let (d, n) = (*pick as usize % (shape.len() + 1), mesh.axis_size(axis).unwrap());
        if d < shape.len() && left[d].is_multiple_of(n) && kinds.contains(&mesh.axis_type(axis).unwrap()) {
            left[d] /= n;
            dims[d].push(axis);
        }
    }
    Spec::from_dims(dims)
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Neg,
    Tanh,
    Twice,
    Halved,
    PlusFlipped(u8),
    Transpose,
    Ravel,
    Split(u8),
    Sum(u8),
    Mean(u8),
    Max(u8),
    Slice(u8),
    Pad(u8),
    Concat(u8),
    Stack,
    Broadcast(u8),
    Gram,
    Softmax(u8),
    Roll(u8),
    Window(u8),
    Blur(u8),
    Tril,
    Positive,
    Reshard([u8; 3]),
    Constrain([u8; 3]),
    Narrow,
    Parts([u8; 3]),
    Reduced([u8; 3]),
    SumParts(u8),
    Loop(u8),
    Scan(u8),
    Branch(u8),
    Rows(u8),
    Slope(u8),
    SlopeOfRows(u8),
    Stencil(u8),
    Inner,
    At(u8),
    Take(u8),
    Put(u8),
    Sort(u8),
    Running(u8),
    Segments(u8),
    AutoInside([u8; 3]),
}

fn steps() -> impl Strategy<Value = Step> {
    use Step::*;
    let plain = vec![Neg, Tanh, Twice, Halved, Transpose, Ravel, Stack, Gram, Tril, Positive, Narrow];
    let with: Vec<fn(u8) -> Step> = vec![
        PlusFlipped,
        Split,
        Sum,
        Mean,
        Max,
        Slice,
        Pad,
        Concat,
        Broadcast,
        Softmax,
        Roll,
        Window,
        Blur,
        Stencil,
    ];
    let inside: Vec<fn(u8) -> Step> = vec![SumParts, Loop, Scan, Branch, Rows, Slope, At, |_| Inner];
    let indexed: Vec<fn(u8) -> Step> = vec![Take, Put, Sort, Running, Segments, SlopeOfRows];
    let resharding: Vec<fn([u8; 3]) -> Step> = vec![Reshard, Reshard, Constrain, Parts, Reduced, AutoInside];
    prop_oneof![
        2 => select(plain),
        3 => (select(with), any::<u8>()).prop_map(|(f, d)| f(d)),
        2 => (select(inside), any::<u8>()).prop_map(|(f, d)| f(d)),
        1 => (select(indexed), any::<u8>()).prop_map(|(f, d)| f(d)),
        2 => (select(resharding), any::<[u8; 3]>()).prop_map(|(f, picks)| f(picks)),
    ]
}

impl Step {
    /// Returns true if the step sums, so that another order gives other last bits.
    fn sums(self) -> bool {
        use Step::*;
        let plainly = matches!(
            self,
            Sum(_) | Mean(_) | Gram | Softmax(_) | Slope(_) | SumParts(_) | Window(_) | Blur(_)
        ) || matches!(self, Put(_) | Running(_) | Segments(_) | SlopeOfRows(_));
        // Partial values are summed eventually, and the sum of -0 and 0 is 0.
        plainly || matches!(self, Parts(_))
    }
    fn apply(self, x: &Array, mesh: Option<&Mesh>) -> Result<Array> {
        let ty = x.ty()?;
        let (shape, rank) = (&ty.shape, ty.rank());
        let float = ty.dtype.is_float();
        let dim = |d: u8| d as i32 % rank.max(1) as i32;
        let scalar = rank == 0;
        Ok(match self {
            Step::Neg if ty.dtype != Bool => -x,
            Step::Tanh if float => x.tanh(),
            Step::Twice if ty.dtype != Bool => x * 2,
            Step::Halved if float => x * 0.5,
            Step::PlusFlipped(d) if !scalar && ty.dtype != Bool => x + x.flip(dim(d)),
            Step::Transpose => x.t(),
            Step::Ravel => x.ravel(),
            Step::Split(d) if !scalar => {
                let (d, mut sizes) = (dim(d) as usize, shape.to_vec());
                let factor = [4, 3, 2].into_iter().find(|f| sizes[d] % f == 0).unwrap_or(1);
                sizes[d] /= factor;
                sizes.insert(d + self.bit(), factor);
                x.reshape(sizes)
            }
            Step::Sum(d) if !scalar && ty.dtype != Bool => x.sum(dim(d)),
            Step::Mean(d) if !scalar && float => x.mean(dim(d)),
            // The extreme of an empty block has no value that is neutral for other devices' blocks.
            Step::Max(d) if !scalar && shape[dim(d) as usize] > 0 => x.max(dim(d)),
            Step::Slice(d) if !scalar => {
                let d = dim(d) as usize;
                let n = shape[d];
                let sizes = [n / 2, n - n / 2];
                x.split(sizes, d as i32).swap_remove(self.bit())
            }
            Step::Pad(d) if !scalar && ty.dtype != Bool => {
                let at = dim(d) as usize;
                x.pad(0, (0..rank).map(|k| if k == at { (1, 1, 1) } else { (0, 0, 0) }))
            }
            Step::Concat(d) if !scalar => concat([x, x], dim(d)),
            Step::Stack => stack([x, x], 0),
            Step::Broadcast(n) => {
                let shape: Vec<usize> = [n as usize % 4].into_iter().chain(shape.iter().copied()).collect();
                x.broadcast_to(shape)
            }
            Step::Gram if rank == 2 && float => x.matmul(x.t()) * 0.0625,
            Step::Softmax(d) if !scalar && float => x.softmax(dim(d)),
            Step::Roll(d) if !scalar => x.roll(i64::from(d) - 100, dim(d)),
            Step::Window(d) if !scalar => {
                let of = |at: usize| (0..rank).map(|k| if k == dim(d) as usize { at } else { 1 }).collect();
                let (window, strides): (Vec<usize>, Vec<usize>) =
                    (of(1 + d as usize / 32 % 4), of(1 + d as usize / 128));
                let how = WindowOptions::default().padding(Padding::Same).strides(strides);
                match (ty.dtype == Bool, self.bit()) {
                    (true, _) => x.window_or_with(window, how),
                    (_, 0) => x.window_sum_with(window, how),
                    _ => x.window_max_with(window, how),
                }
            }
            Step::Blur(d) if float && rank <= 3 => {
                let taps: Vec<usize> = (0..rank).map(|k| 1 + (d as usize >> k) % 4).collect();
                let filter = Array::ones(ty.dtype.array_type([vec![1, 1], taps].concat())) * 0.125;
                let how = ConvOptions::default().padding(Padding::Same);
                x.expand_dims([0, 1]).conv_with(&filter, how).squeeze([0, 1])
            }
            Step::Tril if rank >= 2 && ty.dtype != Bool => x.tril(0),
            Step::Positive if ty.dtype != Bool => x.gt(0).select(x, x.zeros_like()),
            Step::Narrow => match ty.dtype {
                F64 => x.astype(F32),
                I32 => x.astype(I16),
                _ => x.clone(),
            },
            Step::Reshard(picks) => match mesh {
                Some(mesh) => x.reshard(spec_for(mesh, shape, &picks, &[AxisType::Explicit])),
                None => x.clone(),
            },
            Step::Constrain(picks) => match mesh {
                Some(mesh) if !mesh.axes_of(AxisType::Auto).is_empty() => {
                    x.constrain(spec_for(mesh, shape, &picks, &[AxisType::Auto]))
                }
                _ => x.clone(),
            },
            Step::Parts(picks) | Step::Reduced(picks) if ty.dtype != Bool => match mesh {
                Some(mesh) => {
                    let spec = spec_for(mesh, shape, &picks[..1], &[AxisType::Explicit]);
                    let free = mesh.axes_of(AxisType::Explicit);
                    let free = free.into_iter().filter(|a| !spec.all_axes().any(|b| b == *a));
                    let set: Axes = free.zip(picks).filter(|(_, p)| p % 2 == 1).map(|(a, _)| a).collect();
                    x.reshard(if matches!(self, Step::Parts(_)) {
                        spec.unreduced(set)
                    } else {
                        spec.reduced(set)
                    })
                }
                None => x.clone(),
            },
            Step::SumParts(d) if !scalar && ty.dtype != Bool => {
                let d = dim(d);
                let rest = |axes: &[Axes]| {
                    axes.iter().enumerate().filter(|(k, _)| *k != d as usize).map(|x| x.1.clone()).collect()
                };
                match mesh {
                    Some(_) => {
                        let mut parts = ty.spec.unreduced_axes().clone();
                        ty.spec.dim(d as usize).iter().for_each(|a| parts.push(*a));
                        x.sum_to(d, ty.spec.with_dims(rest(ty.spec.dims())).unreduced(parts))
                    }
                    None => x.sum(d),
                }
            }
            Step::Loop(k) if ty.dtype != Bool => fori_loop(0..i32::from(k % 4), x, |_, c| &c - x),
            Step::Scan(k) if !scalar && ty.dtype != Bool => {
                let first = match shape[0] {
                    0 => Array::zeros(ty.dtype.array_type(&shape[1..])),
                    _ => x.slice(ix![0..1]).reshape(&shape[1..]),
                };
                let mut options = ScanOptions::default();
                options.reverse = k % 2 == 1;
                scan_with(first, x, |c, row| (&row - &c, c - row), options).1
            }
            Step::Branch(k) => {
                let which = Array::from(i32::from(k) - 100);
                let far = || if ty.dtype == Bool { !x } else { x + x };
                switch(&which, &[&|| x.clone(), &far, &|| if scalar { x.clone() } else { x.flip(0) }])
            }
            Step::Rows(k) if !scalar && ty.dtype != Bool => vmap(x, |row| {
                let rank = row.ty()?.rank();
                Ok(if k % 2 == 0 || rank == 0 { &row + &row } else { row.flip(0) - row })
            }),
            Step::Slope(k) if float => grad(x, |x| match k % 4 {
                0 => (&x * &x).sum(..),
                1 => (x.flip(..) * x).sum(..),
                2 => x.tanh().sum(..),
                _ => concat([x.ravel(), x.ravel()], 0).square().mean(..),
            }),
            Step::SlopeOfRows(k) if float && !scalar && shape[0] > 0 => {
                let n = shape[0] as i32;
                // Some rows occur twice, and the last index is out of bounds.
                let rows = Array::from([n - 1, 0, n / 2, -1, n + 3]);
                let ids = Array::arange(0..n) * 7 % 4;
                grad(x, |x| match k % 8 {
                    0 => x.take(&rows, 0).tanh().slice(ix![..-1]).sum(..),
                    1 => (x.at(ix![&rows]).set(x.slice(ix![0])) * &x).sum(..),
                    2 => x.at(ix![&rows]).add(x.slice(ix![-1])).square().mean(..),
                    3 => x.segment_sum(&ids, 4).square().mean(..),
                    4 => x.segment_max(&ids, 4).tanh().sum(..),
                    5 => (x.cumsum(0) * &x).mean(..),
                    6 => (x.sort(0) * &x).sum(..),
                    _ => (x.cummax_reverse(0) * &x).sum(..),
                })
            }
            Step::Stencil(d) if float && !scalar => {
                let d = dim(d) as usize;
                let beside =
                    |by: i64| x.pad(0, (0..rank).map(|k| if k == d { (by, -by, 0) } else { (0, 0, 0) }));
                let around = beside(1) + beside(-1) - beside(2) * 0.25 + 1.5 * beside(-2);
                x + 0.1 * (around - 4.0 * x)
            }
            Step::Inner => jit(|x: &Array| checkpoint(x, |x| x.t())).call(x)?,
            Step::At(k) if !scalar && shape[0] > 0 => {
                let i = Array::from(i32::from(k) % shape[0] as i32);
                x.at(ix![&i]).set(x.slice(ix![-1]))
            }
            // Indices in and out of range, some of them repeated.
            Step::Take(k) if !scalar && shape[dim(k) as usize] > 0 => {
                let n = shape[dim(k) as usize] as i32;
                x.take(&Array::from([n - 1, 0, n / 2, -1, n + 3]), dim(k))
            }
            Step::Put(k) if !scalar && shape[0] > 0 && ty.dtype != Bool => {
                let n = shape[0] as i32;
                let at = x.at(ix![&Array::from([n - 1, 0, -1, n + 3])]);
                match k % 3 {
                    0 => at.set(3),
                    1 => at.add(3),
                    _ => at.max(3),
                }
            }
            Step::Sort(k) if !scalar => x.sort(dim(k)),
            Step::Running(k) if !scalar && ty.dtype != Bool => match k / 128 {
                0 => x.cumsum(dim(k)),
                _ => x.cummax_reverse(dim(k)),
            },
            Step::Segments(k) if !scalar && ty.dtype != Bool => {
                let ids = Array::arange(0..shape[0] as i32) * 7 % 4;
                match k % 2 {
                    0 => x.segment_sum(&ids, 4),
                    _ => x.segment_max(&ids, 4),
                }
            }
            Step::AutoInside(picks) => match mesh {
                Some(mesh) if !mesh.axes_of(AxisType::Explicit).is_empty() => {
                    auto_axes(x, spec_for(mesh, shape, &picks, &[AxisType::Explicit]), |x| x.t().t())
                }
                _ => x.clone(),
            },
            _ => x.clone(),
        })
    }
    fn bit(self) -> usize {
        match self {
            Step::Split(d) | Step::Slice(d) => d as usize / 128,
            _ => 0,
        }
    }
}

/// Returns distinct elements of the shape, few of them integers.
fn numbers(shape: &[usize], dtype: DType) -> Array {
    let n: usize = shape.iter().product();
    let mixed = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let floats: Vec<f64> = (0..n).map(|i| mixed(i) as f64 / (1 << 23) as f64 - 1.0).collect();
    let flat = match dtype {
        d if d.is_float() => Array::from(floats).astype(d),
        Bool => Array::from(floats).gt(0.0),
        d => (Array::from(floats) * 50.0).astype(d),
    };
    flat.reshape(shape)
}

fn read(x: &Array) -> Result<Vec<f64>> {
    let spec = x.ty()?.spec;
    let whole =
        if spec.unreduced_axes().is_empty() { x.clone() } else { x.reshard(spec.unreduced(Axes::none())) };
    whole.astype(F64).to_vec::<f64>()
}

/// Compares bits, ignoring NaN payloads.
fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

/// Compares within the rounding error of sums of elements as large as the largest.
fn near(a: &[f64], b: &[f64], dtype: DType) -> bool {
    let tol = match dtype {
        F64 => 1e-12,
        F16 => 4e-3,
        BF16 => 3e-2,
        _ if dtype.is_float() => 1e-5,
        _ => 0.0,
    };
    let most = a.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tol * most)
}

#[test]
fn programs_do_not_depend_on_shardings_nor_engines() {
    let dtypes = select(vec![F32, F32, F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, Bool]);
    let shapes = vec(select(SIZES.to_vec()), 1..=3);
    let programs = (meshes(), shapes, any::<[u8; 3]>(), dtypes, vec(steps(), 1..=5));
    holds(300, programs, |(axes, shape, picks, dtype, steps)| {
        let fail = |what: &str, e: atmesh::Error| TestCaseError::fail(format!("{what}: {e}"));
        let mesh = mesh_of(&axes);
        let plain = numbers(&shape, dtype);
        let x = plain.put(&mesh, spec_for(&mesh, &shape, &picks, &[AxisType::Explicit, AxisType::Auto]));
        let (mut lone, mut eager, mut done) = (plain, x.clone(), Vec::new());
        for step in steps {
            // Steps that the types reject are left out, but only if the sharding is the reason.
            let next = step.apply(&eager, Some(&mesh)).map_err(|e| fail("applied", e))?;
            match next.ty() {
                Ok(_) => {
                    eager = next;
                    lone = step.apply(&lone, None).map_err(|e| fail("unsharded", e))?;
                    done.push(step);
                }
                Err(e) if matches!(e.kind(), ErrorKind::Sharding | ErrorKind::Mesh) => {
                    drop(error_checks::well(e))
                }
                Err(e) => return Err(fail("rejected", e)),
            }
        }
        let run = |engine| {
            let program = |x: &Array| -> Result<Array> {
                done.iter().try_fold(x.clone(), |x, step| step.apply(&x, Some(&mesh)))
            };
            let y = jit(program).on(&mesh).engine(engine).call(&x)?;
            Ok((type_of(&y).to_string(), y.ty()?.dtype, read(&y)?))
        };
        let want = read(&lone).map_err(|e| fail("unsharded", e))?;
        let one_by_one = read(&eager).map_err(|e| fail("one by one", e))?;
        let [lockstep, threads, reference] =
            [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference].map(run);
        let lockstep = lockstep.map_err(|e| fail("lockstep", e))?;
        let threads = threads.map_err(|e| fail("threads", e))?;
        let reference = reference.map_err(|e| fail("reference", e))?;
        let check = |ok: bool, what: &str| {
            let message =
                || format!("{what} ({done:?}): {lockstep:?}, alone {want:?}, one by one {one_by_one:?}");
            if ok { Ok(()) } else { Err(TestCaseError::fail(message())) }
        };
        check(lockstep.0 == type_of(&eager).to_string(), "another type than one by one")?;
        check(same(&threads.2, &lockstep.2), &format!("threads are not lockstep: {threads:?}"))?;
        for (name, got) in [("lockstep", &lockstep.2), ("eager", &one_by_one), ("reference", &reference.2)] {
            // The reference engine uses libm for functions that compiled kernels approximate.
            let tanh = |s: &Step| matches!(s, Step::Tanh | Step::Slope(_) | Step::SlopeOfRows(_));
            let rounds = |s: &Step| s.sums() || name == "reference" && tanh(s);
            if done.iter().any(rounds) {
                check(near(&want, got, lockstep.1), &format!("{name} is not near"))?;
            } else {
                check(same(&want, got), &format!("{name} has other bits: {got:?}"))?;
            }
        }
        // With a plugin, compare with XLA as an independent check.
        if cfg!(feature = "xla") && std::env::var_os("ATMESH_PJRT_PLUGIN").is_some() {
            match run(EngineKind::Xla) {
                Ok(xla) => {
                    check(xla.0 == lockstep.0, "another type on XLA")?;
                    check(near(&want, &xla.2, xla.1), &format!("XLA is not near: {xla:?}"))?;
                }
                // XLA lacks an operation, or supports only even shardings.
                Err(e) if e.kind() == ErrorKind::Unsupported => {}
                Err(e) => return Err(fail("XLA", e)),
            }
        }
        Ok(())
    });
}

#[test]
fn types_parse_as_they_print() {
    let dtypes = select(vec![Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64]);
    let shapes = vec(select(SIZES.to_vec()), 0..=4);
    let types = (meshes(), shapes, any::<[u8; 3]>(), dtypes, any::<[u8; 3]>());
    holds(2000, types, |(axes, shape, picks, dtype, sets)| {
        let mut mesh = mesh_of(&axes);
        let spec = spec_for(&mesh, &shape, &picks, &[AxisType::Explicit]);
        // Axes that shard nothing are distributed over the three sets.
        let free = |mesh: &Mesh| -> Vec<(usize, Axis)> {
            let names = mesh.axis_names().iter().copied().enumerate();
            names.filter(|(_, a)| !spec.all_axes().any(|b| b == *a)).collect()
        };
        let of = |set: u8| -> Axes {
            let of = |(k, a): (usize, Axis)| (sets[k] % 4 == set).then_some(a);
            free(&mesh).into_iter().filter_map(of).collect()
        };
        let explicit = |axes: Axes| -> Axes {
            axes.iter().filter(|a| mesh.axis_type(*a) == Some(AxisType::Explicit)).collect()
        };
        let (varying, unreduced, reduced) = (of(1), explicit(of(2)), explicit(of(3)));
        mesh = mesh.with_axis_types(&varying, AxisType::Manual).unwrap();
        let spec = spec.unreduced(unreduced).reduced(reduced);
        let ty = ArrayType { mesh: Some(mesh.clone()), spec, varying, ..dtype.array_type(shape) };
        for text in [ty.to_string(), ty.short_text()] {
            let back = ArrayType::parse(&text, &mesh)
                .map_err(|e| TestCaseError::fail(format!("{text} is not read: {e}")))?;
            if back != ty || back.to_string() != ty.to_string() {
                return Err(TestCaseError::fail(format!("{text} is read as {back:?}, not {ty:?}")));
            }
        }
        Ok(())
    });
}

/// Parsing texts that resemble types gives a type or an error, never a panic; a parsed type prints
/// as text that parses to the same type.
#[test]
fn any_text_is_read_or_rejected() {
    let words = vec![
        "f32",
        "float32",
        "bool",
        "key<fry>",
        "[",
        "]",
        "8",
        "0",
        "7",
        "@",
        "A",
        "B",
        "(A,B)",
        "(B,A)",
        ",",
        "{",
        "}",
        "V:",
        "U:",
        "R:",
        "U:A",
        "{U:(A,B)}",
        " ",
        "-1",
        "18446744073709551616",
        "é",
    ];
    holds(4000, vec(select(words), 0..12), |words| {
        let mesh = Mesh::new([("A", 2), ("B", 4)]).unwrap();
        let text: String = words.concat();
        if let Ok(ty) = ArrayType::parse(&text, &mesh) {
            let again = ArrayType::parse(&ty.to_string(), &mesh);
            if again.as_ref().ok() != Some(&ty) {
                return Err(TestCaseError::fail(format!("{text}: {ty} is read as {again:?}")));
            }
        }
        Ok(())
    });
}
