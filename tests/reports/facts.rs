//! Plans agree with published figures.
//!
//! Sources: "How to Scale Your Model" (the scaling book of Google DeepMind, chapters on training and
//! on LLaMA 3), and Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
//! Using Megatron-LM", SC21, tables 1 and 2.

mod model;

use crate::soak::part;
use atmesh::plan::{Link, Machine, Plan};
use atmesh::prelude::*;
use model::Decoder;

/// The sizes of a feed-forward layer of LLaMA-3 70B.
const WIDTH: usize = 8192;
const HIDDEN: usize = 28672;

/// Asserts that a figure is within a share of the published one.
fn near(what: &str, got: f64, published: f64, within: f64) {
    let off = got / published - 1.0;
    println!("{what}: {got:.4}, published {published}: {:+.1} %", 100.0 * off);
    assert!(off.abs() <= within, "{what}: {got}, published {published}");
}

/// Returns a TPU v5p with the bandwidth that the scaling book measured: 180 GB/s for each axis, of
/// 200 on the data sheet.
fn v5p() -> Machine {
    Machine::tpu_v5p().links(Link::ring(180e9))
}

/// Fully sharded data parallelism is bound by links below 2,550 tokens per chip on one axis, 1,275
/// on two and 850 on three.
#[test]
fn fully_sharded_layers_need_so_many_tokens_per_chip() -> Result<()> {
    let all = [p!["x"], p![("x", "y")], p![("x", "y", "z")]];
    for (n, spec) in all.into_iter().enumerate() {
        let (names, size) = (["x", "y", "z"], if n == 2 { 16 } else { 64 });
        let mesh = Mesh::without_devices(names[..=n].iter().map(|a| (*a, size)))?;
        let (tokens, chips) = (2048, mesh.size());
        let x = BF16.array_type([tokens * chips, WIDTH]).on(&mesh, spec);
        let up = BF16.array_type([WIDTH, HIDDEN]).on(&mesh, spec);
        let layer = jit(|x: &Array, up: &Array| x.dot(up.reshard(p![])));
        let machine = v5p().torus(vec![size; n + 1]);
        let plan = layer.cost_model(&machine, BF16).lower((x, up))?.plan(&machine)?;
        let threshold = tokens as f64 * plan.collective_seconds() / plan.kernel_seconds();
        near("tokens per chip", threshold, 2550.0 / (n + 1) as f64, 0.03);
    }
    Ok(())
}

/// Tensor parallelism is bound by links over more than F / 2,550 chips on one axis, for a hidden
/// layer of F.
#[test]
fn tensor_parallel_layers_have_a_most_number_of_chips() -> Result<()> {
    let chips = 64;
    let mesh = Mesh::without_devices([("y", chips)])?;
    let x = BF16.array_type([1 << 16, WIDTH]).on(&mesh, p![_, "y"]);
    let up = BF16.array_type([WIDTH, HIDDEN]).on(&mesh, p![_, "y"]);
    let down = BF16.array_type([HIDDEN, WIDTH]).on(&mesh, p!["y", _]);
    let layer = jit(|x: &Array, up: &Array, down: &Array| x.reshard(p![]).dot(up).dot_to(down, p![_, "y"]));
    let machine = v5p().torus([chips]);
    let plan = layer.cost_model(&machine, BF16).lower((x, up, down))?.plan(&machine)?;
    let threshold = chips as f64 * plan.kernel_seconds() / plan.collective_seconds();
    near("chips", threshold, HIDDEN as f64 / 2550.0, 0.03);
    Ok(())
}

/// LLaMA-3 70B with 4 Mi tokens per step on about 8,960 chips: fully sharded data parallelism alone
/// is bound by links, and 2 to 4 chips of tensor parallelism are best.
#[test]
fn a_model_of_70_billion_parameters_is_best_on_few_tensor_parallel_chips() -> Result<()> {
    let model = Decoder {
        layers: 80,
        width: WIDTH,
        hidden: HIDDEN,
        heads: 64,
        key_heads: 8,
        words: 131_072,
        batch: 8192,
        length: 512,
        gated: true,
        fsdp: true,
        sequence: true,
        regathers: false,
        auto: false,
        parts: 1,
    };
    // two dimensions of the torus for `data` and one for `tensor`, as in the book; then the axes take
    // what they get in a torus
    let link = |n: f64| Link::ring(n * 180e9);
    let rings = v5p().link("data", link(2.0)).link("tensor", link(1.0));
    let torus = v5p().torus([16, 32, 16]);
    let cases = [("rings", &rings, false), ("rings", &rings, true), ("torus", &torus, true)];
    for (name, machine, auto) in part(cases, 3) {
        let model = Decoder { auto, ..model };
        let plan = |y: usize| Ok((y, model.plan(8192 / y, y, machine)?));
        let plans = [1, 2, 4, 8].into_iter().map(plan).collect::<Result<Vec<(usize, Plan)>>>()?;
        let seconds: Vec<(usize, f64)> = plans.iter().map(|(y, plan)| (*y, plan.seconds())).collect();
        println!("{name}, auto {auto}: {seconds:?}");
        let (_, pure) = &plans[0];
        assert!(pure.collective_seconds() > pure.kernel_seconds(), "{name}: {pure}");
        let best = seconds.iter().fold((0, f64::INFINITY), |a, b| if b.1 < a.1 { *b } else { a });
        assert!([2, 4].contains(&best.0), "{name}: {} chips are best", best.0);
        assert!(seconds.iter().all(|s| s.1 <= 2.0 * best.1), "{name}: {seconds:?}");
    }
    Ok(())
}

/// Megatron-LM, table 1: as little tensor parallelism as fits is best.
#[test]
fn the_smallest_tensor_parallelism_that_fits_is_best() -> Result<()> {
    // layers, width, heads, batch, GPUs, and the tensor parallelism: the published one, except for the
    // last model, which had two pipeline stages too
    let models = [
        (24, 2304, 24, 512, 32, 1),
        (30, 3072, 32, 512, 64, 2),
        (36, 4096, 32, 512, 128, 4),
        (40, 6144, 48, 1024, 256, 8),
        (48, 8192, 64, 1536, 512, 16),
    ];
    for (layers, width, heads, batch, gpus, published) in part(models, 3) {
        let model = Decoder {
            layers,
            width,
            hidden: 4 * width,
            heads,
            key_heads: heads,
            words: 51_200,
            batch,
            length: 2048,
            gated: false,
            fsdp: false,
            sequence: false,
            regathers: false,
            auto: false,
            parts: 1,
        };
        // the fewest parts of the batch, whose gradients are accumulated, with which any mesh fits
        let fitting = |parts: usize| -> Result<Vec<(usize, f64)>> {
            let divides = |t: &usize| heads % t == 0 && (batch / parts).is_multiple_of(gpus / t);
            let mut all = Vec::new();
            for t in [1, 2, 4, 8, 16].into_iter().filter(divides) {
                let plan = Decoder { parts, ..model }.plan(gpus / t, t, &selene())?;
                all.extend((plan.fits() == Some(true)).then_some((t, plan.seconds())));
            }
            Ok(all)
        };
        let mut found = Vec::new();
        for parts in [1, 2, 3, 4, 6, 8, 12] {
            if found.is_empty() {
                found = fitting(parts)?;
            }
        }
        println!("{layers} layers of {width} on {gpus} GPUs: {found:?}");
        assert_eq!(found.first().map(|f| f.0), Some(published), "{width}: {found:?}");
        assert!(found.iter().all(|f| f.1 >= found[0].1), "{width}: {found:?}");
    }
    Ok(())
}

/// Returns the machine of the Megatron-LM paper: nodes of eight A100, each with an adapter of
/// 200 Gbit/s.
fn selene() -> Machine {
    let outside = Link::switch(25e9).latency(1e-5);
    Machine::a100().launch_overhead(3e-6).nodes(8, Link::NVLINK_3.latency(3e-6), outside)
}

/// ZeRO-3 without model parallelism, table 2: 144, 88 and 44 TFLOP/s on each of 384, 768 and 1,536
/// GPUs.
#[test]
fn zero_3_loses_to_links_with_more_devices() -> Result<()> {
    let model = Decoder {
        layers: 96,
        width: 12288,
        hidden: 4 * 12288,
        heads: 96,
        key_heads: 96,
        words: 51_200,
        batch: 1536,
        length: 2048,
        gated: false,
        fsdp: true,
        sequence: false,
        regathers: true,
        auto: false,
        parts: 1,
    };
    // the published times fit gathers that reach one of the eight adapters of a node, and that do not
    // overlap with the layer before; with checkpoints, ZeRO-3 gathers weights three times
    // (Rajbhandari et al., "ZeRO-Infinity", 2021, section 4.1)
    let machine = selene().adapters(1).prefetches(false);
    for (gpus, published) in [(384, 144.0), (768, 88.0), (1536, 44.0)] {
        let plan = model.plan(gpus, 1, &machine)?;
        let rate = model.operations() / gpus as f64 / plan.seconds() / 1e12;
        near("TFLOP/s", rate, published, 0.15);
    }
    Ok(())
}

/// The same devices and sums take the same time on one axis and on two.
#[test]
fn one_axis_of_64_is_8_times_8() -> Result<()> {
    let step = |x: &Array, w: &Array| grad(w, |w| x.dot(&w).tanh().square().sum(..));
    let machines = [Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9)), v5p().torus([8, 8])];
    for machine in machines {
        let seconds = |mesh: Mesh, spec: Spec| -> Result<f64> {
            let x = F32.array_type([64 * 256, 8192]).on(&mesh, spec);
            let w = F32.array_type([8192, 8192]).on(&mesh, p![]);
            Ok(jit(step).lower((x, w))?.plan(&machine)?.collective_seconds())
        };
        let one = seconds(Mesh::without_devices([("x", 64)])?, p!["x"])?;
        let two = seconds(Mesh::without_devices([("x", 8), ("y", 8)])?, p![("x", "y")])?;
        near("8 × 8 and 64", two, one, 0.05);
    }
    Ok(())
}
