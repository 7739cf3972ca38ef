//! Donated arguments: programs that cross donation, scatters, products, and rows that are fused.

use crate::{Rng, law};
use atmesh::prelude::*;

/// The number of columns of every value.
const COLUMNS: usize = 24;

/// One line of a program, which computes a value from earlier ones.
#[derive(Clone, Copy, Debug)]
struct Line {
    kind: usize,
    a: usize,
    b: usize,
    k: usize,
}

/// A program over donated arrays of `rows` rows, and lists of `indices` indices of rows.
#[derive(Clone, Debug)]
struct Program {
    rows: usize,
    indices: usize,
    arguments: usize,
    lines: Vec<Line>,
    /// The values that are returned, each whole or as a sum over the rows. A sum is too small for
    /// the memory of an argument, which is scratch memory then.
    results: Vec<(usize, bool)>,
}

impl Program {
    fn new(rng: &mut Rng) -> Program {
        // row fusion starts at 16 rows, that of products at more; a scatter of more than 512 rows may
        // sort its updates
        let rows = *rng.choose(&[8, 15, 16, 17, 40, 128, 192]);
        let indices = *rng.choose(&[rows, rows, 15, 16, 17, 33, 600]);
        let arguments = 1 + rng.below(3);
        let count = 3 + rng.below(9);
        let line = |rng: &mut Rng, k: usize| {
            // most lines read one of the latest values
            let latest = (arguments + k).saturating_sub(3);
            let a = if rng.once_in(3) { rng.below(arguments + k) } else { latest + rng.below(3) };
            Line { kind: rng.below(20), a, b: rng.below(arguments + k), k: rng.below(64) }
        };
        let lines: Vec<Line> = (0..count).map(|k| line(rng, k)).collect();
        let all = arguments + count;
        let mut results: Vec<(usize, bool)> =
            (0..rng.below(4)).map(|_| (arguments + rng.below(count), rng.once_in(2))).collect();
        results.push((all - 1, rng.once_in(2)));
        Program { rows, indices, arguments, lines, results }
    }

    /// Runs the lines. Every value has the shape of an argument.
    fn run(&self, donated: &[Array], indices: &[Array]) -> Vec<Array> {
        let mut values = donated.to_vec();
        for l in &self.lines {
            let (x, y) = (&values[l.a % values.len()], &values[l.b % values.len()]);
            values.push(self.line(*l, x, y, &indices[l.k % indices.len()]));
        }
        let result = |(k, is_summed): &(usize, bool)| match is_summed {
            true => values[*k].sum(0),
            false => values[*k].clone(),
        };
        self.results.iter().map(result).collect()
    }

    fn line(&self, l: Line, x: &Array, y: &Array, i: &Array) -> Array {
        let zeros = || Array::zeros([self.rows, COLUMNS]);
        // the rows to scatter, of which `indices` are found by gathers and fused
        let found = || {
            let rows = x.take(i, 0);
            match l.k / 2 % 4 {
                0 => rows,
                1 => rows.sin() * 2.0,
                2 => &rows - rows.max(Dims::keep(1)),
                _ => rows.softmax(1) + y.take(i, 0),
            }
        };
        let to = |target: Array| {
            let at = target.at(ix![i]);
            match l.k / 8 % 4 {
                0 => at.set(found()),
                1 => at.max(found()),
                _ => at.add(found()),
            }
        };
        match l.kind {
            0 => x.sin() * 2.0,
            1 => x.cumsum(0),
            2 => x.flip(0),
            3 => x + y,
            4 => x * y - x,
            5 => x - x.max(Dims::keep(1)),
            6 => x * (x * x).mean(Dims::keep(1)).sqrt(),
            7 => x.softmax(1),
            8 => x + y.sum(Dims::keep(0)),
            9 => x.tanh().dot(y.t()).dot(x) * 0.01,
            10 => x.at(ix![..-1]).set(y.slice(ix![1..])),
            11 => attention(x, y, x),
            12 => attention(y, x, y).sin(),
            13 => attention(x, &(y * 0.5), y),
            14 => attention_of_heads(self.rows, x, y, y),
            15 => to(x.clone()),
            16 => to(y.clone()),
            17 => to(y * 0.5),
            _ => to(zeros()),
        }
    }
}

/// Computes the attention of queries to keys and values: a product whose rows are normalized for
/// another product. The first two dimensions may be those of heads and rows.
fn attention(queries: &Array, keys: &Array, values: &Array) -> Array {
    let weights = (einsum("...qd,...kd->...qk", [queries, keys]) * 0.3).softmax(-1);
    einsum("...qk,...kd->...qd", [&weights, values])
}

/// Computes [`attention`] for four heads of six columns.
fn attention_of_heads(rows: usize, queries: &Array, keys: &Array, values: &Array) -> Array {
    let split = |x: &Array| x.reshape([rows, 4, COLUMNS / 4]).transpose([1, 0, 2]);
    attention(&split(queries), &split(keys), &split(values)).transpose([1, 0, 2]).reshape([rows, COLUMNS])
}

fn numbers(rows: usize, salt: usize) -> Array {
    let n = (rows * COLUMNS) as i32;
    ((Array::arange(0..n).astype(F32) * 0.7 + salt as f32).sin()).reshape([rows, COLUMNS])
}

fn bits(results: &[Array]) -> Result<Vec<Vec<u32>>> {
    results.iter().map(|x| Ok(x.to_vec::<f32>()?.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Donation changes no bit: the result with donated arguments equals that without.
#[test]
fn donation_changes_no_bit() {
    law(150, |seed| {
        let mut rng = Rng::new(seed);
        let p = Program::new(&mut rng);
        let mesh = Mesh::new([("X", 2)]).expect("an axis makes a mesh");
        let sharded = rng.once_in(4) && p.rows.is_multiple_of(2);
        let place = |x: Array| if sharded { x.put(&mesh, p![]) } else { x };
        let make = || -> Vec<Array> { (0..p.arguments).map(|k| place(numbers(p.rows, k))).collect() };
        let list = |salt: usize| {
            let of = |k: usize| ((k * 5 + salt * 3 + k / 7) % p.rows) as i32;
            place(Array::from((0..p.indices).map(of).collect::<Vec<i32>>()))
        };
        let indices = vec![list(0), list(1)];
        let f = |xs: &Vec<Array>, indices: &Vec<Array>| p.run(xs, indices);
        let mut wrong = Vec::new();
        for engine in [Lockstep, Threads] {
            let plain = jit(f).engine(engine).call((&make(), &indices)).and_then(|y| bits(&y));
            let donated = jit(f).engine(engine).donate(0).call((make(), &indices)).and_then(|y| bits(&y));
            match (plain, donated) {
                (Ok(plain), Ok(donated)) if plain == donated => {}
                (Ok(plain), Ok(donated)) => {
                    let differ =
                        |(a, b): (&Vec<u32>, &Vec<u32>)| a.iter().zip(b).filter(|(a, b)| a != b).count();
                    let counts: Vec<usize> = plain.iter().zip(&donated).map(differ).collect();
                    wrong.push(format!("{engine}: {counts:?} elements differ\n  {p:?}"));
                }
                (plain, donated) => {
                    let errors = plain.err().into_iter().chain(donated.err());
                    wrong.extend(errors.map(|e| format!("{engine}: {e}\n  {p:?}")));
                }
            }
        }
        wrong
    });
}
