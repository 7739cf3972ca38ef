//! The code in the tables of the book's pages on other libraries compiles: each cell occurs in this
//! file. Text after `…` in a cell may be anything here.

#![allow(dead_code, reason = "the functions are only compiled")]
#![allow(clippy::needless_borrow, clippy::needless_borrows_for_generic_args, reason = "as in the cells")]

use atmesh::nn::AttentionOptions;
use atmesh::optim::{self, Adam, OptState};
use atmesh::plan::Machine;
use atmesh::spmd::RowRanges;
use atmesh::stablehlo::{Annotate, Options};
use atmesh::{AxisGroups, Padding, PcastTo, Precision, RaggedRows, nn, prelude::*, smap, tree};
use atmesh::{WhileOptions, custom_vjp_with, while_loop_with};
use atmesh::{set_default_flush_subnormals, set_default_matmul_precision};

fn f(x: Array) -> Array {
    x
}
fn of(x: &Array) -> Array {
    x.clone()
}

fn meshes(n: usize, x: Array, w: Array, mesh: Mesh, spec: Spec) -> Result<()> {
    let devices = atmesh::devices(n)?;
    drop(atmesh::distributed::init()?);
    Mesh::new([("X", 2), ("Y", 4)])?;
    Mesh::new([("x", 2), ("y", 4)])?;
    Mesh::auto([("X", 2), ("Y", 4)])?;
    Mesh::without_devices([("X", 2), ("Y", 4)])?;
    Mesh::of_devices(&devices, [("X", n)])?;
    let _ = (p!["X", _, ("Y", "Z")], p![_, "Y"; U: "X"], p!["x", _, ("y", "z")], p!["X", _]);
    let _ = (p!["?", _], p![_, _, "x"], p![]);
    let other = mesh.clone();
    let _ = (x.put(&mesh, p!["X"]), x.put(&mesh, spec), x.put(&other, spec), x.reshard(p!["X"]));
    let _ = (x.constrain(p!["X"]), x.constrain(spec), x.reshard(spec), w.constrain(spec));
    mesh.with_logical_axes([("batch", "data")])?;
    let _ = x.reshard(p!["batch", _]);
    println!("{}", x.visualize());
    let (k, b) = (0, x.clone());
    let _ = (type_of(&x), x.sharding()?, x.devices()?, x.shards()?, &x.shards()?[k].data);
    let host: atmesh::nd::ArrayD<f32> = x.to_ndarray()?;
    drop(host);
    let _ = b.constrain(spec);
    let sharding = x.sharding()?.expect("a sharding");
    let _ = (sharding.is_replicated(), x.sharding()?.is_some(), x.to_vec::<f32>()?);
    Ok(())
}

fn compiled(x: Array, w: Array, mesh: Mesh, in_specs: Spec, out_specs: Spec) -> Result<()> {
    let (machine, i) = (Machine::h100(), 0);
    let f = |x: &Array, w: &Array| x.dot(w);
    let _ = jit(f).call((&x, &w))?;
    let _ = jit(of).call(&x)?;
    let _ = jit(of).in_specs(p!["X"]).out_specs(p!["X"]).donate([0]);
    let f = of;
    let _ = jit(f).in_specs(p!["X"]).out_specs(p!["X"]).donate([0]);
    let compiled = jit(f).trace(&x)?.lower()?.compile()?;
    let lowered = jit(f).lower(&x)?;
    let _ = (jit(f).on(&mesh), jit(f).donate([0]), jit(f).call(&x)?, jit(f).lower(&x)?);
    let _ = jit(f).engine(EngineKind::Lockstep).engine(Threads);
    #[cfg(feature = "xla")]
    let _ = jit(f).engine(EngineKind::Xla);
    jit(f).trace(&x)?.program();
    let _ = jit(f).flush_subnormals(true);
    set_default_flush_subnormals(true);
    let _ = (lowered.collectives(), jit(f).data_movement(&x)?, compiled.report(), lowered.memory());
    assert_collectives!(lowered, AllReduce("X") x 1);
    jit(f).trace(&x)?.to_stablehlo()?.save("folder")?;
    jit(f).trace(&x)?.to_stablehlo_with(Options::default().shardings(Annotate::All))?;
    let _ = (lowered.explain(i)?, compiled.profile(x)?, lowered.plan(&machine)?, lowered.memory());
    let _ = lowered.spmd();
    let _ = shard_map(&mesh, in_specs, out_specs, f).unchecked().over("X");
    Ok(())
}

fn collectives(x: Array) -> Result<()> {
    let _ = (x.psum("X"), x.pmean("X"), x.pmax("X"), x.pmin("X"));
    let _ = x.all_gather("X", CollectiveDim::tiled(1));
    let _ = x.all_gather("X", CollectiveDim::tiled(0));
    let _ = x.psum_scatter("X", CollectiveDim::tiled(0));
    let _ = x.all_to_all("X", AllToAll::split(0).concat(1));
    let _ = x.all_to_all("X", AllToAll::split(0).concat(0));
    let _ = x.ppermute("X", [(0, 1), (1, 0)]);
    let _ = x.ppermute("X", Permutation::shift(1)).ppermute("X", Permutation::ring(1));
    let _ = (axis_index("X"), axis_size("X")?, x.pvary("X"), x.pcast("X", PcastTo::Varying));
    Ok(())
}

fn groups_and_ragged_rows(x: Array, output: Array, mesh: Mesh, rows: [Array; 4]) {
    let _ = x.psum(AxisGroups::new("X", [[0, 1], [2, 3]]));
    let _ = (x.pshuffle("X", [1, 0]), x.pswapaxes("X", 0), x.pbroadcast("X", 1));
    let [input_offsets, send_sizes, output_offsets, recv_sizes] = rows;
    let _ = x.ragged_all_to_all(
        "X",
        &output,
        &RaggedRows { input_offsets, send_sizes, output_offsets, recv_sizes },
    );
    let f = of;
    let _ = smap(&mesh, "X", 0, 0, f);
}

fn on_threads(mesh: Mesh, x: f32) {
    use atmesh::nd::{ArrayView1, ArrayView2};
    let _ = spmd(&mesh, p!["X", _], p!["X", _], move |dev: &Device, block: ArrayView2<f32>| {
        let _ = (dev.axis_index("X")?, dev.axis_size("X")?, dev.psum_scalar(x, "X")?);
        let (to, from) = (dev.neighbor_periodic("X", 1)?, dev.neighbor_periodic("X", -1)?);
        let x = &block;
        dev.send(to, &x)?;
        let received: atmesh::nd::Array2<f32> = dev.recv(from)?;
        dev.barrier("X")?;
        let n: &[usize] = &[1, 1];
        let rows = RowRanges { input_offsets: n, send_sizes: n, output_offsets: n, recv_sizes: n };
        let _ = dev.ragged_all_to_all(&received, received.clone(), "X", rows)?;
        let _ = dev.pbroadcast(&received, "X", 0)?;
        let _ = dev.all_gather(&received, "X", 0)?;
        let _ = dev.all_to_all(&received, "X", AllToAll::split(0).concat(0))?;
        let sum = dev.psum_scatter(&received, "X", 0)?;
        Ok(sum)
    });
    let _ = |x: ArrayView1<f32>| x.len();
}

fn products(x: Array, y: Array, w: Array, n: usize) {
    let _ = einsum_to("ij,jk->ik", [&x, &w], p!["X"]);
    let _ = (x.ravel(), x.reshape([8, n]), x.matmul(&w), x.dot(&w), x.dot_to(&w, p![]));
    let _ = (x.matmul_to(&w, p![]), x.reshape_to([8], p![]), x.sum_to(0, p![]));
    let _ = x.matmul_with(&w, DotOptions::default().accum_dtype(F32));
    let _ = x.matmul_with(&w, DotOptions::default().precision(Precision::Default));
    set_default_matmul_precision(Precision::High);
    let _ = (x.tensordot(&y, 2), x.inner(&y), x.outer(&y), x.vdot(&y), x.kron(&y));
    let window = || WindowOptions::default().strides([2, 2]);
    let _ = x.conv_with(
        &w,
        ConvOptions::default().strides([2, 2]).padding(Padding::Same).layout("NHWC", "HWIO", "NHWC"),
    );
    let _ = ConvOptions::default().base_dilation([2]).dilation([2]).groups(2).batch_groups(2);
    let _ = x.conv_transpose_with(&w, ConvOptions::default());
    let _ = x.window_max_with([2, 2], WindowOptions::default().strides([2, 2]));
    let _ = (x.window_sum([2]), x.window_prod([2]), x.window_min([2]), x.window_and([2]), x.window_or([2]));
    let _ = (x.max_pool([2, 2]), x.avg_pool([2, 2]), window().dims([1, 2]));
    let _ = WindowOptions::default().dims([1, 2]);
}

fn transforms(x: Array, w: Array, xs: Array, v: Array, t: Array, spec: Spec) {
    let params = x.clone();
    let _ = auto_axes(&x, p!["X"], f);
    let _ = explicit_axes(&x, p!["X"], f);
    let _ = vmap_with((&xs, &w), |(x, w)| x.dot(w), VmapOptions::default().in_dims([Some(0), None]));
    let _ = vmap(&xs, |x| x.dot(&w));
    let _ = while_loop(&x, |x| x.sum(..).lt(1), |x| 2 * x);
    let _ = while_loop_with(&x, |x| x.lt(1), |x| 2 * x, WhileOptions::default().max_steps(8));
    let f = of;
    let _ = grad(&x, |x| f(&x));
    let _ = value_and_grad(&params, |p| p.sum(..));
    let _ = checkpoint(&x, |x| f(&x));
    let _ = checkpoint_with(&x, CheckpointPolicy::SaveAllButGathers, |x| f(&x));
    let _ = CheckpointPolicy::named(["h"]);
    let g = |x: Array| x.square();
    let f = g;
    let _ = (vjp(&x, f), jvp(&x, &t, f), jacrev(&x, f), jacfwd(&x, f), linearize(&x, f));
    let _ = jacobian(&x, f);
    let (_, push) = linearize(&x, f);
    let _ = push.call(t);
    let rule = |x: Array, t: Array| (x.square(), 2 * x * t);
    let _ = custom_jvp(&x, f, rule);
    let _ = scan(&x, &xs, |carry, x| (carry + x, ()));
    let f = |x: Array| x.square().sum(..);
    let _ = (hessian(&x, f), hvp(&x, &v, f), spec);
}

fn rules_and_loops(x: Array, xs: Array, p: Array, i: Array, n: i32, init: Array) {
    let fwd = |x: Array| (x.exp(), x.exp());
    let bwd = |e: Array, t: Array| e * t;
    let _ = custom_vjp(&x, fwd, bwd);
    let f = |x: Array| x.exp();
    let _ = custom_vjp_with(&x, f, fwd, bwd);
    let _ = fori_loop(0..n, &x, |i, x| x + i);
    let (f, g) = (of, of);
    let _ = cond(p, || f(&x), || g(&x));
    let _ = switch(i, &[&|| f(&x), &|| g(&x)]);
    let _ = map(&xs, |x| f(&x));
    let _ = map_with(&xs, |x| f(&x), MapOptions::default().batch_size(8));
    let xs = &xs;
    let _ = scan(init, xs, |carry, x| (carry + &x, x));
    let _ = associative_scan(xs, 0, |earlier, later| earlier + later);
    let _ = named_scope("layer1", || f(&x));
    debug_print!("{}", x);
}

fn indexing(x: Array, update: Array, ids: Array, i: Array, mask: Array, counts: Array) -> Result<()> {
    let (n, size, d, f) = (8, 4, 0, of);
    let y = &update;
    let _ = x.at(ix![1..-1]).set(y);
    let _ = x.slice(ix![1..-1]);
    let _ = (x.slice(ix![&i]), x.slice(ix![&ids]), x.slice(ix![&i..; n]));
    let _ = x.at(ix![&ids]).add(y);
    let _ = x.at(ix![&ids]).mode(IndexMode::Fill).set(y);
    let _ = (x.take(&ids, 0), x.take_along_axis(&ids, 1), x.segment_sum(&ids, 8), ids.bincount(8));
    let _ = (x.histogram(8, 0.0..1.0), x.argmax(0), x.argmin(..), x.flatnonzero(3), x.unique(3));
    let (w, sizes) = (y.clone(), ids.clone());
    let _ = x.ragged_dot(&w, &sizes);
    let (u, sizes, dims) = (y.clone(), [1], GatherDims { offset_dims: vec![], ..GatherDims::default() });
    let _ = x.gather(&i, &GatherDims { offset_dims: vec![], ..GatherDims::default() }, sizes);
    let _ = x.scatter_add(&i, &u, &dims);
    let _ = (mask.select(&x, 0), mask.flatnonzero(size), mask.count_nonzero(..));
    let _ = (x.abs().sum(d), x.abs().max(d));
    let _ = x.at(ix![&i]).set(f(&x.at(ix![&i]).get()));
    let _ = x.at(ix![5]).out_sharding(p![]).get();
    let _ = (x.repeat(3, 0), x.tile([3]), x.repeat_by(&counts, n, 0));
    let _ = (x.split_equal(4, 0), x.split([2, 3, n - 5], 0), x.dim_size(0), x.shape()?.rank());
    let _ = (concat([&x, &y], 0), stack([&x, &y], 0), x.roll(1, 0), x.shift(1, 0, 0.0), x.diff(2, 0));
    let _ = (x.swapaxes(0, 1), x.moveaxis(0, -1), x.pad(0.0, [(1, 1, 0), (0, 2, 0)]));
    let _ = x.pad_with([(1, 1), (0, 2)], PadMode::Edge);
    Ok(())
}

fn rows_of_arrays(x: Array, y: Array, a: Array, v: Array, k: Array, key: Key) {
    let _ = (x.sort(0), x.argsort(0), sort_by_keys([&k, &x], 1, 0), x.top_k(3, -1));
    let _ = (x.cumsum(0), x.cummax_reverse(0), key.permutation(&x, 0));
    let _ = (x.fft(0), x.rfftn(2), x.irfft(-1, 8));
    let z = x.complex(&y);
    let _ = (z.real(), z.conj(), z.angle(), a.searchsorted(&v, true));
    let (xp, fp) = (a.clone(), v.clone());
    let _ = (x.interp(&xp, &fp), x.median(0), x.quantile(0.9, 0), x.percentile(90.0, 0));
    let _ = x.gradient(1.0, 0);
    let h = 0.5;
    let p = a.clone();
    let _ = (x.gradient(h, 0), x.polyval(&p), x.cross(&y, -1), x.convolve(&v, ConvolveMode::Same));
    let w = v.clone();
    let _ = (x.convolve(&w, ConvolveMode::Same), x.average(&w, 0), x.cov(), x.corrcoef());
    let _ = (x.nansum(0), x.nanprod(0), x.nanmin(0), x.nanmax(0), x.nanmean(0), x.nanvar(0), x.nanstd(0));
}

#[cfg(feature = "linalg")]
fn linear_algebra(a: Array, b: Array) {
    let _ = (a.solve(&b), a.inv(), a.det(), a.slogdet(), a.matrix_power(3));
    let _ = (a.cholesky(), a.lu(), a.qr(false), a.eigh(), a.eigvalsh(), a.svd(true), a.svdvals());
    let _ = a.triangular_solve(&b, TriangularOptions::default().left_side().lower());
    let _ = (a.pinv(None), a.matrix_rank(None), a.lstsq(&b, None), a.expm());
}

fn elements(x: Array, y: Array, a: Array, b: Array, c: Array, values: Array) -> Result<()> {
    let k = 1;
    let _ = [BF16, F16, F32, F64];
    let _ = (x.logistic(), x.relu(), a.logical_and(&b), b.select(&x, 0));
    {
        let (a, b) = (&a, &b);
        let _ = (!a, a & b, c.select(a, b));
    }
    let doubled = |x: Array| 2 * x;
    let _ = (
        &x * 2.0,
        doubled(x.clone()),
        x.floor_divide(&y),
        x.remainder(&y),
        x.rint(),
        x.round(),
        x.astype(F32),
    );
    let _ = (x.isclose(&y), x.allclose(&y)?, x.array_equal(&y)?, x.isclose(&y).all(..));
    let _ = (x.nan_to_num(), x.frexp(), x.bitcast(U8), x.is_nan(), x.is_inf(), x.isin(&values));
    let _ = (x.count_nonzero(0), x.norm(..), x.diag(k), x.diagonal(k), x.trace(k), x.tril(0), x.triu(0));
    let _ = (Array::eye([3, 3], 0), Array::tri([3, 3], 0), meshgrid([&x, &y], GridIndexing::Xy));
    let _ = (Array::indices([2, 3]), Array::linspace(0.0, 1.0, 5, true));
    let _ = Array::logspace(0.0, 2.0, 5, true);
    Ok(())
}

fn arrays_from_parts(mesh: Mesh, n: usize, v: f32, spec: Spec, pieces: Vec<Array>) -> Result<()> {
    let (sharding, shape) = (Sharding::new(&mesh, spec, &[n])?, [n]);
    let _ = Array::full(F32.array_type([n]).on(&mesh, spec), v);
    let _ = mesh.local_devices();
    let x = Array::from_shards(shape, &sharding, pieces)?;
    let _ = Array::from_process_local_data(shape, &sharding, x.process_allgather())?;
    let _ = Array::from_fn(shape, &sharding, |_| Array::zeros([1]))?;
    let _ = tree::put(&vec![Array::zeros([2])], &mesh, spec);
    Ok(())
}

#[derive(Clone, Tree)]
struct Model {
    w: Array,
}

fn networks(ids: Array, q: Array, k: Array, v: Array, x: Array, a: Array, b: Array) {
    let key = Key::new(0);
    let _ = (nn::embed(&q, &ids), nn::layer_norm(&x, &a, &b), nn::rms_norm(&x, &a), nn::glu(&x, -1));
    let _ = (nn::batch_norm(&x, &a, &b, &nn::BatchStats::new(4), true), nn::dropout(&key, 0.1, &x));
    let _ = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal());
    let _ = (nn::init::he_normal(&key, [8, 4]), nn::huber_loss(&x, &a, 1.0), nn::l2_loss(&x, &a));
    let _ = nn::sigmoid_binary_cross_entropy(&x, &a);
    let _ = nn::softmax_cross_entropy_with_integer_labels(&x, &ids);
    let f = |a: &Array, b: &Array| a + b;
    let _ = tree::map2(&a, &b, f);
    let let_keys = || {
        let [a, b] = key.split();
        (a.normal([8]), a.gamma([8], 2.0), b.choice(&x, [3]))
    };
    let _ = let_keys();
}

fn from_torch(x: Array, y: Array, w: Array, ids: Array, table: Array, scale: Array, bias: Array) {
    let (key, labels, model) = (Key::new(0), &ids, x.clone());
    let [a, b] = key.split();
    let (a, b) = (a.uniform([2]), b.normal([2, 3]));
    let _ = (x.dot(&w) + &b, a, key.normal([2, 3]), key.uniform([2]), (&x - &y).square().mean(..));
    let _ = (nn::embed(&table, &ids), nn::layer_norm(&x, &scale, &bias), nn::dropout(&key, 0.1, &x));
    let _ = (x.relu(), x.logistic(), x.softmax(-1), value_and_grad(&model, |model| model.sum(..)));
    let _ = nn::softmax_cross_entropy_with_integer_labels(&x, &labels).mean(..);
    let _ = nn::sigmoid_binary_cross_entropy(&x, &y).mean(..);
}

fn optimizers(params: Model, g: Model, state: OptState, updates: Model, xs: Array) -> Result<()> {
    let opt = optim::adamw_with(1e-3, Adam::default().b2(0.99), 0.1);
    let _ = optim::adamw(1e-3);
    let _ = (opt.init(&params)?, opt.update(&g, &state, &params), opt.step(&params, &g, &state));
    let _ = (optim::apply_updates(&params, &updates), optim::global_norm(&g));
    let (a, b) = (optim::adam(1e-3), optim::sgd(0.1));
    let _ = optim::chain([a, b]);
    let _ = optim::masked(opt.clone(), |_, ty| ty.rank() > 1);
    let masked = |opt| optim::masked(opt, |path, ty| path != "b" && ty.rank() > 1);
    let _ = masked(opt.clone());
    let _ = optim::partition([("*.lora_*", opt), ("*", optim::set_to_zero())]);
    let _ = optim::warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000, 0.0);
    let f = |model: Model, x: Array| x.dot(&model.w).sum(..);
    let _ = optim::accumulate(&params, xs, f);
    Ok(())
}

fn packages() {
    let _ = custom_op("name", "ij,jk->ik", |ins, outs| outs[0].view::<f32>().fill(ins.len() as f32))
        .over("i")
        .derivative(|ins, outs, cts| vec![&cts[0] * &ins[0], &outs[0] * &ins[1]]);
}

fn as_in_pytorch_and_numpy(x: Array, y: Array, a: Array, c: Array, i: Array, n: usize) -> Result<()> {
    Mesh::new([("X", 8)])?;
    let _ = (p!["X", "Y"], p![("X", "Y"), _], p![; U: "X"]);
    let (v, b) = (y.clone(), y.clone());
    let _ = (x.astype(BF16), x.item::<f32>()?, x.reshape([2, 3]), x.reshape([2, n]), x.transpose([1, 0]));
    let _ = (x.expand_dims(0), x.slice(ix![.., 0]), x.slice(ix![..; 2]), x.t(), x.clamp(0.0, 1.0));
    let _ = (x.dtype()?, x.size()?, x.sum(Dims::keep(0)), x.at(ix![&i]).set(v));
    let _ = (x.matmul(&y), einsum("ij,jk->ik", [&x, &y]), x.dot(&y));
    let params = vec![x.clone()];
    let like = params.clone();
    tree::save_npy(&params, "folder")?;
    let _ = tree::load_npy(&like, "folder")?;
    let v = b.clone();
    let _ = x + v;
    let larger = |a: &Array, b: &Array| a.maximum(b);
    let _ = (larger(&a, &b), c);
    let _ = (Array::zeros([2, 3]), Array::ones([2]), Array::full([2], 7), Array::arange(0..5));
    Ok(())
}

fn debugging(x: Array, row: usize) -> Result<()> {
    let f = jit(of);
    let _ = (f.lower(&x)?.collectives(), f.explain(&x, row)?, f.lower(&x)?.memory(), x.is_finite());
    Ok(())
}

#[cfg(feature = "typed")]
mod with_types {
    use atmesh::prelude::{Array, Dims, ix, jit, p};
    use atmesh::typed::prelude::*;

    mesh! { struct Pod { X: 8 } }

    fn untyped(x: Array) {
        let _ = (x.sum(1), x.softmax(-1), x.mean(Dims::keep(1)), x.transpose([1, 0]), x.psum("X"));
        let _ = (x.reshard(p!["X", _]), x.reshape([4, 32]), x.slice(ix![.., 0..4]));
        let _ = jit(|x: &Array| x.relu());
    }

    fn typed(x: T![f32; 8, 16]) {
        let _ = (x.sum(D1), x.softmax(D1), x.mean(keep(D1)), x.transpose((D1, D0)), x.t());
        let _: T![f32; 8@X, 16] = x.reshard(P![X, _]);
        let _ = x.reshape::<S![4, 32]>();
        let _: T![f32; 8, 4] = x.slice::<N![0], N![4], _>(D1);
        let _ = jit(|x: T![f32; 8@X]| x.relu());
    }

    fn on_a_device(x: T![f32; 1; V: X]) {
        let _ = x.psum(X);
    }

    fn splits<B: Size, D: ProductIs<H, K>, H: SplitsOver<X>, K: Size>(x: T![f32; B, D@X]) {
        let _: T![f32; B, H@X, K] = x.split_dim::<H, K, _>(D1);
    }

    fn concatenates<A: AddSize<B, Out = C>, B: Size, C: Size>() {}
    fn merges<A: MulSize<B, Out = C>, B: Size, C: Size>() {}

    fn reshapes<B: Size>()
    where
        S![B, 6]: ReshapesTo<S![B, 2, 3]>,
    {
    }
}

/// Removes white space, and the commas that rustfmt adds at ends of lists.
fn dense(code: &str) -> String {
    let dense: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    dense.replace(",)", ")").replace(",]", "]").replace(",}", "}")
}

/// Returns true if the code has the parts of the cell in their order, close to each other.
fn has(code: &str, cell: &str) -> bool {
    const MAX_GAP: usize = 200;
    let mut parts = cell.split('…').filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return true };
    let rest: Vec<&str> = parts.collect();
    code.match_indices(first).any(|(at, _)| {
        let mut end = at + first.len();
        rest.iter().all(|part| {
            let found = code[end..].find(part).filter(|gap| *gap <= MAX_GAP);
            found.inspect(|gap| end += gap + part.len()).is_some()
        })
    })
}

/// Returns the pieces of code in one column of a page's tables.
fn column(page: &str, column: usize) -> Vec<String> {
    let mut found = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let row = row.replace("\\|", "¦");
        let cell = row.split('|').nth(column).unwrap_or_default();
        found.extend(cell.split('`').skip(1).step_by(2).map(|code| code.replace('¦', "|")));
    }
    found
}

#[test]
fn code_in_tables_compiles() {
    // notation and names of other libraries
    const OTHER: [&str; 13] = [
        "8@X",
        "{U:X}",
        "{V:X}",
        "7 / 2",
        "3.5",
        "-3 % 4",
        "round(2.5)",
        "unreduced={\"X\"}",
        "reduced={\"X\"}",
        "device_put",
        "ATMESH_ENGINE",
        "Xla",
        "tracing",
    ];
    let source = include_str!("book_tables.rs").split("/// Removes white space").next().unwrap();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = dense(&source.lines().filter(is_code).collect::<Vec<_>>().join("\n"));
    let pages: [(&str, &[usize]); 8] = [
        (include_str!("../../book/src/jax.md"), &[2]),
        (include_str!("../../book/src/reactant.md"), &[2]),
        (include_str!("../../book/src/pytorch.md"), &[2]),
        (include_str!("../../book/src/numpy.md"), &[2]),
        (include_str!("../../book/src/mpi.md"), &[2, 3]),
        (include_str!("../../book/src/debugging.md"), &[2]),
        (include_str!("../../book/src/collectives.md"), &[5]),
        (include_str!("../../book/src/typed.md"), &[1, 2]),
    ];
    let cells = pages.iter().flat_map(|(page, columns)| columns.iter().flat_map(|at| column(page, *at)));
    let cells: Vec<String> = cells.collect();
    assert!(cells.len() > 250, "{} cells", cells.len());
    let missing = cells.iter().filter(|cell| !OTHER.contains(&&***cell) && !has(&code, &dense(cell)));
    let missing: Vec<&String> = missing.collect();
    assert!(missing.is_empty(), "write code in which these cells occur: {missing:#?}");
}

#[test]
fn cells_are_searched_as_code() {
    let row = "| `a` | `f(x, \\|x\\| …)`, `g` | - |";
    assert_eq!(column(row, 2), ["f(x, |x| …)", "g"]);
    let code = dense("f(\n x,\n |x| x + 1,\n)");
    assert!(has(&code, &dense("f(x, |x| …)")) && !has(&code, &dense("f(x, |y| …)")));
}
