//! Bad input of any kind is an error value or an `Err`, never a panic.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod degenerate;
#[path = "../soak/mod.rs"]
mod soak;

use atmesh::prelude::*;
use atmesh::{Error, ErrorKind, ScanOptions, Tree, checkpoint, jvp, scan_with, tree, vjp};
use error_checks::Unquoted as _;
use soak::runs_all;

/// A result that has plain Rust values next to its arrays.
#[derive(Clone, Debug, Tree)]
struct Found {
    at: Array,
    all: Vec<Array>,
    #[tree(skip)]
    name: String,
}
type Mixed = (Found, Static<u32>);

fn found(x: &Array) -> Mixed {
    (Found { at: x.clone(), all: vec![x + 1, x + 2], name: "it".into() }, Static(7))
}
fn poisoned<T: Tree>(what: &str, x: &T, kind: ErrorKind) {
    for leaf in tree::leaves(x) {
        let error = leaf.ty().expect_err(what);
        assert_eq!(error.kind(), kind, "{what}: {error}");
    }
}

/// Closures that fail before they return: plain values have their defaults, and lists are empty.
#[test]
fn closures_that_fail_before_they_return() {
    let x = &Array::from([1.0f32, 2.0]);
    let fails = |x: &Array| -> Result<Mixed> {
        let y = x.dot(Array::ones([3]));
        y.ty()?; // the error is found here
        Ok(found(&y))
    };
    let check = |what: &str, got: &Mixed| {
        poisoned(what, got, ErrorKind::Shape);
        assert_eq!((got.0.name.as_str(), got.0.all.len(), got.1.0), ("", 0, 0), "{what}");
    };
    check("cond", &cond(true, || fails(x), || fails(x)));
    check("switch", &switch(0, &[&|| fails(x)]));
    check("vmap", &vmap(Array::ones([2, 2]), |x| fails(&x)));
    check("checkpoint", &checkpoint(x, |x| fails(&x)));
    check("vjp", &vjp(x, |x| fails(&x)).0);
    let (y, dy) = jvp(x, x, |x| fails(&x));
    check("jvp", &y);
    check("jvp", &dy);
    let loss = |x: Array| fails(&x).map(|found| (x.sum(..), found));
    let ((loss_value, aux), g) = value_and_grad(x, loss);
    poisoned("value_and_grad", &(loss_value, g), ErrorKind::Shape);
    check("value_and_grad", &aux);
    poisoned("grad", &grad(x, loss), ErrorKind::Shape);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    check("auto_axes", &auto_axes(x.put(&mesh, p!["X"]), p![], |x| fails(&x)));
    let auto = Mesh::auto([("X", 2)]).unwrap();
    check("explicit_axes", &explicit_axes(x.put(&auto, p![]), p![], |x| fails(&x)));
    let options = ScanOptions::default().length(2);
    let (carry, ys) = scan_with(x, (), |x, ()| fails(&x).map(|f| (x, f)), options);
    poisoned("scan", &carry, ErrorKind::Shape);
    check("scan", &ys);
    // The final carries have the structure of the initial ones.
    let first = found(x);
    let looped = fori_loop(0..3, &first, |_, (f, _)| fails(&f.at));
    poisoned("fori_loop", &looped, ErrorKind::Shape);
    assert_eq!((looped.0.name.as_str(), looped.0.all.len(), looped.1.0), ("it", 2, 7));
    let looped = while_loop(&first, |(f, _)| f.at.sum(..).lt(9.0), |(f, _)| fails(&f.at));
    poisoned("while_loop", &looped, ErrorKind::Shape);
    // Asking for the result gives an `Err`.
    assert!(jit(move |x: &Array| fails(x)).call(x).is_err());
    assert!(jit(move |x: &Array| cond(true, || fails(x), || fails(x))).call(x).is_err());
    assert!(shard_map(&mesh, p!["X"], p![], move |x: &Array| fails(x)).call(x.put(&mesh, p!["X"])).is_err());
}

/// Closures that return ill-typed arrays: the results have the structure of the returned value.
#[test]
fn closures_that_return_errors() {
    let x = &Array::from([1.0f32, 2.0]);
    let ill = |x: &Array| found(&x.dot(Array::ones([3])));
    let check = |what: &str, got: &Mixed| {
        poisoned(what, got, ErrorKind::Shape);
        assert_eq!((got.0.name.as_str(), got.0.all.len(), got.1.0), ("it", 2, 7), "{what}");
    };
    check("cond", &cond(true, || ill(x), || ill(x)));
    check("vmap", &vmap(Array::ones([2, 2]), |x| ill(&x)));
    check("checkpoint", &checkpoint(x, |x| ill(&x)));
    let (y, pull) = vjp(x, |x| ill(&x));
    check("vjp", &y);
    poisoned("pullback", &pull.call(y), ErrorKind::Shape);
    check("jvp", &jvp(x, x, |x| ill(&x)).1);
    check("value_and_grad", &value_and_grad(x, |x| (x.sum(..), ill(&x))).0.1);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    check("auto_axes", &auto_axes(x.put(&mesh, p!["X"]), p![], |x| ill(&x)));
    // The error is found after the closure was traced.
    let ty = Array::ones([2]);
    let rejected = cond(true, || found(x), || found(&(&ty + &x.astype(I32)).astype(I32)));
    assert!(tree::leaves(&rejected).iter().all(|a| a.ty().is_err()));
    assert_eq!(rejected.0.all.len(), 2);
    let options = ScanOptions::default().length(2);
    let (_, ys) = scan_with(x, (), |x, ()| (x.sum(..), found(&x)), options);
    poisoned("scan", &ys, ErrorKind::Shape);
    assert_eq!(ys.0.all.len(), 2);
}

/// An error in an argument is the error of the result.
#[test]
fn errors_flow_through_closures() {
    let bad = &Array::ones([2]).dot(Array::ones([3]));
    let first: Error = bad.ty().unwrap_err();
    let assert_first = |x: Array| assert_eq!(x.ty().unwrap_err(), first);
    assert_first(grad(bad, |x| x.sum(..)));
    assert_first(vmap(bad, |x| x));
    assert_first(cond(true, || bad.clone(), || bad.clone()));
    assert_first(cond(bad, || Array::ones([1]), || Array::ones([1])));
    assert_first(fori_loop(0..2, bad, |_, x| x));
    assert_first(while_loop(bad, |x| x.sum(..).gt(0.0), |x| x));
    assert_first(scan(bad, Array::ones([2]), |c, x| (c, x)).0);
    assert_first(scan(Array::ones([2]), bad, |c, x| (c, x)).1);
    assert_first(checkpoint(bad, |x| x));
    assert_first(jvp(bad, bad, |x| x).0);
    assert_first(vjp(bad, |x| x).1.call(Array::ones([2])));
}

/// Runs `run` and returns the panic message, if it panicked.
fn panic_of(run: impl FnOnce()) -> Option<String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err()?;
    let text = caught.downcast_ref::<String>().cloned();
    text.or_else(|| caught.downcast_ref::<&str>().map(ToString::to_string)).or(Some("?".into()))
}

/// Dimensions and scalars that are wrong for nearly every array, and a few that are right for some.
const DIMS: [i32; 8] = [0, 1, -1, 2, -3, 9, i32::MAX, i32::MIN];
const LONG: [i64; 8] = [0, 1, -1, 3, -9, 1 << 60, i64::MAX, i64::MIN];
const SIZES: [usize; 6] = [0, 1, 3, 1 << 33, usize::MAX / 2, usize::MAX];

/// The name of a call, and the call.
type Call = (String, Box<dyn Fn(&Array, &Array) -> Vec<Array>>);

/// Returns each method with each bad argument.
fn calls() -> Vec<Call> {
    let mut all: Vec<Call> = Vec::new();
    macro_rules! each { ($p:ident in $list:expr; $($call:expr),+ $(,)?) => {$(
        for $p in $list {
            #[allow(clippy::redundant_closure_call)]
            all.push((format!("{} for {:?}", stringify!($call), $p), Box::new(move |x, y| { let _ = y; $call(x, y).into_list() })));
        }
    )+} }
    type A<'a> = &'a Array;
    each!(d in DIMS;
        |x: A, _: A| x.sum(d), |x: A, _: A| x.sum(Dims::keep([d, 0])), |x: A, _: A| x.mean(d), |x: A, _: A| x.var(d),
        |x: A, _: A| x.argmax(d), |x: A, _: A| x.softmax(d), |x: A, _: A| x.logsumexp(d), |x: A, _: A| x.any(d),
        |x: A, _: A| x.transpose([d, 0]), |x: A, _: A| x.expand_dims([d, d]), |x: A, _: A| x.expand_dims(d),
        |x: A, _: A| x.squeeze(d), |x: A, _: A| x.flip(d), |x: A, _: A| x.unstack(d), |x: A, _: A| x.split([1, 2], d),
        |x: A, y: A| concat([x, y], d), |x: A, y: A| stack([x, y], d), |x: A, _: A| x.powi(d), |x: A, _: A| x.slice(ix![d]),
        |x: A, _: A| x.at(ix![d]).set(1), |x: A, _: A| Key::new(1).categorical(x, d),
        |x: A, _: A| vmap(x, move |x| x.sum(d)),
        |x: A, _: A| atmesh::vmap_with(x, |x| x, atmesh::VmapOptions::default().in_dims(d)),
        |x: A, _: A| atmesh::vmap_with(x, |x| x, atmesh::VmapOptions::default().out_dims(d)),
        |x: A, _: A| switch(d, &[&|| x + 1, &|| x.clone()]),
        |x: A, _: A| fori_loop(d..d.saturating_add(2), x, |_, x| x),
    );
    each!(n in LONG;
        |x: A, _: A| x.roll(n, 0), |x: A, _: A| x.tril(n), |x: A, _: A| x.triu(n), |x: A, _: A| x.pad(0, [(n, n, 0)]),
        |x: A, _: A| x.pad(0, [(0, n, 1), (n, 0, 0)]), |_: A, _: A| Array::eye([2, 2], n),
        |x: A, _: A| x.slice(atmesh::array::DimIndex::range(Some(n), None, Some(n)).into_index()),
        |x: A, _: A| x.slice(atmesh::array::DimIndex::range(None, Some(n), Some(-1)).into_index()),
        |x: A, _: A| x.slice(atmesh::array::DimIndex::range(Some(n), Some(-n.max(-9)), Some(i64::MIN)).into_index()),
        |x: A, _: A| x.slice(atmesh::array::DimIndex::range(Some(n), Some(n), Some(i64::MAX)).into_index()),
        |x: A, _: A| x.slice(atmesh::array::DimIndex::range_inclusive(Some(n), n, None).into_index()),
        |x: A, _: A| x + n, |x: A, _: A| x.clamp(n, n), |x: A, _: A| x / n, |x: A, _: A| x % n,
        |x: A, _: A| Array::full(F32.array_type([2]), n) + x, |x: A, _: A| Array::full(I8.array_type([2]), n) + x,
        |_: A, _: A| Key::new(1).randint(I32.array_type([2]), n..n.saturating_add(1)),
        |_: A, _: A| Key::new(1).randint(I64.array_type([2]), n..0),
    );
    each!(n in SIZES;
        |x: A, _: A| x.reshape([n, n]), |x: A, _: A| x.broadcast_to([n, n, 3]), |x: A, _: A| x.broadcast_in_dim([n, n], [n]),
        |x: A, _: A| x.split([n, n], 0), |x: A, _: A| x.slice(ix![n]), |x: A, _: A| x.slice(ix![n..n]),
        |x: A, _: A| x.sum(n),
    );
    // Arrays of these sizes would really be allocated.
    each!(n in [usize::MAX / 2, usize::MAX];
        |_: A, _: A| Array::zeros([n, 4]), |_: A, _: A| Array::ones(I32.array_type([n])), |_: A, _: A| Array::iota(F64.array_type([n, n]), 0),
        |_: A, _: A| Array::iota([2], n), |_: A, _: A| Key::new(1).uniform([n, 3]), |_: A, _: A| Key::new(1).normal([n, n]),
        |_: A, _: A| Key::new(1).split_array([n, n]), |_: A, _: A| Array::eye([n, n], 0),
        |x: A, _: A| x.one_hot(n), |x: A, _: A| x.tile([n, n]), |x: A, _: A| x.pad(0, [(n as i64, n as i64, n)]),
        |_: A, _: A| scan_with(Array::from(1), (), |x, ()| (&x + 1, x), ScanOptions::default().length(n)).1,
    );
    each!(s in ["", "->", "ij,jk->ik", "ii->i", "i,i,i", "ij->ji->", "é", "i...->...", "ij,jk->zz", ",,,"];
        |x: A, y: A| einsum(s, [x, y]), |x: A, _: A| einsum(s, [x]), |x: A, _: A| einsum(s, [x, x, x]),
    );
    each!(t in ["", "X", "Y", "Nowhere"];
        |x: A, _: A| x.psum(t), |x: A, _: A| x.all_gather(t, CollectiveDim::tiled(0)), |x: A, _: A| x.ppermute(t, Permutation::ring(1)),
        |x: A, _: A| x.psum_scatter(t, CollectiveDim::tiled(9)), |x: A, _: A| x.all_to_all(t, AllToAll::split(9).concat(-9)), |x: A, _: A| x.pvary(t),
        |x: A, _: A| x.pmean([t, t]), |_: A, _: A| axis_index(t), |x: A, _: A| x.reshard(p![t]), |x: A, _: A| x.constrain(p![t, t]),
        |x: A, _: A| x.reshard(p![_, _, t, _]), |x: A, y: A| x.dot_to(y, p![t]), |x: A, _: A| x.sum_to(0, p![t, t, t]),
        |x: A, _: A| x.put(&Mesh::new([("X", 2)]).unwrap(), p![t]), |x: A, _: A| auto_axes(x, p![t], |x| x),
        |x: A, _: A| explicit_axes(x, p![t], |x| x), |_: A, _: A| Array::zeros(F32.array_type([4]).on(&Mesh::new([("X", 2)]).unwrap(), p![t, t])),
    );
    each!(_n in [0];
        |x: A, y: A| x.dot(y), |x: A, y: A| x.matmul(y), |x: A, y: A| x + y, |x: A, y: A| x.select(y, y), |x: A, y: A| x.pow(y),
        |x: A, y: A| x.shift_left(y), |x: A, y: A| x.atan2(y), |x: A, y: A| x.slice(ix![y]), |x: A, y: A| x.at(ix![y]).add(y),
        |x: A, y: A| x.at(ix![0..1]).set(y), |x: A, y: A| x.full_like(y), |x: A, y: A| x.clamp(y, y), |x: A, _: A| x.t(),
        |x: A, y: A| cond(x, || y.clone(), || y + 1), |x: A, y: A| switch(x, &[&|| y.clone()]), |x: A, _: A| x.one_hot(3),
        |x: A, y: A| fori_loop(x..y, x, |_, x| x + 1), |x: A, y: A| while_loop(x, |x| x.lt(y), |x| x + 1),
        |x: A, y: A| scan(x, y, |x, y| (&x + y, x)).1, |x: A, y: A| vmap((x, y), |(x, y)| x + y),
        |x: A, _: A| grad(x, |x| x), |x: A, y: A| grad((x, y), |(x, y)| (x * y).sum(..)), |x: A, y: A| jvp(x, y, |x| x.sin()).1,
        |x: A, y: A| vjp(x, |x| x.exp()).1.call(y), |x: A, _: A| x.bitcast(F32), |x: A, _: A| x.astype(DType::Key),
        |x: A, _: A| x.astype(Bool), |x: A, _: A| x.gelu(), |x: A, _: A| x.std(..), |x: A, _: A| x.max(..), |x: A, _: A| x.argmin(0),
        |x: A, y: A| Key::from_array(x.clone()).fold_in(y).uniform([2]), |x: A, _: A| Key::from_data(x).normal([2]),
        |x: A, _: A| Key::from_array(x.clone()).split_array([2]), |x: A, _: A| checkpoint(x, |x| x.sum(..)),
        |x: A, y: A| tree::map2(&vec![x.clone()], &vec![y.clone(), y.clone()], |a, b| a + b),
        |x: A, y: A| { debug_print!("{}", x, y); x.clone() }, |_: A, _: A| switch(0, &[] as &[&dyn Fn() -> Array]),
        |x: A, y: A| concat([] as [&Array; 0], 0) + stack([] as [Array; 0], 1) + x + y,
    );
    all
}

trait IntoList {
    fn into_list(self) -> Vec<Array>;
}
impl<T: Tree> IntoList for T {
    fn into_list(self) -> Vec<Array> {
        tree::leaves(&self)
    }
}
trait IntoIndex {
    fn into_index(self) -> atmesh::array::Index;
}
impl IntoIndex for atmesh::array::DimIndex {
    fn into_index(self) -> atmesh::array::Index {
        vec![self].into()
    }
}

/// Calls every method with arguments that are wrong in every way, on arrays of many kinds: eagerly,
/// traced, and in a `shard_map`.
#[test]
fn no_method_panics() {
    let mesh = Mesh::new([("X", 2), ("Y", 1)]).unwrap();
    let auto = Mesh::auto([("X", 2)]).unwrap();
    let operands = [
        Array::from(3),
        Array::from(2.5f32),
        Array::from(true),
        Array::zeros([0]),
        Array::ones([2, 3]),
        Array::arange(0..4).put(&mesh, p!["X"]),
        Array::ones([2, 2]).put(&auto, p!["X"]),
        Array::from([true, false]),
        Array::from([1u8, 200]),
        Array::ones(F16.array_type([1, 2, 1])),
        Key::new(1).array().clone(),
        Key::new(2).split_array([3]),
        Array::ones([2]).dot(Array::ones([3])),
    ];
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failed = Vec::new();
    for (k, (what, call)) in calls().into_iter().chain(degenerate::extreme_calls()).enumerate() {
        for (i, x) in operands.iter().enumerate() {
            // each call and each operand run in one of the three ways, or in all in a soak
            let runs = |way: usize| runs_all() || (k + i) % 3 == way;
            let y = &operands[(i * 5 + what.len()) % operands.len()];
            let type_text = |x: &Array| x.ty().map_or_else(|_| "an error".into(), |t| t.to_string());
            let mut note = |way: usize, how: &str, run: &dyn Fn()| {
                if runs(way)
                    && let Some(panic) = panic_of(run)
                {
                    failed.push(format!("{what} {how} on {}, {}: {panic}", type_text(x), type_text(y)));
                }
            };
            // Every error names an operation and a source line, and is not an internal error of
            // atmesh.
            let whole = |error: &Error| {
                for d in error.diagnostics() {
                    assert!(!d.op.is_empty() && d.location.is_some(), "of no operation or line: {error}");
                    assert_ne!(d.fault.kind, ErrorKind::Internal, "{error}");
                    assert_ne!(d.fault.kind, ErrorKind::User, "{error}");
                }
            };
            note(0, "at once", &|| {
                for a in call(x, y) {
                    let _ = (a.to_string(), a.visualize().to_string());
                    a.shards().err().iter().for_each(whole);
                }
            });
            note(1, "traced", &|| {
                let lowered = jit(|x: &Array, y: &Array| call(x, y)).lower((x, y));
                lowered.map(|_| ()).err().iter().for_each(whole);
            });
            note(2, "in a shard_map", &|| {
                let body = |x: &Array, y: &Array| call(x, y);
                let lowered = shard_map(&mesh, p![], p![], body).lower((x, y));
                lowered.map(|_| ()).err().iter().for_each(whole);
            });
        }
    }
    std::panic::set_hook(hook);
    assert!(failed.is_empty(), "{} panics:\n{}", failed.len(), failed.join("\n"));
}

/// A result that does not fit in memory is rejected before anything is allocated, even if it would
/// only be recorded in a trace.
#[test]
fn giant_arrays_are_rejected_before_they_are_made() {
    let rejected = |what: &str, x: Array| {
        let error = x.ty().expect_err(what);
        assert!(matches!(error.kind(), ErrorKind::Shape | ErrorKind::Data), "{what}: {error}");
        assert!(error.diagnostics()[0].location.is_some(), "{what}: {error}");
    };
    rejected("arange", Array::arange(0i64..1 << 45));
    rejected("arange", Array::arange(i64::MIN..i64::MAX));
    rejected("arange", Array::arange(0..u64::MAX));
    rejected("arange", Array::arange(0.0..f32::INFINITY));
    rejected("arange", Array::arange(f64::MIN..f64::MAX));
    rejected("linspace", Array::linspace(0.0, 1.0, 1 << 50, true));
    rejected("reshape", Array::zeros([0]).reshape([0, usize::MAX, 2]));
    rejected("reshape", Array::zeros([0]).reshape([usize::MAX, 0, 2]));
    assert_eq!(Array::arange(0.0..f64::NAN).shape().unwrap(), [0]);
    let (least, most) = (i64::MIN, i64::MAX);
    assert_eq!(Array::arange(most..least).shape().unwrap(), [0]);
    assert_eq!(Array::arange(i64::MAX - 1..i64::MAX).to_vec::<i64>().unwrap(), [i64::MAX - 1]);
    let traced = [
        jit(|_: &Array| Array::linspace(0.0, 1.0, 1 << 50, true)),
        jit(|_: &Array| Array::arange(0i64..1 << 45)),
        jit(|_: &Array| Array::arange(0.0..f64::INFINITY)),
    ];
    for f in traced {
        assert!(f.call(Array::ones([2])).is_err());
    }
}

/// An array on a mesh without devices has no data.
#[test]
fn nothing_is_put_together_on_an_abstract_mesh() {
    for devices in [2, 1 << 40] {
        let mesh = Mesh::without_devices([("X", devices)]).unwrap();
        let sharding = Sharding::new(&mesh, p!["X"], &[1 << 40]).unwrap();
        let made = Array::from_fn([1 << 40], &sharding, |_| Array::ones([1]));
        assert!(made.unwrap_err().unquoted().contains("no devices"));
        let made = Array::from_shards([1 << 40], &sharding, [Array::ones([1]), Array::ones([1])]);
        assert!(made.unwrap_err().unquoted().contains("no devices"));
    }
}

/// Random integers near the limits of every integer type: results are within the range, or the
/// range is an error.
#[test]
fn random_integers_are_of_their_range() {
    let limits = |d: DType| -> (i128, i128) {
        let bits = d.size() as u32 * 8;
        if d.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    };
    let types = || [I8, I16, I32, I64, U8, U16, U32, U64];
    let mut ends: Vec<i64> = types()
        .iter()
        .flat_map(|d| [limits(*d).0, limits(*d).1])
        .flat_map(|x| [x - 1, x, x + 1, x + 2])
        .filter_map(|x| x.try_into().ok())
        .chain([-3, 0, 1, 5, i64::MAX, i64::MIN])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let key = Key::new(3);
    for dtype in types() {
        let (least, most) = limits(dtype);
        for (i, &start) in ends.iter().enumerate() {
            for &end in ends.iter().skip(i % 3).step_by(3) {
                let x = key.randint(dtype.array_type([4]), start..end);
                // An empty range yields its start.
                let last = if start < end { i128::from(end) - 1 } else { start.into() };
                let fits = i128::from(start) >= least && i128::from(start) <= most && last <= most;
                match x.ty() {
                    Ok(_) => {
                        assert!(fits, "{dtype} {start}..{end} is drawn");
                        let numbers: Vec<i128> = if dtype == U64 {
                            x.to_vec::<u64>().unwrap().into_iter().map(Into::into).collect()
                        } else {
                            x.astype(I64).to_vec::<i64>().unwrap().into_iter().map(Into::into).collect()
                        };
                        let range = i128::from(start)..=last;
                        assert!(
                            numbers.iter().all(|n| range.contains(n)),
                            "{dtype} {start}..{end}: {numbers:?}"
                        );
                    }
                    Err(error) => {
                        assert!(!fits, "{dtype} {start}..{end}: {error}");
                        assert!(error.unquoted().contains("randint"), "{error}");
                    }
                }
            }
        }
    }
}

/// A key is made from 32 bits: larger seeds are errors, since truncation would give two seeds the
/// same key.
#[test]
fn keys_are_made_of_numbers_of_32_bits() {
    let key = Key::new(0);
    for n in [-1, i64::MIN, 1 << 32, i64::MAX] {
        let error = key.fold_in(n).ready().unwrap_err();
        assert!(error.unquoted().contains("uint32"), "{error}");
    }
    for wide in [Array::from(5i64), Array::from([1u64, 2])] {
        let error = key.fold_in(&wide).ready().unwrap_err();
        assert!(error.unquoted().contains("fold_in"), "{error}");
    }
    let words = |k: Key| k.data().to_vec::<u32>().unwrap();
    assert_eq!(words(key.fold_in(u32::MAX)), words(key.fold_in(Array::from(u32::MAX))));
    assert_eq!(words(key.fold_in(3)), words(key.fold_in(Array::from(3i8))));
}

#[test]
fn an_empty_dimension_has_no_position() {
    let x = Array::zeros(I32.array_type([2, 0]));
    for index in [ix![.., 0], ix![.., &Array::from(0)]] {
        for rejected in [x.slice(index.clone()), x.at(index.clone()).set(1), x.at(index.clone()).get()] {
            let error = rejected.ty().unwrap_err();
            assert!(error.unquoted().contains("dimension 1"), "{error}");
        }
    }
}

/// Steps that exceed the number of devices, and sizes near the limits of integers.
#[test]
fn steps_and_sizes_near_the_end() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let x = Array::arange(0..4).put(&mesh, p!["X"]);
    let moved = |by: atmesh::array::Permutation| {
        shard_map(&mesh, p!["X"], p!["X"], move |x: &Array| x.ppermute("X", by.clone()))
            .call(&x)
            .unwrap()
            .to_vec::<i32>()
            .unwrap()
    };
    assert_eq!(moved(Permutation::ring(i64::MAX)), moved(Permutation::ring(3)));
    assert_eq!(moved(Permutation::ring(i64::MIN)), moved(Permutation::ring(0)));
    assert_eq!(moved(Permutation::shift(i64::MAX)), [0; 4]);
    assert_eq!(moved(Permutation::shift(i64::MIN)), [0; 4]);
    for n in [usize::MAX, usize::MAX - 3, 1 << 63] {
        let auto = Mesh::auto([("X", 4)]).unwrap();
        let sharding = Sharding { mesh: auto, spec: p!["X"] };
        let blocks = atmesh::sharding::blocks(&sharding, &[n]).unwrap();
        let held: usize = blocks.iter().map(|b| b.index[0].len()).sum();
        assert_eq!((held, blocks[3].index[0].end), (n, n));
    }
    // An axis that is repeated without a check: the number of shards saturates, and is never 0.
    let giant = Mesh::without_devices([("X", 1 << 32)]).unwrap();
    let sharding = Sharding { mesh: giant, spec: p![("X", "X")] };
    assert!(sharding.shard_shape(&[8]).is_err());
}
