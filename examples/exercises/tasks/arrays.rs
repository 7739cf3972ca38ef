//! Exercises on arrays and communication.

use super::{Exercise, grid, line, normal};
use crate::grader::{Check, Clue, one, text, three};
use atmesh::CollectiveKind::{AllGather, AllReduce, AllToAll, ReduceScatter};
use atmesh::prelude::*;

pub(super) fn exercises() -> Vec<Exercise> {
    [arrays(), communication()].into_iter().flatten().collect()
}

fn arrays() -> Vec<Exercise> {
    let part = "arrays";
    vec![
        Exercise {
            part,
            name: "fewest_bytes",
            chapter: "shardings.md",
            task: "`x` is `float32[16,8]` on `Mesh(X: 2, Y: 4)`. Return the spec that puts the fewest \
                   bytes on each device and cuts no row, with `X` as the major axis.",
            grade: |a| {
                let mesh = grid()?;
                let placed = |spec| Ok(type_of(Array::ones([16, 8]).put(&mesh, spec)));
                Check::new(text((a.fewest_bytes)().and_then(placed)))
                    .text("float32[16@(X,Y),8]")
                    .hint(Clue::Text("float32[16@X,8@Y]"), "this cuts rows: name both axes for dimension 0")
                    .hint(
                        Clue::Text("float32[16@Y,8]"),
                        "both devices along `X` hold the same block: name `X` too",
                    )
                    .hint(Clue::Text("float32[16@X,8]"), "the four devices along `Y` hold the same block")
                    .hint(Clue::Text("float32[16@(Y,X),8]"), "the axis that is named first is the major one")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "first_row",
            chapter: "shardings.md",
            task: "`int32[16@(Y,X),2]` is on `Mesh(X: 2, Y: 4)`, whose first row of devices is CPU 0 to 3. \
                   Return the index of the first row that CPU 5 holds.",
            grade: |a| {
                let x = Array::iota(I32.array_type([16, 2]), 0).put(&grid()?, p![("Y", "X"), _]);
                let row = x.shards()?[5].data.slice(ix![0, 0]).item::<i32>()?;
                Check::new(text((a.first_row)()))
                    .text(row)
                    .hint(Clue::Text("10"), "that is the row for `16@(X,Y)`: here `Y` is the major axis")
                    .hint(Clue::Text("3"), "that is the index of its block: a block has two rows")
                    .hint(Clue::Text("5"), "that is the index of the device in the mesh")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "normalized",
            chapter: "shardings.md",
            task: "`x` is `float32[64@X,32]`. Divide each row by its Euclidean norm. Nothing may be sent.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                let squares = x.square().sum(Dims::keep(1));
                Check::new(one(a.normalized, &x.put(&line()?, p!["X", _])))
                    .elements(&x / squares.sqrt())
                    .ty("float32[64@X,32]")
                    .sent(&[])
                    .hint(Clue::Elements(&x / squares), "a norm is the square root of the sum: `.sqrt()`")
                    .hint(Clue::Has(AllReduce), "that sums over rows of all devices: sum over dimension 1")
                    .hint(
                        Clue::Error("sizes that meet"),
                        "keep dimension 1 with size 1: `Dims::keep(1)` instead of `1`",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "padded_mean",
            chapter: "uneven.md",
            task: "`x` has 10 elements, which 4 devices on the explicit axis `X` cannot share. Pad it, put \
                   it on the mesh, and return the mean of the ten.",
            grade: |a| {
                let (mesh, x) = (Mesh::new([("X", 4)])?, normal(2, [10]) + 1.0);
                Check::new(one(|x| (a.padded_mean)(&mesh, x), &x))
                    .elements(x.mean(..))
                    .ty("float32[]")
                    .sent(&[(AllReduce, 1, 8)])
                    .hint(Clue::Elements(x.sum(..) / 12.0), "you divide by 12: two elements are padding")
                    .hint(Clue::Error("does not divide"), "12 is divisible by 4: `x.pad(0.0, [(0, 2, 0)])`")
                    .hint(Clue::Elements((x.sum(..) + 2.0) / 10.0), "pad by 0.0, which changes no sum")
                    .hint(Clue::Silent, "nothing is split yet: `put` the padded array on the mesh")
                    .grade()
            },
        },
    ]
}

fn communication() -> Vec<Exercise> {
    let part = "communication";
    vec![
        Exercise {
            part,
            name: "column_sums",
            chapter: "seven.md",
            task: "`x` is `float32[64@X,32]`. Return the sums of its columns, split over `X`, with one \
                   reduce-scatter.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                Check::new(one(a.column_sums, &x.put(&line()?, p!["X", _])))
                    .elements(x.sum(0))
                    .ty("float32[32@X]")
                    .sent(&[(ReduceScatter, 1, 112)])
                    .hint(
                        Clue::Type("float32[32]"),
                        "this is the whole sum on every device: give the spec of the result, `p![\"X\"]`",
                    )
                    .hint(
                        Clue::Type("float32[32]{U:X}"),
                        "the sum is still pending: name `X` for dimension 0",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "turned",
            chapter: "seven.md",
            task: "`x` is `float32[64@X,32]`. Return the same elements with the columns split, by an \
                   all-to-all.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                Check::new(one(a.turned, &x.put(&line()?, p!["X", _])))
                    .elements(x)
                    .ty("float32[64,32@X]")
                    .sent(&[(AllToAll, 1, 896)])
                    .hint(Clue::Type("float32[64@X,32]"), "the rows are still split: `p![_, \"X\"]`")
                    .hint(Clue::Type("float32[64,32]"), "this gathers all of it: name `X` for dimension 1")
                    .hint(Clue::Has(AllGather), "the gather is not needed: one `reshard` moves the rest")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "two_layers",
            chapter: "products.md",
            task: "`x`, `up` and `down` are on every device. Split `up` and `down` so that `relu(x·up)·down` \
                   takes one all-reduce.",
            grade: |a| {
                let mesh = line()?;
                let (x, up, down) = (normal(3, [16, 32]), normal(4, [32, 64]), normal(5, [64, 32]));
                let all = |x: &Array| x.put(&mesh, p![]);
                Check::new(three(a.two_layers, &all(&x), &all(&up), &all(&down)))
                    .elements(x.dot(&up).relu().dot(&down))
                    .ty("float32[16,32]")
                    .sent(&[(AllReduce, 1, 3584)])
                    .hint(Clue::Silent, "every device computes all of it: split `up` and `down`")
                    .hint(
                        Clue::Has(AllGather),
                        "something is split and gathered again: split the columns of `up` and the rows of `down`",
                    )
                    .hint(
                        Clue::More,
                        "split the dimension between the layers: the columns of `up` and the rows of `down`",
                    )
                    .hint(Clue::Error("error["), "the columns of `up` and the rows of `down` are one dimension")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "gram",
            chapter: "products.md",
            task: "`x` is `float32[64@X,32]`. Return `xᵀ·x` with its rows split, for half of the bytes of an \
                   all-reduce.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                Check::new(one(a.gram, &x.put(&line()?, p!["X", _])))
                    .elements(x.t().dot(&x))
                    .ty("float32[32@X,32]")
                    .sent(&[(ReduceScatter, 1, 3584)])
                    .hint(
                        Clue::Type("float32[32,32]"),
                        "all devices get all of it: split dimension 0 over `X`",
                    )
                    .hint(Clue::Type("float32[32,32@X]"), "its columns are split: name `X` for dimension 0")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "gathered_bytes",
            chapter: "costs.md",
            task: "`float32[1024@X,256]` is split over 8 devices and gathered by all. Return the bytes that \
                   each device receives.",
            grade: |a| {
                let x = F32.array_type([1024, 256]).on(&line()?, p!["X", _]);
                let bytes = jit(|x: &Array| x.reshard(p![])).lower(x)?.collectives().bytes();
                Check::new(text((a.gathered_bytes)()))
                    .text(bytes)
                    .hint(Clue::Text("1048576"), "its own block is there already: seven eighths arrive")
                    .hint(Clue::Text("131072"), "that is one block: a device receives the other seven")
                    .hint(Clue::Text("7340032"), "that is the sum over all devices: one receives an eighth")
                    .hint(Clue::Text("229376"), "those are elements: a float32 has four bytes")
                    .grade()
            },
        },
    ]
}
