//! Reports and plans list each exchange that a program calls, with its axis, bytes and line.

use atmesh::plan::{EntryKind, Link, Machine};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives};

/// Returns kind, axes, bytes per device, messages, and the line relative to `first`.
fn rows(c: &Collectives, first: u32) -> Vec<(CollectiveKind, String, u64, u64, Option<u32>)> {
    let line = |p: atmesh::diagnostic::SourceLocation| p.line().wrapping_sub(first);
    c.iter()
        .map(|c| (c.kind, c.axes.to_string(), c.bytes_per_device, c.messages, c.location.map(line)))
        .collect()
}

/// Returns a block of 2,048 bytes on each of 8 devices.
fn blocks() -> Result<(Mesh, Array)> {
    let mesh = Mesh::new([("y", 2), ("x", 4)])?;
    let x = Key::new(1).normal([64, 64]).put(&mesh, p!["y", "x"]);
    Ok((mesh, x))
}

const GRID: fn() -> Spec = || p!["y", "x"];

#[test]
fn permutes_of_one_value_are_separate_rows() -> Result<()> {
    use CollectiveKind::Permute;
    let (mesh, x) = blocks()?;
    let first = line!();
    let f = shard_map(&mesh, GRID(), GRID(), |x: &Array| {
        let over_y = x.ppermute("y", Permutation::ring(1));
        let over_x = x.ppermute("x", Permutation::ring(1));
        over_y + over_x
    });
    let l = jit(f).lower(&x)?;
    let over = |axis: &str, line| (Permute, axis.into(), 2048, 8, Some(line));
    assert_eq!(rows(l.collectives(), first), [over("y", 2), over("x", 3)], "{}", l.collectives());
    // The slow axis carries one block, whichever permute is written first.
    let machine = |slow: &'static str, fast: &'static str| {
        let m = Machine::new("slow").flops(F32, 1e12).elementwise(1e12).memory(1e12, 1e12);
        m.link(slow, Link::switch(1e6)).link(fast, Link::switch(1e12))
    };
    for (slow, fast) in [("y", "x"), ("x", "y")] {
        let plan = l.plan(&machine(slow, fast))?;
        let times: Vec<f64> =
            plan.entries().iter().filter(|e| e.kind != EntryKind::Kernel).map(|e| e.seconds).collect();
        assert_eq!(times.len(), 2);
        let most = times.iter().copied().fold(0.0, f64::max);
        assert!((most / 2.048e-3 - 1.0).abs() < 1e-3, "{slow}: {times:?}");
    }
    Ok(())
}

#[test]
fn a_ring_is_one_row_for_each_step() -> Result<()> {
    let (mesh, x) = blocks()?;
    let ring = || {
        shard_map(&mesh, GRID(), GRID(), |x: &Array| {
            let (mut block, mut sum) = (x.clone(), x.clone());
            for _ in 1..4 {
                block = block.ppermute("x", Permutation::ring(1));
                sum += &block;
            }
            sum
        })
    };
    let l = ring().lower(&x)?;
    let c = l.collectives();
    assert_eq!(c.count(CollectiveKind::Permute, "x"), 3, "{c}");
    assert!(c.iter().all(|c| (c.bytes_per_device, c.messages) == (2048, 8)), "{c}");
    let module = ring().trace(&x)?.to_stablehlo()?;
    assert_eq!(module.text().matches("collective_permute").count(), 3);
    // In both directions at once.
    let both = shard_map(&mesh, GRID(), GRID(), |x: &Array| {
        x.ppermute("x", Permutation::ring(1)) - x.ppermute("x", Permutation::ring(-1))
    });
    let l = both.lower(&x)?;
    assert_eq!(l.collectives().count(CollectiveKind::Permute, "x"), 2, "{}", l.collectives());
    for engine in [Lockstep, Threads, EngineKind::Reference] {
        let rows = x.reshape([2, 32, 4, 16]).reshard(p![]).sum(2);
        let want = concat([&rows; 4], -1).reshape([64, 64]);
        let got = ring().engine(engine).call(&x)?.reshard(p![]);
        assert!(got.allclose_with(&want, 1e-5, 1e-5)?, "{engine}");
    }
    Ok(())
}

/// A part of a permuted block is all that is sent; blocks that are joined are sent one by one.
#[test]
fn permutes_send_what_is_read() -> Result<()> {
    let (mesh, x) = blocks()?;
    let edge = shard_map(&mesh, GRID(), GRID(), |x: &Array| {
        x + x.ppermute("y", Permutation::ring(1)).slice(ix![..1])
    });
    let l = edge.lower(&x)?;
    assert_eq!(l.collectives().bytes(), 64, "{}", l.collectives());
    let halo = shard_map(&mesh, GRID(), GRID(), |x: &Array| {
        let before = x.slice(ix![-1..]).ppermute("y", Permutation::ring(1));
        let after = x.slice(ix![..1]).ppermute("y", Permutation::ring(-1));
        let left = x.slice(ix![.., -1..]).ppermute("x", Permutation::shift(1));
        let rows = concat([&before, x, &after], 0);
        rows.slice(ix![..-2]) + rows.slice(ix![2..]) + x + left
    });
    let l = halo.lower(&x)?;
    let c = l.collectives();
    assert_eq!((c.count(CollectiveKind::Permute, "y"), c.count(CollectiveKind::Permute, "x")), (2, 1), "{c}");
    assert_eq!(c.bytes(), 64 + 64 + 128, "{c}");
    Ok(())
}

/// Gathers over different axes are separate rows, too; one gather with two readers is one.
#[test]
fn gathers_over_different_axes_are_separate_rows() -> Result<()> {
    use CollectiveKind::AllGather;
    let (mesh, x) = blocks()?;
    let f = shard_map(&mesh, GRID(), GRID(), |x: &Array| {
        let over_y = x.all_gather("y", CollectiveDim::tiled(0));
        let over_x = x.all_gather("x", CollectiveDim::tiled(1));
        x + over_y.sum(Dims::keep(0)) + over_x.sum(Dims::keep(1)) + over_y.max(Dims::keep(0))
    });
    let l = f.lower(&x)?;
    let c = l.collectives();
    assert_eq!((c.count(AllGather, "y"), c.count(AllGather, "x")), (1, 1), "{c}");
    assert_eq!(c.bytes(), 2048 + 3 * 2048, "{c}");
    Ok(())
}

/// The sum of a cotangent over devices has the line of the `shard_map` that needs it.
#[test]
fn sums_of_cotangents_have_the_line_of_the_region() -> Result<()> {
    let mesh = Mesh::new([("x", 4)])?;
    let x = Key::new(1).normal([8, 16]).put(&mesh, p!["x"]);
    let w = Key::new(2).normal([16, 16]);
    for checked in [true, false] {
        let first = line!();
        let f = shard_map(&mesh, (p!["x"], p![]), p!["x"], |x: &Array, w: &Array| x.dot(w).tanh());
        let f = if checked { f } else { f.unchecked() };
        let loss = |x: &Array, w: &Array| grad(w, |w| Ok::<_, atmesh::Error>(f.call((x, &w))?.sum(..)));
        let l = jit(loss).lower((&x, &w))?;
        let c = l.collectives();
        let sum = rows(c, first).into_iter().find(|r| r.0 == CollectiveKind::AllReduce);
        assert_eq!(sum.and_then(|r| r.4), Some(1), "{c}");
        assert!(c.iter().all(|c| c.location.is_some()), "{c}");
    }
    Ok(())
}

/// Returns the scopes of the rows.
fn scopes(c: &Collectives) -> Vec<String> {
    c.iter().map(|c| c.scope.to_string()).collect()
}

/// Layers in a Rust loop, each with a product over gathered weights.
fn layers(x: &Array, ws: &[Array]) -> Array {
    let layer = |x: &Array, w: &Array| x.dot(w.reshard(p![])).tanh();
    ws.iter().enumerate().fold(x.clone(), |x, (k, w)| named_scope(format!("layer{k}"), || layer(&x, w)))
}

fn weights() -> Result<(Array, Vec<Array>)> {
    let mesh = Mesh::new([("X", 4)])?;
    let w = |k| (Key::new(k).normal([16, 16]) * 0.2).put(&mesh, p!["X"]);
    Ok((Key::new(9).normal([8, 16]).put(&mesh, p!["X"]), vec![w(0), w(1), w(2)]))
}

#[test]
fn scopes_name_layers_in_reports_plans_timelines_and_metadata() -> Result<()> {
    let (x, ws) = weights()?;
    let f = jit(|x: &Array, ws: &Vec<Array>| layers(x, ws));
    let l = f.lower((&x, &ws))?;
    let names = ["layer0", "layer1", "layer2"];
    assert_eq!(scopes(l.collectives()), names);
    let machine = Machine::h100().links(Link::NVLINK_4);
    let plan = l.plan(&machine)?;
    let (table, html) = (plan.to_string(), plan.to_html(""));
    let module = f.trace((&x, &ws))?.to_stablehlo()?;
    let (text, memory) = (module.text(), l.memory().to_string());
    let timeline = f.lower((&x, &ws))?.compile()?.profile((&x, &ws))?.1;
    for name in names {
        assert!(l.collectives().to_string().contains(name) && table.contains(name), "{table}");
        assert!(html.contains(&format!("<td>{name}</td>")), "{html}");
        let entries = |kind: fn(&EntryKind) -> bool| {
            plan.entries().iter().filter(|e| e.scope.name() == Some(name) && kind(&e.kind)).count()
        };
        assert_eq!(entries(|k| *k != EntryKind::Kernel), 1, "{table}");
        assert!(entries(|k| *k == EntryKind::Kernel) > 0, "{table}");
        let spans = timeline.spans().iter().filter(|s| s.scope.name() == Some(name)).count();
        assert!(spans > 0, "{timeline}");
        for json in [plan.to_json(), plan.to_perfetto(), timeline.to_json(), timeline.to_perfetto()] {
            assert!(json.replace(": ", ":").contains(&format!("\"scope\":\"{name}\"")), "{json}");
        }
        assert!(text.contains(&format!("loc(\"{name}\"(\"tests/reports/exchanges.rs\":")), "{text}");
    }
    assert!(memory.contains(" in layer"), "{memory}");
    assert!(
        timeline.to_string().contains("layer1") && timeline.compare(&plan).to_string().contains("layer1")
    );
    Ok(())
}

#[test]
fn scopes_of_derivatives_and_of_mapped_and_nested_functions() -> Result<()> {
    let (x, ws) = weights()?;
    let slope =
        |x: &Array, ws: &Vec<Array>| named_scope("step", || grad(ws, |ws| layers(x, &ws).square().sum(..)));
    let c = jit(slope).lower((&x, &ws))?.collectives().clone();
    for name in ["step/layer0", "step/layer2", "step/transpose(layer2)", "step/transpose(layer0)"] {
        assert!(scopes(&c).iter().any(|s| s == name), "{name}\n{c}");
    }
    let backward = c.iter().filter(|c| c.phase == atmesh::Phase::Backward);
    assert!(backward.into_iter().all(|c| c.scope.to_string().starts_with("step/transpose(")), "{c}");
    // Recomputed under a checkpoint.
    let again = |x: &Array, ws: &Vec<Array>| {
        grad(ws, |ws: Vec<Array>| {
            let block = |x: Array, w: &Array| {
                named_scope("block", || {
                    checkpoint((x, w.clone()), |(x, w): (Array, Array)| {
                        named_scope("inner", || x.dot(w.reshard(p![])).tanh())
                    })
                })
            };
            ws.iter().fold(x.clone(), block).sum(..)
        })
    };
    let c = jit(again).lower((&x, &ws))?.collectives().clone();
    assert!(c.iter().all(|c| c.scope.to_string().contains("inner")), "{c}");
    // A loop, a branch, `vmap`, an inner `jit` that two scopes share, and per-device code.
    let gathered = |w: &Array| w.reshard(p![]);
    let mesh = Mesh::new([("X", 4)])?;
    let shared = jit(|w: &Array| named_scope("shared", || w.reshard(p![]).sin()));
    let sum = shard_map(&mesh, p!["X"], p![], |w: &Array| named_scope("device", || w.psum("X")));
    let all = |x: &Array, ws: &Vec<Array>| -> Result<(Array, Array)> {
        let w = &ws[0];
        let a = named_scope("loop", || {
            fori_loop(0..3, x, |_, x| named_scope("body", || x.dot((w + x.sum(..)).reshard(p![]))))
        });
        let b = named_scope("cond", || {
            cond(a.sum(..).gt(0.0), || named_scope("yes", || gathered(w)), || gathered(&(w * 2.0)))
        });
        let many = stack([w, w], 0);
        let c = named_scope("vmap", || vmap(&many, |w| named_scope("each", || w.reshard(p![]))));
        let d =
            named_scope("first", || shared.call(&ws[1]))? + named_scope("second", || shared.call(&ws[2]))?;
        let e = named_scope("manual", || sum.call(w))?;
        Ok((a.sum(..) + b.sum(..) + d.sum(..) + e.sum(..), c))
    };
    let c = jit(all).lower((&x, &ws))?.collectives().clone();
    for name in
        ["loop/body", "cond/yes", "cond", "vmap/each", "first/shared", "second/shared", "manual/device"]
    {
        assert!(scopes(&c).iter().any(|s| s == name), "{name}\n{c}");
    }
    Ok(())
}

#[test]
fn scopes_end_with_their_closures() -> Result<()> {
    let (x, ws) = weights()?;
    let f = |x: &Array, w: &Array| {
        let _ = std::panic::catch_unwind(|| named_scope("broken", || -> () { panic!("on purpose") }));
        let first =
            named_scope("outer", || named_scope("", || named_scope("in\nner", || x.dot(w.reshard(p![])))));
        first.dot((w * 2.0).reshard(p![]))
    };
    let l = jit(f).lower((&x, &ws[0]))?;
    let mut seen = scopes(l.collectives());
    seen.sort();
    assert_eq!(seen, ["", "outer/in ner"], "{}", l.collectives());
    // The scope of a call does not name what an already traced function does; results and types do
    // not depend on scopes.
    let plain =
        jit(|x: &Array, ws: &Vec<Array>| ws.iter().fold(x.clone(), |x, w| x.dot(w.reshard(p![])).tanh()));
    let scoped = jit(|x: &Array, ws: &Vec<Array>| layers(x, ws));
    let (a, b) = (plain.call((&x, &ws))?, named_scope("caller", || scoped.call((&x, &ws)))?);
    assert_eq!(a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    let steps = |text: String| -> Vec<String> {
        text.lines().map(|l| l.split("//").next().unwrap_or_default().to_string()).collect()
    };
    assert_eq!(steps(plain.lower((&x, &ws))?.to_string()), steps(scoped.lower((&x, &ws))?.to_string()));
    Ok(())
}

/// Operations that are passed as values have the line of the call that takes them.
#[test]
fn operations_without_a_closure_have_a_line_of_the_program() -> Result<()> {
    let (x, ws) = weights()?;
    let first = line!();
    let gather: fn(&Array) -> Array = |x| x.reshard(p![]);
    let f = jit(|x: &Array, ws: &Vec<Array>| {
        let squares: Vec<Array> = ws.iter().map(Array::square).collect();
        let sum = squares.iter().map(gather).reduce(std::ops::Add::add).unwrap_or_else(|| x.clone());
        let pointer: fn(&Array) -> Array = Array::sin;
        let total: Array = ws.iter().map(pointer).sum();
        let rows = map(&sum, |row: Array| row.tanh());
        let rows = rows + tree::map(&sum, Array::cos);
        let scanned = scan(Array::from(0f32), rows.sum(1), |c: Array, x: Array| {
            named_scope("carry", || (std::ops::Add::add(&c, &x), c))
        });
        let prefix = associative_scan(&scanned.1, 0, std::ops::Mul::mul);
        let slope = grad(&prefix, |x: Array| x.square().sum(..));
        vmap(&total, std::ops::Neg::neg) + slope.sum(..)
    });
    let traced = f.trace((&x, &ws))?;
    fn lines(
        p: &atmesh::program::Program,
        out: &mut Vec<(String, Option<atmesh::diagnostic::SourceLocation>)>,
    ) {
        for e in &p.equations {
            out.push((e.op.name().to_string(), e.location));
            if let atmesh::program::Op::Control(c) = &e.op {
                c.bodies().iter().for_each(|b| lines(b, out));
            }
        }
    }
    let mut all = Vec::new();
    lines(traced.program(), &mut all);
    assert!(all.len() > 15, "{}", all.len());
    for (op, location) in all {
        // Programs that derivatives make have equations without a line: they have that of the loop.
        let Some(l) = location else { continue };
        let inside = l.file() == file!() && (first..first + 25).contains(&l.line());
        assert!(inside, "{op} at {l}");
    }
    Ok(())
}

/// Tests that (X,Y) is X times Y wherever X or Y appears by itself: on 3x2 devices it is one range
/// of 6, whose prime factors in rising order are neither X nor Y.
#[test]
fn axes_of_sizes_3_and_2_are_distinguished() -> Result<()> {
    let mesh = Mesh::new([("X", 3), ("Y", 2)])?;
    let row = |from: Spec, to: fn() -> Spec| {
        let x = Array::zeros([24, 24]).put(&mesh, from);
        let l = jit(move |x: &Array| x.reshard(to())).lower(&x)?;
        let rows: Vec<String> = l.collectives().iter().map(|c| format!("{:?} {}", c.kind, c.axes)).collect();
        Ok::<_, atmesh::Error>(rows.join("; "))
    };
    assert_eq!(row(p!["X", "Y"], || p![("X", "Y"), _])?, "AllToAll Y");
    assert_eq!(row(p![("X", "Y"), _], || p!["X", "Y"])?, "AllToAll Y");
    assert_eq!(row(p![_, ("Y", "X")], || p!["X", "Y"])?, "AllToAll X");
    assert_eq!(row(p![("X", "Y"), _], || p!["X", _])?, "AllGather Y");
    assert_eq!(row(p![("X", "Y"), _], || p!["Y", _])?, "Exchange (X,Y)");
    assert_eq!(row(p![("X", "Y"), _], || p![("Y", "X"), _])?, "Permute (X,Y)");
    Ok(())
}
