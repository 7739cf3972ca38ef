//! Optimizers and schedules: optax's numbers (`optax.json`, written by `optax_numbers.py`), sharding, and
//! invalid input.

use crate::error_checks::Unquoted as _;
use atmesh::optim::{self, Adafactor, Adam, ExponentialDecay, Lion, LossScale, OptState, Optimizer};
use atmesh::optim::{RmsProp, Schedule, Sgd, WeightDecay};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, ErrorKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Clone, Debug, Tree)]
struct Params<T = Array> {
    b: T,
    s: T,
    w: T,
}

static OPTAX: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("optax.json")).expect("the file of numbers is JSON"));

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

/// The tree whose elements are `f` of the index of the element.
fn params(dtype: DType, f: impl Fn(f64) -> f64) -> Params {
    let part = |from: usize, shape: &[usize]| {
        let n: usize = shape.iter().product();
        let all: Vec<f64> = (from..from + n).map(|k| f(k as f64)).collect();
        Array::from(all).reshape(shape.to_vec()).astype(dtype)
    };
    Params { b: part(0, &[3]), s: part(3, &[]), w: part(4, &[4, 3]) }
}
fn numbers(p: &Params) -> Vec<f64> {
    tree::leaves(p).iter().flat_map(|a| a.astype(F64).to_vec::<f64>().unwrap()).collect()
}

fn gradients(waves: &Params, p: &Params) -> Params {
    tree::map2(waves, p, |c, p| c + 0.1 * p)
}

/// The parameters after 3 and after 20 steps.
fn run(opt: &Optimizer, dtype: DType, broken: bool) -> Result<Vec<Vec<f64>>> {
    let step = jit(|p: &Params, s: &OptState, waves: &Params, bad: &Array| {
        let mut g = gradients(waves, p);
        g.b += bad;
        opt.step(p, &g, s)
    });
    let mut p = params(dtype, |k| (k + 1.0).sin());
    let mut state = opt.init(&p)?;
    let mut out = Vec::new();
    for t in 0..20 {
        let waves = params(dtype, |k| (0.7 * k + 0.3 * t as f64).cos());
        let mut bad = Array::zeros(dtype.array_type([3]));
        if broken && [1, 7, 8].contains(&t) {
            bad = bad.at(ix![1]).set(f64::NAN);
        }
        if broken && t == 9 {
            let own = gradients(&waves, &p).b.to_vec::<f64>();
            bad = bad.at(ix![1]).set(2.0 - own?[1]);
        }
        (p, state) = step.call((&p, &state, &waves, &bad))?;
        if [2, 19].contains(&t) {
            out.push(numbers(&p));
        }
    }
    assert_eq!(state.count.item::<i32>()?, 20);
    Ok(out)
}

fn matrices(_: &str, ty: &ArrayType) -> bool {
    ty.rank() >= 2
}

fn optimizers() -> Vec<(&'static str, Optimizer)> {
    let rate = 0.01;
    let decay = |rate| WeightDecay::new(rate).mask(matrices);
    let warmup = optim::warmup_cosine_decay_schedule(0.0, 0.02, 5, 15, 0.002);
    let adam = Adam::default();
    let rms = RmsProp::default();
    vec![
        ("sgd", optim::sgd(rate)),
        ("sgd_momentum", optim::sgd_with(rate, Sgd::default().momentum(0.9))),
        ("sgd_nesterov", optim::sgd_with(rate, Sgd::default().momentum(0.9).nesterov())),
        ("adam", optim::adam(rate)),
        ("adam_options", optim::adam_with(rate, adam.b1(0.8).b2(0.95).eps(1e-6).eps_root(1e-5))),
        ("nadam", optim::adam_with(rate, adam.nesterov())),
        ("adamw", optim::adamw_with(rate, adam, decay(0.1))),
        ("adamw_schedule", optim::adamw(warmup)),
        ("lion", optim::lion_with(rate, Lion::default(), 1e-3)),
        ("rmsprop", optim::rmsprop(rate)),
        (
            "rmsprop_momentum",
            optim::rmsprop_with(
                rate,
                rms.decay(0.8).initial_scale(1.0).eps_in_sqrt(false).momentum(0.9).nesterov(),
            ),
        ),
        ("rmsprop_centered", optim::rmsprop_with(rate, rms.centered().eps(1e-3).bias_correction())),
        ("lamb", optim::lamb_with(rate, adam.eps(1e-6), 0.01)),
        ("adafactor", optim::adafactor_with(rate, Adafactor::default().min_dim_size_to_factor(2))),
        (
            "adafactor_whole",
            optim::adafactor_with(rate, Adafactor::default().momentum(0.9).weight_decay(0.01)),
        ),
        ("clip", optim::chain([optim::clip(0.5), optim::sgd(rate)])),
        ("clip_by_global_norm", optim::clip_by_global_norm(1.0).then(optim::sgd(rate))),
        ("clip_by_block_rms", optim::clip_by_block_rms(0.3).then(optim::sgd(rate))),
        ("add_decayed_weights", optim::add_decayed_weights_with(0.2, matrices).then(optim::sgd(rate))),
        ("ema", optim::ema(0.9, true).then(optim::sgd(rate))),
        ("ema_twice", optim::chain([optim::ema(0.9, false), optim::ema(0.5, true), optim::scale(-0.01)])),
        ("masked", optim::masked(optim::scale_by_adam(), matrices).then(optim::scale(-0.01))),
        (
            "partition",
            optim::partition([("b", optim::sgd(0.1)), ("s", optim::set_to_zero()), ("*", optim::adam(rate))]),
        ),
        (
            "scale_by_schedule",
            optim::scale_by_lion(0.9, 0.99)
                .then(optim::scale_by_schedule(optim::linear_schedule(-0.1, -0.01, 10))),
        ),
        ("apply_if_finite", optim::apply_if_finite(optim::adam(optim::exponential_decay(0.01, 4, 0.5)), 2)),
    ]
}

fn schedules() -> Vec<(&'static str, Schedule)> {
    let decay = ExponentialDecay::default();
    vec![
        ("constant", optim::constant_schedule(0.3)),
        ("linear", optim::linear_schedule(1.0, 0.1, 10)),
        ("polynomial", optim::polynomial_schedule(1.0, 0.1, 2.5, 12)),
        ("cosine", optim::cosine_decay_schedule(2.0, 10, 0.1)),
        ("warmup_cosine", optim::warmup_cosine_decay_schedule(0.0, 0.02, 5, 15, 0.002)),
        ("exponential", optim::exponential_decay(1.0, 4, 0.5)),
        (
            "exponential_staircase",
            optim::exponential_decay_with(1.0, 4, 0.5, decay.begin(3).staircase().end(0.2)),
        ),
        ("warmup_exponential", optim::warmup_exponential_decay_schedule(0.0, 1.0, 5, 4, 0.5, decay)),
        ("piecewise", optim::piecewise_constant_schedule(1.0, [(5, 0.5), (10, 0.1)])),
        (
            "joined",
            optim::join_schedules(
                [
                    optim::linear_schedule(0.0, 1.0, 4),
                    optim::cosine_decay_schedule(1.0, 8, 0.0),
                    optim::constant_schedule(0.25),
                ],
                [4, 14],
            ),
        ),
    ]
}

fn assert_near(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let worst = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(got.len() == want.len() && worst <= tolerance, "{name} differs by {worst:e}: {got:?} {want:?}");
}

#[test]
fn optimizers_have_the_numbers_of_optax() -> Result<()> {
    let want = OPTAX["optimizers"].as_object().expect("an object");
    let all = optimizers();
    assert_eq!(all.len(), want.len());
    for (name, opt) in all {
        let got = run(&opt, F64, name == "apply_if_finite")?;
        for (got, want) in got.iter().zip(want[name].as_array().expect("a list")) {
            assert_near(name, got, &floats(want), 1e-6);
        }
    }
    Ok(())
}

#[test]
fn float32_has_the_numbers_of_optax_too() -> Result<()> {
    for (name, opt) in optimizers() {
        // an update of the sign of 0 or of a value near 0 is another one in float32
        if !["adam", "adamw", "sgd_nesterov", "rmsprop", "lamb", "adafactor", "clip_by_global_norm"]
            .contains(&name)
        {
            continue;
        }
        let got = run(&opt, F32, false)?;
        assert_near(name, &got[1], &floats(&OPTAX["optimizers"][name][1]), 2e-6);
    }
    Ok(())
}

#[test]
fn schedules_have_the_numbers_of_optax() -> Result<()> {
    let want = OPTAX["schedules"].as_object().expect("an object");
    let all = schedules();
    assert_eq!(all.len(), want.len());
    for (name, schedule) in all {
        let got: Vec<f64> =
            (0..20).map(|t| schedule.at(t).item::<f32>().map(f64::from)).collect::<Result<_>>()?;
        assert_near(name, &got, &floats(&want[name]), 1e-6);
        // also for many counts at the same time, in a program
        let at = jit(|counts: &Array| schedule.at(counts)).call(Array::arange(0..20))?;
        let got: Vec<f64> = at.to_vec::<f32>()?.into_iter().map(f64::from).collect();
        assert_near(name, &got, &floats(&want[name]), 1e-6);
    }
    Ok(())
}

fn f32_bits(p: &impl Tree) -> Vec<Vec<u32>> {
    let bits = |a: &Array| a.astype(F32).to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
    tree::leaves(p).iter().map(bits).collect()
}

#[test]
fn a_sharded_step_is_the_unsharded_one() -> Result<()> {
    let meshes = [Mesh::new([("X", 2), ("Y", 2)])?, Mesh::auto([("X", 2), ("Y", 2)])?];
    for (name, opt) in optimizers() {
        let step = jit(|p: &Params, s: &OptState, g: &Params| opt.step(p, g, s)).donate([0, 1]);
        let start = params(F32, |k| (k + 1.0).sin());
        let g = params(F32, |k| (0.7 * k).cos());
        let (mut p, mut state) = (start.clone(), opt.init(&start)?);
        for _ in 0..2 {
            (p, state) = step.call((p, state, &g))?;
        }
        // these transforms sum over elements, in another order if these are sharded
        let sums = ["lamb", "adafactor", "adafactor_whole", "clip_by_global_norm", "clip_by_block_rms"];
        for mesh in &meshes {
            let specs = Params { b: p![], s: p![], w: p!["X", _] };
            let (start, g) = (params(F32, |k| (k + 1.0).sin()), tree::put(&g, mesh, specs.clone()));
            let mut q = tree::put(&start, mesh, specs);
            let mut other = opt.init(&q)?;
            let types = (type_of(&q), type_of(&other));
            for _ in 0..2 {
                (q, other) = step.call((q, other, &g))?;
            }
            assert_eq!(types, (type_of(&q), type_of(&other)), "{name}");
            if sums.contains(&name) {
                assert_near(name, &numbers(&q), &numbers(&p), 1e-6);
            } else {
                assert_eq!((f32_bits(&q), f32_bits(&other)), (f32_bits(&p), f32_bits(&state)), "{name}");
            }
        }
    }
    Ok(())
}

#[test]
fn slots_can_be_sharded_over_the_batch() -> Result<()> {
    for mesh in [Mesh::new([("data", 4)])?, Mesh::auto([("data", 4)])?] {
        let explicit = mesh.axis_types()[0] == AxisType::Explicit;
        let w = Key::new(0).normal([8, 3]).put(&mesh, p![]);
        let x = Key::new(1).normal([16, 8]).put(&mesh, p!["data"]);
        let mut ends = Vec::new();
        for opt in [optim::adam(0.1), optim::adam(0.1).shard_slots("data")] {
            let step = jit(|w: &Array, s: &OptState, x: &Array| {
                let used = if explicit { w.reshard(p![; R: "data"]) } else { w.clone() };
                let g = grad(&used, |w| x.dot(&w).square().mean(..));
                opt.step(w, &g, s)
            });
            let state = opt.init(&w)?;
            let lowered = step.lower((&w, &state, &x))?;
            let count = |kind| lowered.collectives().count(kind, "data");
            let sharded = opt.init(&w)?.slots["mu"][""].shards()?[1].index[0] == (2..4);
            if explicit {
                let kinds =
                    [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather];
                let want = if sharded { [0, 1, 1] } else { [1, 0, 0] };
                assert_eq!(kinds.map(count), want, "{}", lowered.collectives());
            }
            let (next, after) = step.call((&w, &state, &x))?;
            assert_eq!(type_of(&next), type_of(&w));
            assert_eq!(type_of(&after), type_of(&state));
            assert_eq!(after.slots["mu"][""].shards()?[1].index[0] == (2..4), sharded);
            ends.push(next.to_vec::<f32>()?);
        }
        let worst = ends[0].iter().zip(&ends[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-6, "{worst}");
    }
    let mesh = Mesh::new([("data", 4)])?;
    let odd = (Array::ones([3, 8]).put(&mesh, p![]), Array::ones([3]).put(&mesh, p![]));
    let state = optim::adam(0.1).shard_slots("data").init(&odd)?;
    assert_eq!(type_of(&state.slots["nu"]["0"]), "float32[3,8@data]");
    assert_eq!(type_of(&state.slots["nu"]["1"]), "float32[3]");
    let error = optim::adam(0.1).shard_slots("model").init(&odd).unwrap_err();
    assert!(error.unquoted().contains("which is not an axis"), "{error}");
    Ok(())
}

#[test]
fn a_step_is_lowered_for_devices_that_do_not_exist() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4096)])?;
    let w = atmesh::Args::into_tree(F32.array_type([8192, 16]).on(&mesh, p![]));
    let x = F32.array_type([8192, 8192]).on(&mesh, p!["data"]);
    let opt = optim::adamw(1e-3).shard_slots("data");
    let state = opt.init(&w)?;
    assert_eq!(type_of(&state.slots["mu"][""]), "float32[8192@data,16]");
    let step = jit(|w: &Array, s: &OptState, x: &Array| {
        let g = grad(w.reshard(p![; R: "data"]), |w| x.dot(&w).square().mean(..));
        opt.step(w, &g, s)
    });
    let lowered = step.lower((&w, &state, x))?;
    assert_eq!(lowered.collectives().count(CollectiveKind::ReduceScatter, "data"), 1);
    Ok(())
}

#[test]
fn sixteen_bit_parameters_are_updated_in_float32() -> Result<()> {
    let w = Array::from([1.0f32, -2.0]).astype(BF16);
    let g = Array::from([0.5f32, 0.25]).astype(BF16);
    let opt = optim::adam(0.01);
    let state = opt.init(&w)?;
    assert_eq!(type_of(&state.slots["nu"][""]), "float32[2]");
    let (next, _) = opt.step(&w, &g, &state);
    assert_eq!(type_of(&next), "bfloat16[2]");
    let (want, _) = opt.step(&w.astype(F32), &g.astype(F32), &state);
    assert_eq!(next.astype(F32).to_vec::<f32>()?, want.astype(BF16).astype(F32).to_vec::<f32>()?);
    let opt = optim::adam_with(0.01, Adam::default().mu_dtype(BF16));
    let state = opt.init(&w.astype(F32))?;
    assert_eq!(type_of(&state.slots["mu"][""]), "bfloat16[2]");
    let (_, after) = opt.step(&w.astype(F32), &g.astype(F32), &state);
    assert_eq!(type_of(&after), type_of(&state));
    Ok(())
}

#[test]
fn a_state_is_read_from_a_file() -> Result<()> {
    let opt = optim::adamw(0.01);
    let p = params(F32, |k| k);
    let after = opt.step(&p, &params(F32, |k| k - 3.0), &opt.init(&p)?);
    let dir = std::env::temp_dir().join(format!("atmesh-optim-{}", std::process::id()));
    tree::save_npy(&after, &dir)?;
    let read = tree::load_npy(&(params(F32, |_| 0.0), opt.init(&p)?), &dir)?;
    std::fs::remove_dir_all(&dir).map_err(atmesh::Error::other)?;
    assert_eq!(f32_bits(&read), f32_bits(&after));
    Ok(())
}

#[test]
fn accumulation_sums_once_after_the_loop() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let w = Key::new(0).normal([8, 2]).put(&mesh, p![]);
    let b = Array::zeros([2]).put(&mesh, p![]);
    let xs = Key::new(1).normal([5, 16, 8]).put(&mesh, p![_, "data"]);
    let opt = optim::sgd(0.1);
    let state = opt.init(&(w.clone(), b.clone()))?;
    let loss = |(w, b): (Array, Array), x: Array| (x.dot(&w) + &b).square().mean(..);
    let step = jit(|p: &(Array, Array), s: &OptState, xs: &Array| {
        let reduced = tree::map(p, |w| w.reshard(p![; R: "data"]));
        let (l, g) = optim::accumulate(&reduced, xs, loss);
        (opt.step(p, &g, s), l)
    });
    let params = (w.clone(), b.clone());
    let lowered = step.lower((&params, &state, &xs))?;
    let sums: Vec<(u64, u64)> = lowered.collectives().iter().map(|c| (c.count, c.bytes_per_device)).collect();
    assert_eq!(sums.iter().filter(|s| s.0 == 1).count(), 2, "{}", lowered.collectives());
    assert!(sums.iter().all(|s| s.0 == 1 || s.1 <= 16), "{}", lowered.collectives());
    let ((next, _), l) = step.call((&params, &state, &xs))?;
    // one batch of everything
    let whole = xs.reshard(p![]).reshape([80, 8]);
    let (want, g) = value_and_grad((w.reshard(p![]), b.reshard(p![])), |p| loss(p, whole.clone()));
    assert!((l.item::<f32>()? / want.item::<f32>()? - 1.0).abs() < 1e-5);
    let want = (&w - 0.1 * &g.0, &b - 0.1 * &g.1);
    assert!(next.0.allclose_with(&want.0, 1e-4, 1e-5)? && next.1.allclose_with(&want.1, 1e-4, 1e-5)?);
    // eagerly, float64, and without batches
    let x = Array::from([[1.0f64], [3.0]]);
    let (l, g) = optim::accumulate(&Array::from(2.0f64), &x, |w, x| (w * x).square().sum(..));
    assert_eq!((l.item::<f64>()?, g.item::<f64>()?), (20.0, 20.0));
    let none = Array::zeros(F64.array_type([0, 1]));
    let (l, g) = optim::accumulate(&Array::from(2.0f64), &none, |w, x| (w * x).sum(..));
    assert!(l.ty().is_err() && g.ty().unwrap_err().unquoted().contains("there are no batches"));
    Ok(())
}

#[test]
fn a_loss_scale_adapts() -> Result<()> {
    let mut scale = LossScale::new(4.0).period(2).min_scale(2.0);
    let mut seen = Vec::new();
    for finite in [true, true, false, false, false, true] {
        scale = scale.adjust(&Array::from(finite));
        seen.push((scale.scale.item::<f32>()?, scale.good_steps.item::<i32>()?));
    }
    assert_eq!(seen, [(4.0, 1), (8.0, 0), (4.0, 0), (2.0, 0), (2.0, 0), (2.0, 1)]);
    let loss = scale.scale(&Array::from(3.0f32).astype(F16));
    assert_eq!((type_of(&loss).to_string(), loss.item::<f32>()?), ("float32[]".into(), 6.0));
    Ok(())
}

/// The text of the error that the first array of a tree carries.
fn error_of(t: &impl Tree) -> String {
    tree::leaves(t)[0].ty().unwrap_err().unquoted()
}

#[test]
fn wrong_parameters_gradients_and_states_are_errors() -> Result<()> {
    let opt = optim::adam(0.1);
    let (w, b) = (Array::ones([2, 2]), Array::ones([2]));
    let p = BTreeMap::from([("w", w.clone()), ("b", b.clone())]);
    let state = opt.init(&p)?;

    let integers = BTreeMap::from([("n", Array::from([1, 2]))]);
    let error = opt.init(&integers).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dtype);
    assert!(error.unquoted().contains("`n` is int32[2], and an optimizer updates floats"), "{error}");

    let (q, s) = opt.step(&p, &BTreeMap::from([("w", w.clone()), ("b", w.clone())]), &state);
    let text = error_of(&q);
    assert!(text.contains("the gradient of `b` is float32[2,2], but the parameter is float32[2]"), "{text}");
    assert!(text.contains("optim.rs"), "{text}");
    assert_eq!(error_of(&s), text);
    let (q, _) = opt.step(&p, &BTreeMap::from([("w", w.clone())]), &state);
    assert!(error_of(&q).contains("differ in structure at `b`"), "{}", error_of(&q));

    // the states of another model, of another optimizer, and of other shapes
    let other = opt.init(&BTreeMap::from([("w", w.clone())]))?;
    assert!(error_of(&opt.step(&p, &p, &other).0).contains("the state has no `mu` of `b`"));
    let other = optim::sgd_with(0.1, Sgd::default().momentum(0.9)).init(&p)?;
    assert!(error_of(&opt.step(&p, &p, &other).0).contains("the state has no `mu` of `b`"));
    assert!(error_of(&optim::sgd(0.1).step(&p, &p, &state).0).contains("other entries of `mu`"));
    let other = opt.init(&BTreeMap::from([("w", b.clone()), ("b", b.clone())]))?;
    let text = error_of(&opt.step(&p, &p, &other).0);
    assert!(text.contains("the `mu` of `w` is float32[2] in the state, but must be float32[2,2]"), "{text}");
    let text = error_of(&optim::apply_if_finite(opt.clone(), 1).step(&p, &p, &state).0);
    assert!(text.contains("the state has the scalars []"), "{text}");

    // in a program the error is reported at the end of the trace
    let step = jit(|p: &BTreeMap<&'static str, Array>, s: &OptState| opt.step(p, p, s));
    let other = opt.init(&BTreeMap::from([("w", w.clone())]))?;
    assert!(step.call((&p, &other)).unwrap_err().unquoted().contains("the state has no `mu` of `b`"));

    let lost = optim::partition([("w", optim::adam(0.1))]).init(&p).unwrap_err();
    assert!(lost.to_string().contains("`b` matches none of the patterns [\"w\"]"), "{lost}");
    assert!(state.slot("ema", &p).unwrap_err().unquoted().contains("it has mu, nu"));
    Ok(())
}

#[test]
fn wrong_arguments_of_constructors_are_errors_of_use() -> Result<()> {
    let w = Array::ones([2]);
    for (opt, text) in [
        (optim::adam_with(0.1, Adam::default().b2(1.5)), "`b2` is 1.5"),
        (optim::ema(-0.1, true), "`decay` is -0.1"),
        (optim::sgd(optim::cosine_decay_schedule(1.0, 0, 0.0)), "`steps` is 0"),
        (optim::adam(optim::warmup_cosine_decay_schedule(0.0, 1.0, 5, 5, 0.0)), "none are left to decay"),
        (optim::sgd(optim::join_schedules([optim::constant_schedule(1.0)], [3])), "1 schedules"),
        (optim::adam(0.1).slot_dtype(I32), "slots are floats"),
    ] {
        let error = opt.init(&w).unwrap_err().unquoted();
        assert!(error.contains(text) && error.contains("optim.rs"), "{error}");
        let wrapped = optim::chain([optim::clip(1.0), optim::masked(opt, |_, _| true)]);
        assert_eq!(wrapped.init(&w).unwrap_err().unquoted(), error);
    }
    // a rate beyond the end of its schedule has the value at the end
    assert_eq!(optim::linear_schedule(1.0, 0.5, 0).at(9).item::<f32>()?, 1.0);
    assert_eq!(optim::cosine_decay_schedule(1.0, 4, 0.5).at(i32::MAX).item::<f32>()?, 0.5);
    Ok(())
}

#[test]
fn trees_without_arrays_and_broken_gradients() -> Result<()> {
    let none: Vec<Array> = Vec::new();
    let opt = optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(0.1)]);
    let state = opt.init(&none)?;
    let (next, state) = opt.step(&none, &none, &state);
    assert_eq!((next.len(), state.count.item::<i32>()?), (0, 1));
    assert_eq!(optim::global_norm(&none).item::<f32>()?, 0.0);
    // NaN is used as it is
    let w = Array::from([1.0f32, 2.0]);
    let (next, _) = optim::sgd(0.1).step(&w, &Array::from([f32::NAN, 1.0]), &optim::sgd(0.1).init(&w)?);
    let next = next.to_vec::<f32>()?;
    assert!(next[0].is_nan() && next[1] == 1.9);
    let opt = optim::zero_nans().then(optim::sgd(0.1));
    let (next, _) = opt.step(&w, &Array::from([f32::NAN, 1.0]), &opt.init(&w)?);
    assert_eq!(next.to_vec::<f32>()?, [1.0, 1.9]);
    // after the maximum of failures in a row the next one is applied
    let opt = optim::apply_if_finite(optim::adam(0.1), 1);
    let (mut w, mut state) = (Array::from(1.0f32), opt.init(&Array::from(1.0f32))?);
    for (g, finite) in [(f32::INFINITY, true), (1.0, true), (f32::NAN, true), (f32::NAN, false)] {
        (w, state) = opt.step(&w, &Array::from(g), &state);
        assert_eq!(w.item::<f32>()?.is_finite(), finite);
    }
    let counts =
        ["finite_count", "notfinite_count", "total_notfinite"].map(|n| state.scalars[n].item::<i32>());
    assert_eq!(counts.into_iter().collect::<Result<Vec<_>>>()?, [2, 2, 3]);
    Ok(())
}

#[test]
fn a_step_in_a_loop_is_a_step() -> Result<()> {
    let opt = optim::adamw(optim::linear_schedule(0.1, 0.0, 10));
    let g = params(F32, |k| k - 5.0);
    let mut p = params(F32, |k| k);
    let mut state = opt.init(&p)?;
    let looped = jit(|p: &Params, s: &OptState| fori_loop(0..4, (p, s), |_, (p, s)| opt.step(&p, &g, &s)));
    let (end, last) = looped.call((&p, &state))?;
    for _ in 0..4 {
        (p, state) = opt.step(&p, &g, &state);
    }
    assert_eq!(f32_bits(&(p, state)), f32_bits(&(end, last)));
    Ok(())
}
