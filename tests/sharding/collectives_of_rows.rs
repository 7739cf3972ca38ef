//! Operations on values with incompatible shardings: the bytes that the busiest device receives,
//! compared with XLA's partitioner.
//!
//! Each row gives the exact bytes, how they come about and why fewer are not possible, and the
//! bytes of XLA's collectives: those of the same operation compiled by JAX 0.10.2 (`jit` without
//! `out_shardings`, auto axes, eight CPU devices), which `tests/bytes_moved/xla.py` counts in the
//! same way. With n devices, an all-gather of V bytes counts V·(n−1)/n, an all-reduce 2·V·(n−1)/n,
//! an all-to-all V·(n−1)/n, and a permute V.
//!
//! Results have the shardings that XLA chooses, with three exceptions: the wrap pad, whose 66
//! elements XLA does not shard; the sort, which XLA leaves unsharded; and `cond`, whose columns XLA
//! shards. In particular, a result of operands that share no axis is unsharded unless a sharding is
//! requested (row 45 of the rules of auto mode). A constraint that shards it moves fewer bytes
//! (some rows show it).

use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding};

type V = Vec<Array>;
type Axes = &'static [(&'static str, usize)];

const LINE: Axes = &[("x", 8)];
const FOUR: Axes = &[("x", 4)];
const GRID: Axes = &[("x", 4), ("y", 2)];

struct Row {
    name: &'static str,
    mesh: Axes,
    args: Vec<(Vec<usize>, Spec)>,
    /// The bytes, and how they come about.
    least: (u64, &'static str),
    /// The bytes that XLA moves.
    xla: u64,
    /// True if no cheaper method than moving a full operand is known.
    whole: bool,
    function: fn(&V) -> Array,
}

fn row(
    name: &'static str,
    mesh: Axes,
    args: Vec<(Vec<usize>, Spec)>,
    least: (u64, &'static str),
    xla: u64,
    function: fn(&V) -> Array,
) -> Row {
    Row { name, mesh, args, least, xla, whole: false, function }
}

fn dots() -> Vec<Row> {
    let two = |a, b| vec![(vec![32, 64], a), (vec![64, 16], b)];
    let dot: fn(&V) -> Array = |a| a[0].dot(&a[1]);
    let batches = || vec![(vec![8, 16, 32], p!["x", _, _]), (vec![8, 32, 16], p!["y", _, _])];
    vec![
        row(
            "dot [-,x] [-,-]",
            GRID,
            two(p![_, "x"], p![_, _]),
            (3072, "all-reduce of 32·16·4 by 4"),
            6144,
            dot,
        ),
        row(
            "dot [x,y] [y,x]",
            GRID,
            two(p!["x", "y"], p!["y", "x"]),
            (1536 + 512, "all-gather of 32·16·4 by 4, all-reduce of 8·16·4 by 2"),
            2048,
            dot,
        ),
        row(
            "dot [-,x] [-,y]",
            GRID,
            two(p![_, "x"], p![_, "y"]),
            (1536, "all-reduce of 32·8·4 by 4"),
            1536,
            dot,
        ),
        row(
            "dot, batches on two axes, constrained",
            GRID,
            batches(),
            (
                4096,
                "two batches of the result are a device's, of which half of the devices have none of the other operand: 2·32·16·4",
            ),
            4096,
            |a| a[0].matmul(&a[1]).constrain(p!["x", _, _]),
        ),
        row(
            "dot, batches on two axes, summed",
            GRID,
            batches(),
            (2048 + 12, "each device multiplies one batch: 32·16·4 of an operand; one number by a tree of 8"),
            20480,
            |a| a[0].matmul(&a[1]).sum(..),
        ),
        row(
            "dot, batches on two axes",
            GRID,
            batches(),
            (
                2048 + 7168,
                "each device multiplies one batch: 32·16·4 of an operand; all-gather of the result's 8·16·16·4 by 8",
            ),
            12288 + 8192,
            |a| a[0].matmul(&a[1]),
        ),
    ]
}

fn elements() -> Vec<Row> {
    let three = || [p!["x", _], p!["x", _], p!["y", _]].map(|s| (vec![64, 64], s)).to_vec();
    let table = || vec![(vec![16, 8], p!["x", _])];
    let halves = vec![(vec![], p![]), (vec![16, 16], p!["x", _]), (vec![16, 16], p![_, "x"])];
    let places = (96, "all-reduces of 8 values and of 8 places by 4, 48 each: no 4·8 pairs");
    vec![
        row("where of three, constrained", GRID, three(), (4096, "permute of 16·64·4"), 4096, |a| {
            a[0].gt(0.0).select(&a[1], &a[2]).constrain(p!["x", _])
        }),
        row(
            "where of three, summed",
            GRID,
            three(),
            (2048 + 12, "each device has 8 rows to sum: 8·64·4 of an operand; one number by a tree of 8"),
            23552,
            |a| a[0].gt(0.0).select(&a[1], &a[2]).sum(..),
        ),
        Row {
            whole: true,
            ..row(
                "where of three",
                GRID,
                three(),
                (4096 + 12288, "permute of 16·64·4, all-gather of the result's 64·64·4 by 4"),
                12288 + 8192 + 3072,
                |a| a[0].gt(0.0).select(&a[1], &a[2]),
            )
        },
        row("argmax", FOUR, table(), places, 192, |a| a[0].argmax(0)),
        row("argmin", FOUR, table(), places, 192, |a| a[0].argmin(0)),
        row("cond", LINE, halves, (112, "all-to-all of 128 by 8"), 112, |a| {
            cond(a[0].gt(0.0), || a[1].clone(), || a[2].clone())
        }),
    ]
}

fn along_a_line() -> Vec<Row> {
    let one = || vec![(vec![64], p!["x"])];
    let square = vec![(vec![64, 64], p!["x", _])];
    let gathered = |name, xla, f| Row {
        whole: true,
        ..row(name, LINE, one(), (224, "all-gather of 64·4 by 8"), xla, f)
    };
    vec![
        row("roll 8", LINE, one(), (32, "a device has none of its 8 numbers"), 32, |a| a[0].roll(8, 0)),
        row("roll 11", LINE, one(), (32, "a device has none of its 8 numbers"), 32, |a| a[0].roll(11, 0)),
        row("roll 20", LINE, one(), (32, "a device has none of its 8 numbers"), 32, |a| a[0].roll(20, 0)),
        row(
            "wrap pad",
            LINE,
            one(),
            (24, "blocks of 9 and 3 at the end: the last but one lacks 6"),
            356,
            wrapped,
        ),
        row("edge pad", LINE, one(), (12, "blocks of 9: the second and the last but one lack 3"), 298, edged),
        row(
            "concat",
            LINE,
            [one(), one()].concat(),
            (
                128,
                "the second device lacks all its 16 numbers, of the first operand; the sixth its 16, of the other",
            ),
            448,
            |a| concat([&a[0], &a[1]], 0),
        ),
        row("diagonal", LINE, square, (448, "all-reduce of 64·4 by 8"), 448, |a| a[0].diagonal(0)),
        gathered("sort", 224, |a| a[0].sort(0)),
        // The sorted elements are read on the devices that sort them.
        gathered("median", 226, |a| a[0].median(0)),
    ]
}
fn wrapped(a: &V) -> Array {
    concat([a[0].slice(ix![-1..]), a[0].clone(), a[0].slice(ix![..1])], 0)
}
fn edged(a: &V) -> Array {
    let edge = |e: Array| e.broadcast_to([4]);
    concat([edge(a[0].slice(ix![..1])), a[0].clone(), edge(a[0].slice(ix![-1..]))], 0)
}

fn windows_and_transforms() -> Vec<Row> {
    let images =
        |n: usize, k: usize| vec![(vec![8, 3, n, n], p![_, _, "x", _]), (vec![3, 3, k, k], p![_, _, _, _])];
    let square = |s| vec![(vec![16, 16], s)];
    vec![
        row("conv, stride 2", FOUR, images(16, 3), (1536, "permute of 8·3·1·16·4"), 1536, |a| {
            a[0].conv_with(&a[1], ConvOptions::default().strides([2, 2]).padding(Padding::Same))
        }),
        row("conv, dilation 2", FOUR, images(32, 5), (24576, "two permutes of 8·3·4·32·4"), 24576, |a| {
            a[0].conv_with(&a[1], ConvOptions::default().dilation([2, 2]).padding(Padding::Same))
        }),
        row("fft of a batch", LINE, square(p!["x", _]), (0, "each device its own"), 1792, |a| a[0].fft(1)),
        row(
            "fft along what is cut",
            LINE,
            square(p!["x", _]),
            (112 + 224, "all-to-alls by 8: of 2·16·4, then of 2·16·8"),
            1792,
            |a| a[0].fft(0),
        ),
    ]
}

#[test]
fn each_row_moves_its_least_and_no_more_than_xla() -> Result<()> {
    let mut wrong = String::new();
    for r in [dots(), elements(), along_a_line(), windows_and_transforms()].into_iter().flatten() {
        let mesh = Mesh::auto(r.mesh.iter().copied())?;
        let one = Mesh::auto(r.mesh.iter().map(|axis| (axis.0, 1)))?;
        let draw = |k: usize, n: &[usize]| Key::new(k as u64).normal(n.to_vec());
        let here: V = r.args.iter().enumerate().map(|(k, (n, _))| draw(k, n)).collect();
        let put = |mesh: &Mesh| here.iter().zip(&r.args).map(|(x, (_, s))| x.put(mesh, *s)).collect();
        let (placed, whole): (V, V) = (put(&mesh), put(&one));
        let f = jit(r.function);
        let lowered = f.lower(&placed)?;
        let report = lowered.collectives();
        let (least, how) = r.least;
        if report.bytes() != least {
            wrong += &format!("{}: {} bytes, not {least} ({how})\n{report}\n", r.name, report.bytes());
        }
        if least > r.xla {
            wrong += &format!("{}: {least} bytes, XLA moves {}\n", r.name, r.xla);
        }
        // The elements of the smallest sharded operand that a device lacks.
        let lacks = r.args.iter().filter_map(|(shape, spec)| {
            let parts: u64 = (r.mesh.iter().filter(|axis| spec.to_string().contains(axis.0)))
                .map(|axis| axis.1 as u64)
                .product();
            let bytes = 4 * shape.iter().product::<usize>() as u64;
            (parts > 1).then(|| bytes - bytes / parts)
        });
        let lacks = lacks.min().expect("an operand is cut");
        if !r.whole && report.iter().any(|c| c.bytes_per_device >= lacks) {
            wrong += &format!("{}: a whole operand is brought\n{report}\n", r.name);
        }
        let (got, want) = (f.call(&placed)?, (r.function)(&whole));
        if !got.allclose_with(&want, 1e-4, 1e-4)? {
            wrong += &format!("{}: other numbers than on one device\n", r.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    Ok(())
}

/// Computes the minimum for the rows that only move elements, by enumerating them: with blocks of
/// operands and results as in their types, a device receives the elements that it lacks, one
/// exchange per operand.
#[test]
fn what_only_moves_receives_what_is_lacking() -> Result<()> {
    let mut seen = 0;
    for r in along_a_line() {
        if !["roll 8", "roll 11", "roll 20", "wrap pad", "edge pad", "concat"].contains(&r.name) {
            continue;
        }
        seen += 1;
        // Each element encodes its origin: operand k has the elements 64·k to 64·(k+1).
        let each = |k: usize| Array::arange(64 * k as i32..64 * (k + 1) as i32).astype(F32);
        let from = (r.function)(&(0..r.args.len()).map(each).collect()).to_vec::<f32>()?;
        let block = from.len().div_ceil(8);
        let mut busiest = vec![0; r.args.len()];
        for (device, own) in from.chunks(block).enumerate() {
            let mut lacks: Vec<usize> =
                own.iter().map(|x| *x as usize).filter(|x| x % 64 / 8 != device).collect();
            lacks.sort_unstable();
            lacks.dedup();
            for (k, most) in busiest.iter_mut().enumerate() {
                *most = lacks.iter().filter(|x| *x / 64 == k).count().max(*most);
            }
        }
        assert_eq!(4 * busiest.iter().sum::<usize>() as u64, r.least.0, "{}", r.name);
    }
    assert_eq!(seen, 6);
    Ok(())
}
