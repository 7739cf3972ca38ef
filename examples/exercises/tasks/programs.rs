//! Exercises on indexing, derivatives, loops, random numbers and `vmap`.

use super::{Exercise, line, normal};
use crate::grader::{Check, Clue, one, two};
use atmesh::CollectiveKind::{AllGather, AllReduce};
use atmesh::{hvp, prelude::*};

pub(super) fn exercises() -> Vec<Exercise> {
    [programs(), derivatives(), loops(), random(), vmapped()].into_iter().flatten().collect()
}

fn programs() -> Vec<Exercise> {
    let part = "programs";
    vec![
        Exercise {
            part,
            name: "looked_up",
            chapter: "indexing.md",
            task: "`table` is `float32[64@X,16]`, and `ids` has 8 indices of rows. Return these rows on all \
                   devices, without a gather of the table.",
            grade: |a| {
                let (mesh, table) = (line()?, normal(1, [64, 16]));
                let ids = Array::from([3, 0, 63, 8, 8, 40, 21, 5]);
                Check::new(two(a.looked_up, &table.put(&mesh, p!["X", _]), &ids.put(&mesh, p![])))
                    .elements(table.take(&ids, 0))
                    .ty("float32[8,16]")
                    .sent(&[(AllReduce, 1, 896)])
                    .hint(Clue::Error("take_to"), "say how the result is split: `take_to(ids, 0, p![])`")
                    .hint(
                        Clue::Has(AllGather),
                        "the table is gathered: `take_to` sends the rows that are read",
                    )
                    .hint(Clue::Type("float32[8,16]{U:X}"), "the rows are still a sum: leave out `U`")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "counts",
            chapter: "indexing.md",
            task: "`words` is `int32[64@X]`, numbers from 0 to 7. Return how often each occurs, with one \
                   all-reduce of the counts.",
            grade: |a| {
                let words = Key::new(1).randint([64], 0..8);
                Check::new(one(a.counts, &words.put(&line()?, p!["X"])))
                    .elements(words.bincount(8))
                    .ty("int32[8]")
                    .sent(&[(AllReduce, 1, 56)])
                    .hint(
                        Clue::Elements(Array::ones(I32.array_type([8]))),
                        "`set` keeps one of them: `add` adds all",
                    )
                    .hint(Clue::Has(AllGather), "the words are gathered: let each device count its own")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "highest",
            chapter: "lines.md",
            task: "`x` is `float32[64@X,32]`. Return the running maximum along each row. Nothing may be sent.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                Check::new(one(a.highest, &x.put(&line()?, p!["X", _])))
                    .elements(x.cummax(1))
                    .ty("float32[64@X,32]")
                    .sent(&[])
                    .hint(Clue::Error("must be unsharded"), "that runs down the columns, which are split")
                    .grade()
            },
        },
    ]
}

fn derivatives() -> Vec<Exercise> {
    let part = "derivatives";
    vec![
        Exercise {
            part,
            name: "step",
            chapter: "derivatives.md",
            task: "`w` is on every device and `x` is `float32[64@X,32]`. Return `w - 0.1·g` for the gradient \
                   `g` of the sum of the squares of `x·w`, with one all-reduce.",
            grade: |a| {
                let (mesh, w, x) = (line()?, normal(1, [32, 8]), normal(2, [64, 32]));
                let slope = 2.0 * x.t().dot(x.dot(&w));
                Check::new(two(a.step, &w.put(&mesh, p![]), &x.put(&mesh, p!["X", _])))
                    .elements(&w - 0.1 * &slope)
                    .ty("float32[32,8]")
                    .sent(&[(AllReduce, 1, 1792)])
                    .hint(Clue::Elements(&w + 0.1 * &slope), "this climbs: the step is against the gradient")
                    .hint(Clue::Elements(&w - 0.05 * &slope), "the derivative of a square has a factor of 2")
                    .hint(
                        Clue::Elements(&w - (0.1 / 512.0) * slope),
                        "that is the mean of the squares, not the sum",
                    )
                    .hint(
                        Clue::More,
                        "more is moved than the gradient: leave the product as it is, split by rows",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "curvature",
            chapter: "derivatives.md",
            task: "For `f(x) = Σ x⁴`, return the product of its Hessian at `x` and the vector `v`. Do not \
                   compute the matrix. Nothing may be sent.",
            grade: |a| {
                let (mesh, x, v) = (line()?, normal(1, [64]), normal(2, [64]));
                let split = |x: &Array| x.put(&mesh, p!["X"]);
                Check::new(two(a.curvature, &split(&x), &split(&v)))
                    .elements(hvp(&x, &v, |x| x.powi(4).sum(..)))
                    .ty("float32[64@X]")
                    .sent(&[])
                    .hint(
                        Clue::Elements(4.0 * x.powi(3) * &v),
                        "that is the first derivative times `v`: `hvp` differentiates twice",
                    )
                    .hint(Clue::Elements(12.0 * x.square()), "that is the diagonal: multiply it by `v`")
                    .hint(
                        Clue::Has(AllGather),
                        "the matrix of all second derivatives is made: `hvp` makes none",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "held",
            chapter: "derivatives.md",
            task: "The target of a loss is half of the guess `x·w`, and counts as a constant. Return the \
                   gradient, with respect to `w`, of the sum of the squares of guess minus target.",
            grade: |a| {
                let (mesh, w, x) = (line()?, normal(1, [32]), normal(2, [64, 32]));
                let through = 0.5 * x.t().dot(x.dot(&w));
                Check::new(two(a.held, &w.put(&mesh, p![]), &x.put(&mesh, p!["X", _])))
                    .elements(2.0 * &through)
                    .ty("float32[32]")
                    .sent(&[(AllReduce, 1, 224)])
                    .hint(Clue::Elements(through), "the target is differentiated too: `.stop_gradient()`")
                    .hint(
                        Clue::Elements(w.zeros_like()),
                        "the gradient stops everywhere: stop it at the target only",
                    )
                    .grade()
            },
        },
    ]
}

fn loops() -> Vec<Exercise> {
    let part = "loops";
    vec![
        Exercise {
            part,
            name: "power",
            chapter: "loops.md",
            task: "`m` is `float32[64@X,64]` and `v` is `float32[64@X]`. Replace `v` by `m·v`, divided by \
                   its norm, ten times.",
            grade: |a| {
                let mesh = line()?;
                let (m, v) = (Key::new(1).uniform([64, 64]), Key::new(2).uniform([64]));
                let unit = |v: Array| &v / v.square().sum(..).sqrt();
                let steps = |n: usize| (0..n).fold(v.clone(), |v, _| unit(m.dot(&v)));
                let grown = (0..10).fold(v.clone(), |v, _| m.dot(&v));
                Check::new(two(a.power, &m.put(&mesh, p!["X", _]), &v.put(&mesh, p!["X"])))
                    .elements(steps(10))
                    .ty("float32[64@X]")
                    .sent(&[(AllGather, 10, 224), (AllReduce, 10, 12)])
                    .hint(Clue::Elements(grown), "each step makes it longer: divide by the norm in the loop")
                    .hint(
                        Clue::Error("carry"),
                        "the carry keeps its type: gather inside the loop, not before it",
                    )
                    .hint(Clue::More, "more is gathered than the vector: the matrix stays where it is")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "averages",
            chapter: "loops.md",
            task: "`xs` is `float32[10,64@X]`, ten times 64 measurements. Return all running averages \
                   `mean = 0.9·mean + 0.1·x`, which start at zero. Nothing may be sent.",
            grade: |a| {
                let xs = normal(1, [10, 64]);
                let mut rows = vec![0.1 * xs.slice(ix![0])];
                for k in 1..10 {
                    rows.push(0.9 * &rows[k - 1] + 0.1 * xs.slice(ix![k as i64]));
                }
                let last = rows[9].clone();
                Check::new(one(a.averages, &xs.put(&line()?, p![_, "X"])))
                    .elements(stack(rows, 0))
                    .ty("float32[10,64@X]")
                    .sent(&[])
                    .hint(
                        Clue::Elements(last),
                        "that is the carry after the last step: return what is stacked",
                    )
                    .hint(Clue::Type("float32[10]"), "a sum is stacked: return `next` as the second one too")
                    .hint(Clue::Elements(0.1 * xs), "each step forgets the one before: the carry is the mean")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "halved",
            chapter: "loops.md",
            task: "`x` is `float32[64@X]`. Halve it until the sum of its squares is at most 1.",
            grade: |a| {
                let x = normal(1, [64]);
                let mut small = x.clone();
                while small.square().sum(..).item::<f32>()? > 1.0 {
                    small /= 2.0;
                }
                Check::new(one(a.halved, &x.put(&line()?, p!["X"])))
                    .elements(small.clone())
                    .ty("float32[64@X]")
                    .hint(
                        Clue::Elements(x),
                        "the loop runs while the condition holds: while the sum is above 1",
                    )
                    .hint(
                        Clue::Elements(small / 2.0),
                        "one step too many: the sum, not its root, is compared",
                    )
                    .grade()
            },
        },
    ]
}

fn random() -> Vec<Exercise> {
    let part = "random";
    vec![
        Exercise {
            part,
            name: "two_keys",
            chapter: "random.md",
            task: "Return `a - b` for two independent arrays of 4 normal numbers. Draw `a` and `b` from the \
                   two keys into which `key` splits, in their order.",
            grade: |a| {
                let key = Key::new(7);
                let [one_key, other] = key.split();
                let (first, second) = (one_key.normal([4]), other.normal([4]));
                Check::new(one(|x| (a.two_keys)(&key, x), &Array::from(0)))
                    .elements(&first - &second)
                    .ty("float32[4]")
                    .hint(Clue::Elements(Array::zeros([4])), "both are the same: one key gives one array")
                    .hint(Clue::Elements(second - &first), "the first key is for `a`")
                    .hint(
                        Clue::Elements(key.normal([4]) - first),
                        "do not use `key` again after it was split",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "masked",
            chapter: "random.md",
            task: "`x` is `float32[64@X]`. Keep each element with probability 0.75 and set the others to 0, \
                   so that the mean is right on average. Nothing may be sent.",
            grade: |a| {
                let (key, x) = (Key::new(7), normal(1, [64]));
                let mask = key.bernoulli([64], 0.75);
                let plain = mask.select(&x, 0.0);
                let folded = Key::new(7).bernoulli([8], 0.75);
                let same = stack([0; 8].map(|_| folded.clone()), 0).reshape([64]);
                let mesh = line()?;
                Check::new(one(|x| (a.masked)(&mesh, x), &x.put(&mesh, p!["X"])))
                    .elements(&plain / 0.75)
                    .ty("float32[64@X]")
                    .sent(&[])
                    .hint(Clue::Elements(plain), "divide what is kept by 0.75, the part that is kept")
                    .hint(Clue::Elements(mask.select(&x / 0.25, 0.0)), "0.25 is the part that is dropped")
                    .hint(
                        Clue::Elements(same.select(x / 0.75, 0.0)),
                        "each device has the same mask: draw one mask of 64",
                    )
                    .grade()
            },
        },
    ]
}

fn vmapped() -> Vec<Exercise> {
    let part = "vmap";
    vec![
        Exercise {
            part,
            name: "own_slopes",
            chapter: "vmap.md",
            task: "Each row of `x: float32[64@X,32]` has the loss `tanh(w·row)`. Return the norm of the \
                   gradient with respect to `w`, for each row separately. Nothing may be sent.",
            grade: |a| {
                let (mesh, w, x) = (line()?, 0.1 * normal(1, [32]), normal(2, [64, 32]));
                let factor = 1.0 - x.dot(&w).tanh().square();
                Check::new(two(a.own_slopes, &w.put(&mesh, p![]), &x.put(&mesh, p!["X", _])))
                    .elements((factor.expand_dims(1) * &x).square().sum(1).sqrt())
                    .ty("float32[64@X]")
                    .sent(&[])
                    .hint(Clue::Type("float32[]"), "one gradient for all rows: `grad` belongs inside `vmap`")
                    .hint(Clue::Type("float32[64@X,32]"), "those are the gradients: take the norm of each")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "distances",
            chapter: "vmap.md",
            task: "`x` is `float32[64@X,32]` and `y` is `float32[16,32]` on every device. Return the squared \
                   distance of each row of `x` to each row of `y`. Nothing may be sent.",
            grade: |a| {
                let (mesh, x, y) = (line()?, normal(1, [64, 32]), normal(2, [16, 32]));
                let d = (x.expand_dims(1) - y.expand_dims(0)).square().sum(2);
                Check::new(two(a.distances, &x.put(&mesh, p!["X", _]), &y.put(&mesh, p![])))
                    .elements(d.clone())
                    .ty("float32[64@X,16]")
                    .sent(&[])
                    .hint(Clue::Type("float32[64@X]"), "all rows of `y` are added: map over them too")
                    .hint(Clue::Elements(d.sqrt()), "those are distances: leave out the root")
                    .hint(Clue::Type("float32[16,64@X]"), "the rows of `x` come first: swap the two `vmap`s")
                    .grade()
            },
        },
    ]
}
