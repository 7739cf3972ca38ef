//! Compares our plans with what XLA compiles for the same program, a decoder's training step on
//! several meshes: kinds, counts and bytes of collectives, and memory.
//!
//! `figures.tsv` holds XLA's figures, written by `xla.py` (which needs JAX): the bytes that a
//! device receives in all collectives, the number of arrays that are all-reduced and all-gathered,
//! and the bytes of arguments, results and temporaries together. `ours.tsv` holds ours; its bytes
//! may only decrease: `ATMESH_BLESS=1 cargo test --test xla_agreement` writes it again.

mod model;
#[path = "../soak/mod.rs"]
mod soak;

use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives};
use model::Config;
use std::collections::BTreeMap;

/// XLA's figures of a program.
struct Figures {
    bytes: u64,
    all_reduces: usize,
    all_gathers: usize,
    memory: u64,
}

fn figures() -> BTreeMap<String, Figures> {
    let row = |line: &str| -> Option<(String, Figures)> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, bytes, all_reduces, all_gathers, memory] = fields[..] else { return None };
        let figures = Figures {
            bytes: bytes.parse().ok()?,
            all_reduces: all_reduces.parse().ok()?,
            all_gathers: all_gathers.parse().ok()?,
            memory: memory.parse().ok()?,
        };
        Some((name.to_string(), figures))
    };
    include_str!("figures.tsv").lines().filter_map(row).collect()
}

/// Returns the recorded bytes of our programs, by program and mode.
fn ours() -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        Some((format!("{}\t{}", fields.first()?, fields.get(1)?), fields.get(2)?.parse().ok()?))
    };
    include_str!("ours.tsv").lines().filter_map(row).collect()
}

fn small() -> Config {
    Config {
        explicit: true,
        scan: true,
        remat: true,
        layers: 2,
        d: 64,
        f: 256,
        heads: 16,
        key_heads: 8,
        words: 128,
        batch: 16,
        sequence: 32,
        dtype: F32,
    }
}
fn large() -> Config {
    let (d, f, words, batch, sequence) = (1024, 4096, 32000, 32, 1024);
    Config { layers: 4, d, f, key_heads: 16, words, batch, sequence, ..small() }
}

/// Returns the programs by their names in `figures.tsv`: sizes, mesh, and whether it is a full
/// training step.
fn programs() -> Vec<(String, Config, [usize; 3], bool)> {
    let meshes = [
        ("dp8", [8, 1, 1]),
        ("fsdp8", [1, 8, 1]),
        ("tp8", [1, 1, 8]),
        ("dp4_tp2", [4, 1, 2]),
        ("all222", [2, 2, 2]),
    ];
    let mut all = Vec::new();
    for (size, c) in [("small", small()), ("large", large())] {
        all.extend(meshes.map(|(name, mesh)| (format!("{size}_{name}"), c, mesh, false)));
    }
    let more =
        [("kept", Config { remat: false, ..large() }), ("unrolled", Config { scan: false, ..large() })];
    all.extend(more.map(|(name, c)| (format!("large_all222_{name}"), c, [2, 2, 2], false)));
    all.push(("large_all222_step".into(), large(), [2, 2, 2], true));
    all
}

/// Plans a program: returns its collectives and the peak bytes of a device.
fn planned(c: Config, mesh: [usize; 3], step: bool) -> Result<Collectives> {
    let mesh = c.mesh(mesh)?;
    let ids = || c.ids(&mesh);
    if step {
        let f = jit(|s: &model::State, i: &Array, l: &Array| c.step(s, i, l));
        let f = if c.explicit { f } else { f.out_specs((p![], c.state_specs())) };
        return Ok(f.lower((c.state(&mesh), ids(), ids()))?.collectives().clone());
    }
    let f =
        jit(|w: &model::Model, i: &Array, l: &Array| value_and_grad(w, |w: model::Model| c.loss(&w, i, l)));
    let f = if c.explicit { f } else { f.out_specs((p![], c.specs())) };
    Ok(f.lower((c.model(&mesh), ids(), ids()))?.collectives().clone())
}

/// Returns the number of arrays of the collectives of a kind, and their total bytes.
fn count_and_bytes(all: &Collectives, kind: CollectiveKind) -> (usize, u64) {
    let of_kind = || all.iter().filter(|c| c.kind == kind);
    (of_kind().count(), of_kind().map(|c| c.bytes_per_device * c.count).sum())
}

/// Returns the extra bytes of summing the loss, a scalar, over the devices of the batch: the
/// busiest device of our reduction tree receives more than the 2(n − 1)/n elements of XLA's ring.
fn of_the_loss(all: &Collectives, [data, fsdp, tensor]: [usize; 3]) -> u64 {
    let size = |a: Axis| match a.name() {
        "data" => data,
        "fsdp" => fsdp,
        _ => tensor,
    };
    let scalar = all.iter().filter(|c| {
        c.kind == CollectiveKind::AllReduce && c.op == "reduce_sum" && c.bytes_per_device <= 4 * 7
    });
    scalar
        .map(|c| {
            let n = c.axes.iter().map(size).product::<usize>() as u64;
            c.bytes_per_device - (8 * (n - 1) / n).min(c.bytes_per_device)
        })
        .sum()
}

#[test]
fn plans_agree_with_what_xla_compiles() -> Result<()> {
    let (xla, ours) = (figures(), ours());
    let mut rows =
        String::from("name\tmode\tbytes\tall_reduces\tall_gathers\treduce_scatters\tothers\tpeak\n");
    let mut wrong = Vec::new();
    let is_blessed = std::env::var_os("ATMESH_BLESS").is_some();
    for (k, (name, config, mesh, step)) in programs().into_iter().enumerate() {
        let x = xla.get(&name).unwrap_or_else(|| panic!("figures.tsv has no row {name}"));
        // each program in one of the modes, or in both in a soak
        let runs = |explicit: &bool| soak::runs_all() || is_blessed || k.is_multiple_of(2) == *explicit;
        for explicit in [true, false].into_iter().filter(runs) {
            let mode = if explicit { "explicit" } else { "auto" };
            let all = planned(Config { explicit, ..config }, mesh, step)?;
            let ((reduces, _), (gathers, gathered)) = (
                count_and_bytes(&all, CollectiveKind::AllReduce),
                count_and_bytes(&all, CollectiveKind::AllGather),
            );
            let (scatters, scattered) = count_and_bytes(&all, CollectiveKind::ReduceScatter);
            let others = all.len() - reduces - gathers - scatters;
            let (bytes, peak) = (all.bytes(), all.peak_bytes());
            rows += &format!("{name}\t{mode}\t{bytes}\t{reduces}\t{gathers}\t{scatters}\t{others}\t{peak}\n");
            let mut check = |holds: bool, what: String| {
                if !holds {
                    wrong.push(format!("{name} {mode}: {what}\n{all}"))
                }
            };
            // We never move more bytes than XLA, except for the loss.
            let most = x.bytes + of_the_loss(&all, mesh);
            check(bytes <= most, format!("{bytes} bytes, XLA {}", x.bytes));
            // The bytes are equal where both choose the same collectives.
            if ["small_dp8", "large_dp8"].contains(&&*name) {
                check(bytes == most, format!("{bytes} bytes, XLA {}", x.bytes));
                check((reduces, gathers) == (x.all_reduces, x.all_gathers), format!("{reduces}, {gathers}"));
            }
            let before = ours.get(&format!("{name}\t{mode}")).copied().unwrap_or(u64::MAX);
            check(bytes <= before, format!("{bytes} bytes, {before} in ours.tsv"));
            // With FSDP the same weights are gathered, equally often; gradients are scattered,
            // where XLA's CPU back end all-reduces them.
            if name.ends_with("fsdp8") {
                check(gathers == x.all_gathers, format!("{gathers} gathers, XLA {}", x.all_gathers));
                check(
                    reduces + scatters == x.all_reduces,
                    format!("{reduces} + {scatters}, XLA {}", x.all_reduces),
                );
                let as_xla = bytes - of_the_loss(&all, mesh) + scattered;
                check(
                    as_xla == x.bytes,
                    format!(
                        "{as_xla} bytes where scatters count twice, XLA {} ({gathered} gathered)",
                        x.bytes
                    ),
                );
            }
            // Memory agrees within a quarter. Unrolled, XLA's CPU back end holds twice the memory
            // that it needs.
            let above = 1.25;
            let below = if name.ends_with("unrolled") { 0.4 } else { 0.75 };
            let share = peak as f64 / x.memory as f64;
            check((below..=above).contains(&share), format!("peak {peak}, XLA {}", x.memory));
        }
    }
    assert!(wrong.is_empty(), "{}\n{rows}", wrong.join("\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xla_agreement/ours.tsv");
    if is_blessed {
        std::fs::write(path, &rows).expect("the file is the crate's");
    }
    Ok(())
}

/// The full model: the figures of a step do not depend on whether layers are unrolled, and a plan
/// for 65,536 devices is exact.
#[test]
fn the_full_step_on_65_536_devices_is_the_same_in_a_loop_and_unrolled() -> Result<()> {
    let c = Config { layers: 8, ..Config::full() };
    let of = |c: Config| planned(c, [16, 128, 32], true);
    let (looped, unrolled) = (of(c)?, of(Config { scan: false, ..c })?);
    // Formulas for each layer: a weight's columns are gathered over fsdp, and activations over
    // tensor are gathered and all-reduced.
    let weight = 16384 * 53248 * 2 / 32 * 127 / 128;
    let activation = 2 * 2048 / 2048 * 8192 * 16384 * 2 / 32 * 31;
    for all in [&looped, &unrolled] {
        assert!(
            all.iter().any(|c| c.kind == CollectiveKind::AllGather && c.bytes_per_device == weight),
            "{weight}\n{all}"
        );
        assert!(
            all.iter().any(|c| c.kind == CollectiveKind::AllReduce && c.bytes_per_device == activation),
            "{activation}\n{all}"
        );
    }
    let by = |all: &Collectives, kind| of_kind(all, kind);
    assert_eq!(by(&looped, CollectiveKind::AllGather), by(&unrolled, CollectiveKind::AllGather));
    Ok(())
}

/// Returns the bytes of a kind over all iterations.
fn of_kind(all: &Collectives, kind: CollectiveKind) -> u64 {
    count_and_bytes(all, kind).1
}

/// The machine sets the cost of a byte: a program that is planned for a machine is never slower on
/// it than one planned for another machine, and faster where they differ.
#[test]
fn a_step_is_quickest_on_the_machine_that_it_is_priced_for() -> Result<()> {
    let threads = Machine::new("threads").flops(F32, 64e9).elementwise(16e9).links(Link::switch(1e9));
    let gpus = Machine::h100().links(Link::switch(50e9));
    for (mesh, explicit) in [([1, 1, 8], true), ([1, 1, 8], false), ([4, 1, 2], true), ([4, 1, 2], false)] {
        let c = Config { explicit, ..large() };
        let mesh = c.mesh(mesh)?;
        let f = jit(|w: &model::Model, i: &Array, l: &Array| {
            value_and_grad(w, |w: model::Model| c.loss(&w, i, l))
        });
        let mut f = if c.explicit { f } else { f.out_specs((p![], c.specs())) };
        let mut all = Vec::new();
        for machine in [&threads, &gpus] {
            f = f.cost_model(machine, F32);
            let lowered = f.lower((c.model(&mesh), c.ids(&mesh), c.ids(&mesh)))?;
            all.push([lowered.plan(&threads)?.seconds(), lowered.plan(&gpus)?.seconds()]);
        }
        let [on_threads, on_gpus] = [0, 1].map(|k| [all[0][k], all[1][k]]);
        assert!(on_threads[0] < on_threads[1] && on_gpus[1] < on_gpus[0], "{mesh}, {explicit}: {all:?}");
    }
    Ok(())
}
