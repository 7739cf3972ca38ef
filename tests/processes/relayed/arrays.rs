//! Programs on arrays in several processes. Each process also runs them alone, on arrays on no mesh
//! and by the lock-step engine, and compares.

use atmesh::distributed::{Cluster, init};
use atmesh::prelude::*;
use std::fmt::Debug;

fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

/// Compares an array of several processes with that of one: integers exactly, floats within 2e-6 of
/// the maximum.
pub(crate) fn compare(name: &str, many: &Array, one: &Array) -> Result<()> {
    let (a, b) = (many.to_ndarray_f32()?, one.to_ndarray_f32()?);
    assert_eq!(many.shape()?, one.shape()?, "{name}");
    let scale = b.iter().fold(1e-30f32, |max, x| max.max(x.abs()));
    let tolerance = if many.dtype()?.is_inexact() { 2e-6 * scale } else { 0.0 };
    let close = |pair: (&f32, &f32)| (pair.0 - pair.1).abs() <= tolerance;
    assert!(a.len() == b.len() && a.iter().zip(&b).all(close), "{name}: {a:?} {b:?}");
    println!("{name}: {} elements", a.len());
    Ok(())
}

trait ToF32 {
    fn to_ndarray_f32(&self) -> Result<Vec<f32>>;
}
impl ToF32 for Array {
    #[track_caller]
    fn to_ndarray_f32(&self) -> Result<Vec<f32>> {
        self.process_allgather().astype(F32).to_vec()
    }
}

pub(crate) fn mesh(cluster: &Cluster) -> Result<Mesh> {
    Mesh::new([("X", cluster.devices())])
}

/// README's layer and its gradient, with a sharded contraction.
pub(crate) fn layers() -> Result<()> {
    let cluster = init()?;
    let mesh = mesh(&cluster)?;
    let [_, xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([32]), wk.normal([32, 4]), bk.normal([4]));
    let on = |x: &Array| x.put(&mesh, p!["X"]);
    let one = jit(layer).call((&x, &w, &b))?;
    // a contraction over a sharded dimension: its result is replicated, and read without a message
    let rows = jit(|x: &Array, w: &Array, b: &Array| layer(&x.reshard(p![]), w, b));
    let y = rows.call((&on(&x), &w, &b))?;
    assert!(y.is_local()?);
    compare("layer", &y, &one)?;
    let gradient = |x: &Array, w: &Array, b: &Array| grad(x, |x| layer(&x.reshard(p![]), w, b).sum(..));
    let alone = grad(&x, |x| layer(&x, &w, &b).sum(..));
    compare("gradient", &jit(gradient).call((&on(&x), &w, &b))?, &alone)?;
    // results stay on the devices, and are read twice
    let double = jit(|x: &Array| x * 2.0);
    let four = double.call(double.call(on(&x))?)?;
    for name in ["twice", "twice, read again"] {
        compare(name, &four, &(&x * 4.0))?;
    }
    let integers = |x: &Array| (x * 1000.0).astype(I32);
    compare("integers", &jit(integers).call(on(&x))?, &integers(&x))?;
    cluster.barrier("all results are right")
}

/// Returns the part of a matrix with these indices.
fn part(x: &Array, index: &[std::ops::Range<usize>]) -> Array {
    x.slice(ix![index[0].start..index[0].end, index[1].start..index[1].end])
}

/// Arrays that are placed, created and read in all ways.
pub(crate) fn own_blocks() -> Result<()> {
    let cluster = init()?;
    let (n, own) = (cluster.devices(), cluster.local_devices());
    let mesh = Mesh::new([("X", n / 2), ("Y", 2)])?;
    let host = Array::arange(0..(8 * n) as i32).reshape([2 * n, 4]);
    let all = [p!["X", "Y"], p!["Y"], p![], p![_, "X"], p![_, "Y"], p!["Y", "X"]];
    // fewer shardings where each process compiles alone
    for spec in &all[..if cluster.processes() > 2 { 2 } else { all.len() }] {
        let spec = *spec;
        let x = host.put(&mesh, spec);
        let shards = x.shards()?;
        assert_eq!(shards.len(), own);
        for shard in &shards {
            assert_eq!(shard.device.process(), cluster.process());
            let expected = part(&host, &shard.index);
            assert_eq!(shard.data.to_vec::<i32>()?, expected.to_vec::<i32>()?, "{spec}");
        }
        compare(&format!("put {spec}"), &x, &host)?;
        assert!(x.allclose(&host)? && x.array_equal(&host)?);
        assert_eq!(x.view::<i32>()?[..], host.to_vec::<i32>()?);
        let sharding = Sharding::new(&mesh, spec, &[2 * n, 4])?;
        let mut calls = 0;
        let y = Array::from_fn([2 * n, 4], &sharding, |index| {
            calls += 1;
            part(&host, index)
        })?;
        assert!(calls <= own);
        compare(&format!("from_fn {spec}"), &y, &host)?;
        let z = Array::from_shards([2 * n, 4], &sharding, shards.iter().map(|s| s.data.clone()))?;
        compare(&format!("from_shards {spec}"), &z, &host)?;
        // moved by a program, and by another mesh
        compare("moved", &y.put(&mesh, p!["X"]), &host)?;
        compare("moved to another mesh", &y.put(&Mesh::new([("Z", n)])?, p!["Z"]), &host)?;
        compare("added", &(&y + &z), &(&host * 2))?;
    }
    let ty = F32.array_type([n, 2]).on(&mesh, p!["X"]);
    compare("zeros", &Array::zeros(ty.clone()), &Array::zeros([n, 2]))?;
    compare("full", &Array::full(ty.clone(), 2.5), &Array::full([n, 2], 2.5))?;
    compare("iota", &Array::iota(ty.clone(), 0), &Array::iota([n, 2], 0))?;
    compare("normal", &Key::new(3).normal(ty), &Key::new(3).normal([n, 2]))?;
    cluster.barrier("all results are right")
}

/// Process 1 reads an array that is on all processes, and the others do not.
pub(crate) fn one_read_more() -> Result<()> {
    let cluster = init()?;
    let x = Array::ones([6]).put(&mesh(&cluster)?, p!["X"]);
    let y = jit(|x: &Array| x * 2.0).call(&x)?;
    println!("computed");
    if cluster.process() == 1 {
        show(y.to_vec::<f32>()?);
    }
    cluster.barrier("the end")
}

fn show(values: impl Debug) {
    println!("{values:?}");
}
