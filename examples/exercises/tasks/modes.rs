//! Exercises on explicit types, unreduced values, auto mode and manual mode.

use super::{Exercise, auto_line, grid, line, normal};
use crate::grader::{Check, Clue, Outcome, one, three, two};
use atmesh::CollectiveKind::{AllGather, AllReduce, Halo, Permute, ReduceScatter};
use atmesh::prelude::*;

pub(super) fn exercises() -> Vec<Exercise> {
    [explicit(), unreduced(), auto(), manual()].into_iter().flatten().collect()
}

fn explicit() -> Vec<Exercise> {
    let part = "explicit";
    vec![
        Exercise {
            part,
            name: "summed_product",
            chapter: "explicit_products.md",
            task: "`x` is `float32[16@X,32@Y]` and `w` is `float32[32@Y,8]`. Return `x·w` with its rows \
                   split over `X` and its sum on all devices along `Y`.",
            grade: |a| {
                let (mesh, x, w) = (grid()?, normal(1, [16, 32]), normal(2, [32, 8]));
                Check::new(two(a.summed_product, &x.put(&mesh, p!["X", "Y"]), &w.put(&mesh, p!["Y", _])))
                    .elements(x.dot(&w))
                    .ty("float32[16@X,8]")
                    .sent(&[(AllReduce, 1, 384)])
                    .hint(
                        Clue::Error("are contracted"),
                        "both operands are split along the sum: `dot_to` takes the spec of the result",
                    )
                    .hint(Clue::Type("float32[16@X,8@Y]"), "the sum is scattered: do not name `Y`")
                    .hint(Clue::Type("float32[16@X,8]{U:Y}"), "the sum is still pending: leave out `U`")
                    .hint(Clue::Type("float32[16,8]"), "the rows were gathered: name `X` for dimension 0")
                    .hint(Clue::Has(AllGather), "an operand is gathered: only the sum need be communicated")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "biased",
            chapter: "explicit.md",
            task: "`x` is `float32[16@X,32@Y]` and `b` is `float32[32@X]`. Return `x + b` with the type of \
                   `x`, and move no more than you need.",
            grade: |a| {
                let (mesh, x, b) = (grid()?, normal(1, [16, 32]), normal(2, [32]));
                Check::new(two(a.biased, &x.put(&mesh, p!["X", "Y"]), &b.put(&mesh, p!["X"])))
                    .elements(&x + &b)
                    .ty("float32[16@X,32@Y]")
                    .sent(&[(AllGather, 1, 32)])
                    .hint(
                        Clue::Error("must match"),
                        "dimension 1 is split over `Y` and over `X`: reshard `b`",
                    )
                    .hint(Clue::Type("float32[16,32@X]"), "`x` has to stay as it is: reshard `b` over `Y`")
                    .hint(Clue::More, "the matrix is moved, or all of `b`: reshard `b`, over `Y`")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "heads",
            chapter: "explicit_shapes.md",
            task: "`x` is `float32[16@X,64@Y]`, whose columns are 8 heads of 8. Return \
                   `float32[8@Y,16@X,8]`, heads first. Nothing may be sent.",
            grade: |a| {
                let (mesh, x) = (grid()?, normal(1, [16, 64]));
                let split = x.reshape([16, 8, 8]);
                Check::new(one(a.heads, &x.put(&mesh, p!["X", "Y"])))
                    .elements(split.transpose([1, 0, 2]))
                    .ty("float32[8@Y,16@X,8]")
                    .sent(&[])
                    .hint(
                        Clue::Type("float32[16@X,8@Y,8]"),
                        "the heads are dimension 1 now: `[1, 0, 2]` takes it first",
                    )
                    .hint(
                        Clue::Type("float32[8,8@Y,16@X]"),
                        "this swaps the heads with the elements of a head: dimension 1 has the heads",
                    )
                    .hint(
                        Clue::Error("reshape"),
                        "a reshape keeps the order of the elements: split dimension 1, then transpose",
                    )
                    .grade()
            },
        },
    ]
}

fn unreduced() -> Vec<Exercise> {
    let part = "unreduced";
    vec![
        Exercise {
            part,
            name: "late_sum",
            chapter: "unreduced.md",
            task: "`a` is `float32[8,64@X]` and `b` is `float32[64@X,8]`. Return `a·b + a·(2b)` with one \
                   all-reduce instead of two.",
            grade: |a| {
                let (mesh, x, y) = (line()?, normal(1, [8, 64]), normal(2, [64, 8]));
                Check::new(two(a.late_sum, &x.put(&mesh, p![_, "X"]), &y.put(&mesh, p!["X", _])))
                    .elements(3.0 * x.dot(&y))
                    .ty("float32[8,8]")
                    .sent(&[(AllReduce, 1, 448)])
                    .hint(
                        Clue::Has(ReduceScatter),
                        "two sums are scattered: leave both pending with `U: \"X\"`",
                    )
                    .hint(Clue::More, "each product is summed: leave both pending with `U: \"X\"`")
                    .hint(Clue::Type("float32[8,8]{U:X}"), "the sum is still pending: `reshard(p![])`")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "late_relu",
            chapter: "unreduced.md",
            task: "`a` is `float32[16,64@X]` and `b` is `float32[64@X,8]`. Return `relu(a·b)` with its rows \
                   split over `X`, with one reduce-scatter.",
            grade: |a| {
                let (mesh, x, y) = (line()?, normal(1, [16, 64]), normal(2, [64, 8]));
                Check::new(two(a.late_relu, &x.put(&mesh, p![_, "X"]), &y.put(&mesh, p!["X", _])))
                    .elements(x.dot(&y).relu())
                    .ty("float32[16@X,8]")
                    .sent(&[(ReduceScatter, 1, 448)])
                    .hint(
                        Clue::Error("unreduced"),
                        "relu of a sum is not the sum of relus: `reshard` before `relu`",
                    )
                    .hint(Clue::Type("float32[16,8]"), "all rows are on all devices: `p![\"X\", _]`")
                    .hint(Clue::Has(AllReduce), "the sum goes to all devices: let `reshard` scatter it")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "one_sum",
            chapter: "unreduced.md",
            task: "Two batches `x` and `y` each give a gradient with respect to `w`. Mark `w` so that \
                   the two are added before they are summed over the devices.",
            grade: |a| {
                let mesh = line()?;
                let (w, x, y) = (normal(1, [32, 8]), normal(2, [64, 32]), normal(3, [64, 32]));
                let slope = |x: &Array| 2.0 * x.t().dot(x.dot(&w));
                let rows = |x: &Array| x.put(&mesh, p!["X", _]);
                Check::new(three(a.one_sum, &w.put(&mesh, p![]), &rows(&x), &rows(&y)))
                    .elements(slope(&x) + slope(&y))
                    .ty("float32[32,8]")
                    .sent(&[(AllReduce, 1, 1792)])
                    .hint(
                        Clue::Error("unreduced"),
                        "`U` says that `w` is a sum; `R: \"X\"` says that its gradient is one",
                    )
                    .hint(Clue::More, "each gradient is summed: mark `w` with `R: \"X\"`")
                    .grade()
            },
        },
    ]
}

fn auto() -> Vec<Exercise> {
    let part = "auto";
    vec![
        Exercise {
            part,
            name: "smoothed",
            chapter: "stencils.md",
            task: "`x` is `float32[64]`, split over the auto axis `X`. Return the mean of each element and \
                   its two neighbours on a ring, with one halo.",
            grade: |a| {
                let v = normal(1, [64]);
                let (left, right) = (v.roll(1, 0), v.roll(-1, 0));
                let open = (v.shift(1, 0, 0.0) + &v + v.shift(-1, 0, 0.0)) / 3.0;
                Check::new(one(a.smoothed, &v.put(&auto_line()?, p!["X"])))
                    .elements((&left + &v + &right) / 3.0)
                    .ty("float32[64]")
                    .sent(&[(Halo, 1, 8)])
                    .hint(Clue::Elements(open), "the ring is closed: `roll` brings the last element first")
                    .hint(
                        Clue::Elements((2.0 * left + &v) / 3.0),
                        "both are the left one: roll by 1 and by -1",
                    )
                    .hint(
                        Clue::Elements((2.0 * right + &v) / 3.0),
                        "both are the right one: roll by 1 and by -1",
                    )
                    .hint(Clue::Has(AllGather), "all of it is gathered: shift the sharded array")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "pinned",
            chapter: "auto.md",
            task: "`x` and `y` are `float32[64,64]` over an auto axis, and their rows are split. Constrain \
                   `x + yᵀ` so that its columns are split instead.",
            grade: |a| {
                let (mesh, x, y) = (auto_line()?, normal(1, [64, 64]), normal(2, [64, 64]));
                let rows = |x: &Array| x.put(&mesh, p!["X", _]);
                let sharding = |outcome: Outcome| match outcome {
                    Outcome::Program(sum, _) => match sum.sharding()? {
                        Some(sharding) => Ok(Outcome::Text(sharding.spec.to_string())),
                        None => Ok(Outcome::Text("none".into())),
                    },
                    text => Ok(text),
                };
                Check::new(two(a.pinned, &rows(&x), &rows(&y)).and_then(sharding))
                    .text(p![_, "X"])
                    .hint(Clue::Text("p![\"X\", _]"), "the rows are split: `.constrain(p![_, \"X\"])`")
                    .hint(Clue::Text("p![_, _]"), "nothing is split: name `X` for dimension 1")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "laplacian",
            chapter: "stencils.md",
            task: "`x` is `float32[16,16]` on 2 × 4 devices, split both ways over auto axes. Return the sum \
                   of the four neighbours of each element on a torus, minus four times the element.",
            grade: |a| {
                let (mesh, x) = (Mesh::auto([("X", 2), ("Y", 4)])?, normal(1, [16, 16]));
                let rows = x.roll(1, 0) + x.roll(-1, 0);
                let right = &rows + x.roll(1, 1) + x.roll(-1, 1) - 4.0 * &x;
                Check::new(one(a.laplacian, &x.put(&mesh, p!["X", "Y"])))
                    .elements(right)
                    .ty("float32[16,16]")
                    .sent(&[(Halo, 1, 96)])
                    .hint(
                        Clue::Elements(2.0 * &rows - 4.0 * &x),
                        "these are the same neighbours: roll dimension 1",
                    )
                    .hint(Clue::Has(AllGather), "the array is gathered: roll the sharded array")
                    .grade()
            },
        },
    ]
}

fn manual() -> Vec<Exercise> {
    let part = "manual";
    vec![
        Exercise {
            part,
            name: "own_mean",
            chapter: "manual.md",
            task: "`x` is `float32[64@X]`. By hand, in `shard_map`, subtract the mean of all elements from \
                   each, and send only one number.",
            grade: |a| {
                let (mesh, x) = (line()?, normal(1, [64]));
                let blocks = x.reshape([8, 8]);
                let own = (&blocks - blocks.mean(Dims::keep(1))).reshape([64]);
                Check::new(one(|x| (a.own_mean)(&mesh, x), &x.put(&mesh, p!["X"])))
                    .elements(&x - x.mean(..))
                    .ty("float32[64@X]")
                    .sent(&[(AllReduce, 1, 12)])
                    .hint(
                        Clue::Elements(own),
                        "that is the mean of a block: `.pmean(\"X\")` has the others too",
                    )
                    .hint(
                        Clue::Elements(&x - 8.0 * x.mean(..)),
                        "`psum` adds the means of the eight blocks: `pmean` takes their mean",
                    )
                    .hint(Clue::Has(AllGather), "all elements are sent: a mean is one number")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "from_left",
            chapter: "manual.md",
            task: "`x` is `float32[64@X]`. Add to each block the block of the device to its left; the first \
                   device's left neighbour is the last one.",
            grade: |a| {
                let (mesh, x) = (line()?, normal(1, [64]));
                let mut cut = vec![0.0f32; 8];
                cut.extend_from_slice(&x.to_vec::<f32>()?[..56]);
                Check::new(one(|x| (a.from_left)(&mesh, x), &x.put(&mesh, p!["X"])))
                    .elements(&x + x.roll(8, 0))
                    .ty("float32[64@X]")
                    .sent(&[(Permute, 1, 32)])
                    .hint(
                        Clue::Elements(&x + x.roll(-8, 0)),
                        "that is the right neighbour: blocks travel to the right, by 1",
                    )
                    .hint(Clue::Elements(&x + Array::from(cut)), "the first device has zeros: close the ring")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "own_softmax",
            chapter: "manual.md",
            task: "`x` is `float32[64@X]`. Repair the softmax, with two all-reduces of one number \
                   each.",
            grade: |a| {
                let (mesh, x) = (line()?, normal(1, [64]));
                let blocks = x.reshape([8, 8]).softmax(1).reshape([64]);
                Check::new(one(|x| (a.own_softmax)(&mesh, x), &x.put(&mesh, p!["X"])))
                    .elements(x.softmax(0))
                    .ty("float32[64@X]")
                    .sent(&[(AllReduce, 1, 12), (AllReduce, 1, 12)])
                    .hint(
                        Clue::Elements(blocks),
                        "each block has the sum 1: the maximum and the sum are of all",
                    )
                    .hint(
                        Clue::Has(AllGather),
                        "elements are gathered: only a maximum and a sum need be sent",
                    )
                    .hint(
                        Clue::Type("float32[64@X]"),
                        "each device must subtract the same maximum: `.pmax(\"X\")`",
                    )
                    .grade()
            },
        },
    ]
}
