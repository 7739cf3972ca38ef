//! Operations on values laid in ways that do not fit: bytes that the busiest device receives, against the rows of GSPMD's collectives.
//!
//! A row's `least` is what the better of two moves: XLA's partitioner, or the cheapest way that is known for the operation. An all-gather of
//! V bytes by n devices counts V·(n−1)/n, an all-reduce 2·V·(n−1)/n, an all-to-all V·(n−1)/n, and a permute V.

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
    /// Bytes, and how they come about.
    least: (u64, &'static str),
    /// What is moved today where that is more than `least`: exactly this, until less is.
    more: Option<u64>,
    /// Whether no cheaper way than to bring a whole operand is known.
    whole: bool,
    function: fn(&V) -> Array,
}

fn row(
    name: &'static str,
    mesh: Axes,
    args: Vec<(Vec<usize>, Spec)>,
    least: (u64, &'static str),
    function: fn(&V) -> Array,
) -> Row {
    Row { name, mesh, args, least, more: None, whole: false, function }
}

fn dots() -> Vec<Row> {
    let two = |a, b| vec![(vec![32, 64], a), (vec![64, 16], b)];
    let dot: fn(&V) -> Array = |a| a[0].dot(&a[1]);
    let batches = || vec![(vec![8, 16, 32], p!["x", _, _]), (vec![8, 32, 16], p!["y", _, _])];
    vec![
        row("dot [-,x] [-,-]", GRID, two(p![_, "x"], p![_, _]), (3072, "all-reduce of 32·16·4 by 4"), dot),
        row(
            "dot [x,y] [y,x]",
            GRID,
            two(p!["x", "y"], p!["y", "x"]),
            (1536 + 512, "all-gather of 32·16·4 by 4, all-reduce of 8·16·4 by 2"),
            dot,
        ),
        row("dot [-,x] [-,y]", GRID, two(p![_, "x"], p![_, "y"]), (1536, "all-reduce of 32·8·4 by 4"), dot),
        row(
            "dot, batches on two axes, constrained",
            GRID,
            batches(),
            (4096, "permute of 2·32·16·4"),
            |a| a[0].matmul(&a[1]).constrain(p!["x", _, _]),
        ),
        row(
            "dot, batches on two axes, summed",
            GRID,
            batches(),
            (4096 + 8, "permute of 2·32·16·4, all-reduce of 4"),
            |a| a[0].matmul(&a[1]).sum(..),
        ),
        // operands that share no axis leave a result that nobody asks for unsharded
        Row {
            more: Some(2048 + 7168),
            ..row("dot, batches on two axes", GRID, batches(), (4096, "permute of 2·32·16·4"), |a| {
                a[0].matmul(&a[1])
            })
        },
    ]
}

fn elements() -> Vec<Row> {
    let three = || [p!["x", _], p!["x", _], p!["y", _]].map(|s| (vec![64, 64], s)).to_vec();
    let table = || vec![(vec![16, 8], p!["x", _])];
    let halves = vec![(vec![], p![]), (vec![16, 16], p!["x", _]), (vec![16, 16], p![_, "x"])];
    vec![
        row("where of three, constrained", GRID, three(), (4096, "permute of 16·64·4"), |a| {
            a[0].gt(0.0).select(&a[1], &a[2]).constrain(p!["x", _])
        }),
        row(
            "where of three, summed",
            GRID,
            three(),
            (4096 + 8, "permute of 16·64·4, all-reduce of 4"),
            |a| a[0].gt(0.0).select(&a[1], &a[2]).sum(..),
        ),
        // as of the product above: the result is to be unsharded; XLA gathers all three operands
        Row {
            whole: true,
            ..row(
                "where of three",
                GRID,
                three(),
                (4096 + 12288, "all-gathers of 64·64·4: of a half by 4 devices, of the result by 4"),
                |a| a[0].gt(0.0).select(&a[1], &a[2]),
            )
        },
        row("argmax", FOUR, table(), (192, "all-gathers of 4·8 values and 4·8 places by 4"), |a| {
            a[0].argmax(0)
        }),
        row("argmin", FOUR, table(), (192, "all-gathers of 4·8 values and 4·8 places by 4"), |a| {
            a[0].argmin(0)
        }),
        row("cond", LINE, halves, (112, "all-to-all of 128 by 8"), |a| {
            cond(a[0].gt(0.0), || a[1].clone(), || a[2].clone())
        }),
    ]
}

fn along_a_line() -> Vec<Row> {
    let one = || vec![(vec![64], p!["x"])];
    let square = vec![(vec![64, 64], p!["x", _])];
    let gathered =
        |name, f| Row { whole: true, ..row(name, LINE, one(), (224, "all-gather of 64·4 by 8"), f) };
    vec![
        row("roll 8", LINE, one(), (32, "permute of 8·4"), |a| a[0].roll(8, 0)),
        row("roll 11", LINE, one(), (32, "permutes of 3·4 and 5·4"), |a| a[0].roll(11, 0)),
        row("roll 20", LINE, one(), (32, "permutes of 4·4 and 4·4"), |a| a[0].roll(20, 0)),
        row("wrap pad", LINE, one(), (104, "permutes of 6, 2, 2, 8 and 8 numbers"), |a| {
            concat([a[0].slice(ix![-1..]), a[0].clone(), a[0].slice(ix![..1])], 0)
        }),
        row("edge pad", LINE, one(), (104, "as the wrap pad"), |a| {
            let edge = |e: Array| e.broadcast_to([4]);
            concat([edge(a[0].slice(ix![..1])), a[0].clone(), edge(a[0].slice(ix![-1..]))], 0)
        }),
        row(
            "concat",
            LINE,
            [one(), one()].concat(),
            (128, "two exchanges, in each of which the busiest device receives its 16 numbers"),
            |a| concat([&a[0], &a[1]], 0),
        ),
        row("diagonal", LINE, square, (448, "all-reduce of 64·4 by 8"), |a| a[0].diagonal(0)),
        gathered("sort", |a| a[0].sort(0)),
        // the sorted numbers are cut again before the middle ones are read
        Row {
            more: Some(224 + 12),
            least: (224 + 8, "all-gather of 64·4 by 8, all-reduce of 4"),
            ..gathered("median", |a| a[0].median(0))
        },
    ]
}

fn windows_and_transforms() -> Vec<Row> {
    let images =
        |n: usize, k: usize| vec![(vec![8, 3, n, n], p![_, _, "x", _]), (vec![3, 3, k, k], p![_, _, _, _])];
    let square = |s| vec![(vec![16, 16], s)];
    vec![
        row("conv, stride 2", FOUR, images(16, 3), (1536, "permute of 8·3·1·16·4"), |a| {
            a[0].conv_with(&a[1], ConvOptions::default().strides([2, 2]).padding(Padding::Same))
        }),
        row("conv, dilation 2", FOUR, images(32, 5), (24576, "two permutes of 8·3·4·32·4"), |a| {
            a[0].conv_with(&a[1], ConvOptions::default().dilation([2, 2]).padding(Padding::Same))
        }),
        row("fft of a batch", LINE, square(p!["x", _]), (0, "each device its own"), |a| a[0].fft(1)),
        row(
            "fft along what is cut",
            LINE,
            square(p!["x", _]),
            (448, "two all-to-alls of 2·16·8 by 8"),
            |a| a[0].fft(0),
        ),
    ]
}

#[test]
fn no_row_moves_more_than_its_least() -> Result<()> {
    let mut wrong = String::new();
    for r in [dots(), elements(), along_a_line(), windows_and_transforms()].into_iter().flatten() {
        let mesh = Mesh::auto(r.mesh.iter().copied())?;
        let one = Mesh::auto(r.mesh.iter().map(|axis| (axis.0, 1)))?;
        let draw = |k: usize, n: &[usize]| Key::new(k as u64).normal(n.to_vec());
        let here: V = r.args.iter().enumerate().map(|(k, (n, _))| draw(k, n)).collect();
        let put = |mesh: &Mesh| here.iter().zip(&r.args).map(|(x, (_, s))| x.put(mesh, *s)).collect();
        let (laid, whole): (V, V) = (put(&mesh), put(&one));
        let f = jit(r.function);
        let lowered = f.lower(&laid)?;
        let told = lowered.collectives();
        let (least, how) = r.least;
        if r.more.map_or(told.bytes() > least, |more| told.bytes() != more) {
            wrong += &format!("{}: {} bytes of {least} ({how})\n{told}\n", r.name, told.bytes());
        }
        // what a device lacks of the smallest operand that is cut
        let lacks = r.args.iter().filter_map(|(shape, spec)| {
            let parts: u64 = (r.mesh.iter().filter(|axis| spec.to_string().contains(axis.0)))
                .map(|axis| axis.1 as u64)
                .product();
            let bytes = 4 * shape.iter().product::<usize>() as u64;
            (parts > 1).then(|| bytes - bytes / parts)
        });
        let lacks = lacks.min().expect("an operand is cut");
        if !r.whole && told.iter().any(|c| c.bytes >= lacks) {
            wrong += &format!("{}: a whole operand is brought\n{told}\n", r.name);
        }
        let (got, want) = (f.call(&laid)?, (r.function)(&whole));
        if !got.allclose_by(&want, 1e-4, 1e-4)? {
            wrong += &format!("{}: other numbers than on one device\n", r.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    Ok(())
}
