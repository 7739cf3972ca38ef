//! Recomputation recomputes: what a checkpoint does not save is gathered and computed again in the
//! backward pass, in loops and in unrolled layers, and the peak memory falls accordingly.

use CheckpointPolicy::{SaveAll, SaveAllButGathers, SaveNothing};
use atmesh::prelude::*;
use atmesh::{Args as _, CheckpointPolicy, CollectiveKind, Collectives, Phase, checkpoint_with};

const MIB: u64 = 1 << 20;
const LAYERS: usize = 8;

/// Returns the number of gathers that the program asks for, over all iterations of loops.
fn gathers(c: &Collectives) -> u64 {
    let asked = |op: &str| matches!(op, "reshard" | "all_gather");
    c.iter().filter(|c| c.kind == CollectiveKind::AllGather && asked(&c.op)).map(|c| c.count).sum()
}

/// Returns one fully sharded layer: a product with a weight that is gathered for it.
fn layer(x: Array, w: Array, policy: &CheckpointPolicy, spec: Spec) -> Array {
    checkpoint_with((x, w), policy.clone(), |(x, w)| x.dot(w.reshard(spec)).tanh())
}

/// Eight layers of 4 MiB on 4 devices: the number of gathers and the peak memory for each policy,
/// unrolled and in a loop.
#[test]
fn unrolled_layers_gather_again_as_layers_in_a_loop_do() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4)])?;
    let x = || F32.array_type([64, 1024]).on(&mesh, p!["data", _]);
    for spec in [p![; R: "data"], p![]] {
        let mut peaks = Vec::new();
        for (policy, expected) in [(SaveAll, 8), (SaveAllButGathers, 15), (SaveNothing, 16)] {
            // if computed values are saved, the backward pass does not need the first weight: `x` has
            // no gradient
            let unrolled = jit(|x: &Array, ws: &Vec<Array>| {
                grad(ws, |ws: Vec<Array>| {
                    let out = ws.iter().fold(x.clone(), |x, w| layer(x, w.clone(), &policy, spec));
                    out.square().sum(..)
                })
            });
            let w = F32.array_type([1024, 1024]).on(&mesh, p!["data", _]).into_tree();
            let lowered = unrolled.lower((x(), vec![w; LAYERS]))?;
            let all = lowered.collectives();
            assert_eq!(gathers(all), expected, "{policy:?}\n{all}");
            let again = all.iter().any(|c| c.phase == Phase::Recomputed);
            assert_eq!(again, policy != SaveAll, "{policy:?}\n{all}");
            let looped = jit(|x: &Array, ws: &Array| {
                grad(ws, |ws: Array| scan(x, ws, |x, w| (layer(x, w, &policy, spec), ())).0.square().sum(..))
            });
            let ws = F32.array_type([LAYERS, 1024, 1024]).on(&mesh, p![_, "data", _]);
            let looped = looped.lower((x(), ws))?;
            let of_loop = if policy == SaveAll { 8 } else { 16 };
            assert_eq!(gathers(looped.collectives()), of_loop, "{policy:?}");
            let of_loop = looped.collectives().peak_bytes();
            assert!(10 * all.peak_bytes() <= 12 * of_loop, "{policy:?}: {} {of_loop}", all.peak_bytes());
            peaks.push(all.peak_bytes());
        }
        assert!(peaks[2] < peaks[1] && peaks[1] < peaks[0], "each policy saves less: {peaks:?}");
        assert!(peaks[2] < 27 * MIB, "{peaks:?}");
    }
    Ok(())
}

/// The same for `all_gather` in per-device code.
#[test]
fn per_device_layers_gather_again() -> Result<()> {
    let mesh = Mesh::new([("D", 4)])?;
    let x = Key::new(4).normal([64, 64]).put(&mesh, p!["D"]);
    let ws: Vec<Array> = (0..6).map(|i| Key::new(i).normal([64, 64]).put(&mesh, p!["D"])).collect();
    let mut first: Option<Vec<Vec<f32>>> = None;
    for (policy, expected, peak) in
        [(SaveAll, 6, u64::MAX), (SaveAllButGathers, 11, 140_000), (SaveNothing, 12, 120_000)]
    {
        for manual in [true, false] {
            let layers = |x: &Array, ws: &Vec<Array>, gathered: fn(&Array) -> Array| {
                ws.iter().fold(x.clone(), |x, w| {
                    checkpoint_with((&x, w), policy.clone(), |(x, w): (Array, Array)| {
                        x.dot(gathered(&w)).tanh()
                    })
                })
            };
            let f = |x: &Array, ws: &Vec<Array>| -> Result<Array> {
                if !manual {
                    return Ok(layers(x, ws, |w| w.reshard(p![])));
                }
                shard_map(&mesh, atmesh::Inferred, p!["D"], |x: &Array, ws: &Vec<Array>| {
                    layers(x, ws, |w| w.all_gather("D", CollectiveDim::tiled(0)))
                })
                .call((x, ws))
            };
            let g = jit(|x: &Array, ws: &Vec<Array>| {
                grad(ws, |ws: Vec<Array>| f(x, &ws).map(|y| y.square().sum(..)))
            });
            let lowered = g.lower((&x, &ws))?;
            let all = lowered.collectives();
            assert_eq!(gathers(all), expected, "{policy:?}, by hand {manual}\n{all}");
            assert!(all.peak_bytes() < peak, "{policy:?}, by hand {manual}: {}\n{all}", all.peak_bytes());
            let got = g.call((&x, &ws))?.iter().map(Array::to_vec::<f32>).collect::<Result<Vec<_>>>()?;
            assert!(*first.get_or_insert_with(|| got.clone()) == got, "{policy:?}, by hand {manual}");
        }
    }
    Ok(())
}

/// A gathered value that is converted to another element type is gathered again, too.
#[test]
fn a_converted_gather_is_not_saved() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4)])?;
    let x = BF16.array_type([64, 1024]).on(&mesh, p!["data", _]).into_tree();
    let w = F32.array_type([1024, 1024]).on(&mesh, p!["data", _]).into_tree();
    let peak = |policy: &CheckpointPolicy| {
        let f = jit(|x: &Array, ws: &Vec<Array>| {
            grad(ws, |ws: Vec<Array>| {
                let layer = |x: Array, w: &Array| {
                    checkpoint_with((x, w), policy.clone(), |(x, w): (Array, Array)| {
                        x.dot(w.reshard(p![; R: "data"]).astype(BF16)).tanh()
                    })
                };
                ws.iter().fold(x.clone(), layer).astype(F32).square().sum(..)
            })
        });
        Ok::<u64, atmesh::Error>(f.lower((x.clone(), vec![w.clone(); LAYERS]))?.collectives().peak_bytes())
    };
    let [all, but, none] = [SaveAll, SaveAllButGathers, SaveNothing].map(|p| peak(&p));
    let [all, but, none] = [all?, but?, none?];
    assert!(none <= but && but + 4 * MIB < all, "{all} {but} {none}");
    Ok(())
}

/// Layers in one array are gathered one by one when they are unrolled, as in a loop.
#[test]
fn layers_in_one_array_are_gathered_one_by_one() -> Result<()> {
    let mesh = Mesh::without_devices([("x", 64)])?;
    let (d, layers) = (8192usize, 16usize);
    let x = || BF16.array_type([1024 * 64, d]).on(&mesh, p!["x"]);
    let w = || BF16.array_type([layers, d, d]).on(&mesh, p![_, "x"]);
    let looped = jit(|x: &Array, w: &Array| scan(x, w, |x: Array, w: Array| (x.dot(w.reshard(p![])), ())).0)
        .lower((x(), w()))?;
    let unrolled = jit(move |x: &Array, w: &Array| {
        (0..layers as i32).fold(x.clone(), |x, i| x.dot(w.slice(ix![i]).reshard(p![])))
    })
    .lower((x(), w()))?;
    let (unrolled, looped) = (unrolled.collectives(), looped.collectives());
    assert_eq!(unrolled.bytes(), looped.bytes());
    assert_eq!(gathers(unrolled), layers as u64, "{unrolled}");
    let (peak, of_loop) = (unrolled.peak_bytes(), looped.peak_bytes());
    assert!(10 * peak <= 12 * of_loop, "{peak} {of_loop}");
    Ok(())
}

/// A mark that a replicated weight is reduced is not saved: it is set again in the backward pass.
#[test]
fn marks_of_reduced_weights_take_no_memory() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4)])?;
    let peak = |spec: Spec| -> Result<u64> {
        let f = jit(move |x: &Array, ws: &Array| {
            let layer = |x, w| (layer(x, w, &SaveAllButGathers, spec), ());
            grad(ws, |ws: Array| scan(x, ws, layer).0.square().sum(..))
        });
        let x = F32.array_type([64, 1024]).on(&mesh, p!["data", _]);
        let ws = F32.array_type([LAYERS, 1024, 1024]).on(&mesh, p![]);
        Ok(f.lower((x, ws))?.collectives().peak_bytes())
    };
    let (plain, marked) = (peak(p![])?, peak(p![; R: "data"])?);
    // copies of the eight weights would be 32 MiB
    assert!(marked < plain + 8 * MIB, "{plain} bytes, and {marked} with the mark");
    Ok(())
}

/// Small parts of one value share a fetch, wherever they are read.
#[test]
fn small_parts_are_fetched_together() -> Result<()> {
    let mesh = Mesh::without_devices([("x", 8)])?;
    let x = F32.array_type([64, 64]).on(&mesh, p!["x"]);
    let w = F32.array_type([4, 64, 64]).on(&mesh, p![_, "x"]);
    let f = jit(|x: &Array, w: &Array| {
        (0..4).fold(x.clone(), |x, i| x.dot(w.slice(ix![i]).reshard(p![])).tanh())
    });
    let lowered = f.lower((x, w))?;
    assert_eq!(gathers(lowered.collectives()), 1, "{}", lowered.collectives());
    Ok(())
}

/// XLA does not find recomputed values in the forward pass: the StableHLO text has a barrier.
#[test]
fn the_exported_backward_pass_starts_with_a_barrier() -> Result<()> {
    for (policy, barriers) in [(SaveAll, 0), (SaveNothing, 2)] {
        let f = jit(|x: &Array| {
            grad(x, |x: Array| {
                let step = |x: Array| checkpoint_with(x, policy.clone(), |x: Array| x.sin().exp());
                step(step(x)).sum(..)
            })
        });
        let text = f.trace(Array::ones([4]))?.to_stablehlo()?.text().to_string();
        assert_eq!(text.matches("stablehlo.optimization_barrier").count(), barriers, "{text}");
    }
    Ok(())
}
