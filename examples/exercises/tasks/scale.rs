//! Exercises on training, planning, typed arrays and debugging.

use super::{Exercise, line, normal};
use crate::grader::{Check, Clue, Outcome, one, text, two};
use crate::start::Pod;
use atmesh::CollectiveKind::{AllGather, AllReduce};
use atmesh::typed::prelude::*;
use atmesh::{optim, prelude::*};

pub(super) fn exercises() -> Vec<Exercise> {
    [training(), planning(), typed(), debugging()].into_iter().flatten().collect()
}

fn training() -> Vec<Exercise> {
    let part = "training";
    vec![
        Exercise {
            part,
            name: "adam_steps",
            chapter: "train_optimizer.md",
            task: "Return the weights after two steps of Adam. The second step needs the state that the \
                   first one returned.",
            grade: |a| {
                let (mesh, w, x) = (line()?, normal(1, [8]), normal(2, [64, 8]));
                let steps = |keeps: bool| -> Result<Array> {
                    let opt = optim::adam(0.1);
                    let (mut w, start) = (w.clone(), opt.init(&w)?);
                    let mut state = start.clone();
                    for _ in 0..2 {
                        let slope = grad(&w, |w| x.dot(&w).square().mean(..));
                        (w, state) = opt.step(&w, &slope, if keeps { &state } else { &start });
                    }
                    Ok(w)
                };
                Check::new(two(a.adam_steps, &w.put(&mesh, p![]), &x.put(&mesh, p!["X", _])))
                    .elements(steps(true)?)
                    .ty("float32[8]")
                    .hint(
                        Clue::Elements(steps(false)?),
                        "both steps start from the first state: keep the new one",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "accumulated",
            chapter: "train_accumulation.md",
            task: "`xs` is `float32[4,64@X,32]`: four small batches. Return the mean of their gradients \
                   with respect to `w` with one all-reduce. Use `optim::accumulate`.",
            grade: |a| {
                let (mesh, w, xs) = (line()?, normal(1, [32]), normal(2, [4, 64, 32]));
                let rows = xs.reshape([256, 32]);
                Check::new(two(a.accumulated, &w.put(&mesh, p![]), &xs.put(&mesh, p![_, "X", _])))
                    .elements(rows.t().dot(rows.dot(&w)) / 2.0)
                    .ty("float32[32]")
                    .sent(&[(AllReduce, 1, 224)])
                    .hint(
                        Clue::More,
                        "each batch sums its gradient: `optim::accumulate` sums once, after its loop",
                    )
                    .hint(
                        Clue::Elements(2.0 * rows.t().dot(rows.dot(&w))),
                        "that is the sum of the four: `accumulate` returns the mean",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "clipped",
            chapter: "train_optimizer.md",
            task: "Return the weights after one step of gradient descent with rate 0.1. Clip the gradient to \
                   the norm 1 before the rate is applied.",
            grade: |a| {
                let (mesh, w, x) = (line()?, normal(1, [8]), normal(2, [64, 8]));
                let slope = 2.0 * x.t().dot(x.dot(&w));
                let unit = &slope / slope.square().sum(..).sqrt();
                Check::new(two(a.clipped, &w.put(&mesh, p![]), &x.put(&mesh, p!["X", _])))
                    .elements(&w - 0.1 * &unit)
                    .ty("float32[8]")
                    .hint(
                        Clue::Elements(&w - unit),
                        "the step has norm 1: a chain runs from the left, so clip first",
                    )
                    .hint(Clue::Elements(&w - 0.1 * slope), "the gradient is not clipped")
                    .grade()
            },
        },
    ]
}

fn planning() -> Vec<Exercise> {
    let part = "planning";
    vec![
        Exercise {
            part,
            name: "summed_bytes",
            chapter: "costs.md",
            task: "A gradient `bfloat16[4096,4096]` is summed over 16 devices by an all-reduce. Return the \
                   bytes that each device receives.",
            grade: |a| {
                let mesh = Mesh::without_devices([("X", 16)])?;
                let parts = BF16.array_type([16, 4096, 4096]).on(&mesh, p!["X", _, _]);
                let bytes = jit(|x: &Array| x.sum(0)).lower(parts)?.collectives().bytes();
                Check::new(text((a.summed_bytes)()))
                    .text(bytes)
                    .hint(
                        Clue::Text("31457280"),
                        "an all-reduce is a reduce-scatter and a gather: twice that",
                    )
                    .hint(Clue::Text("33554432"), "that is the gradient: both phases move 15/16 of it")
                    .hint(Clue::Text("67108864"), "its own sixteenth does not travel: 15/16 of that")
                    .hint(Clue::Text("125829120"), "a bfloat16 has two bytes, not four")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "best_axis",
            chapter: "network.md",
            task: "A step trains two layers, 1024 → 4096 → 1024, on 4,096 examples and eight devices. Return \
                   the size of the axis `model`, out of 1, 4 and 8, with which a device receives the fewest \
                   bytes.",
            grade: |a| {
                let bytes = |model: usize| -> Result<u64> {
                    let mesh = Mesh::without_devices([("data", 8 / model), ("model", model)])?;
                    let up = F32.array_type([1024, 4096]).on(&mesh, p![_, "model"]);
                    let down = F32.array_type([4096, 1024]).on(&mesh, p!["model", _]);
                    let x = F32.array_type([4096, 1024]).on(&mesh, p!["data", _]);
                    let step = jit(|up: &Array, down: &Array, x: &Array| {
                        grad((up, down), |(up, down)| {
                            let y = x.dot(&up).relu().dot_to(&down, p!["data", _]);
                            (y - x).square().mean(..)
                        })
                    });
                    Ok(step.lower((up, down, x))?.collectives().bytes())
                };
                let sizes = [1, 4, 8].map(|model| bytes(model).map(|bytes| (bytes, model)));
                let sizes = sizes.into_iter().collect::<Result<Vec<_>>>()?;
                let (_, best) = *sizes.iter().min().expect("there are three");
                Check::new(text((a.best_axis)()))
                    .text(best)
                    .hint(Clue::Text("1"), "with 1 the gradients of all weights are summed over 8 devices")
                    .hint(Clue::Text("8"), "with 8 the activations of all examples are summed over 8 devices")
                    .grade()
            },
        },
    ]
}

fn typed() -> Vec<Exercise> {
    let part = "typed";
    vec![
        Exercise {
            part,
            name: "typed_layer",
            chapter: "typed.md",
            task: "The signature has the shardings: `x` and `w` are split over `Model` along the sum, and \
                   the result is not. Write the product; rustc accepts only the right spec.",
            grade: |a| {
                let (mesh, x, w) = (Pod::mesh()?, normal(1, [16, 32]), normal(2, [32, 8]));
                let f = |x: &Array, w: &Array| Ok((a.typed_layer)(&x.typed()?, &w.typed()?)?.untyped());
                Check::new(two(f, &x.put(&mesh, p!["Data", "Model"]), &w.put(&mesh, p!["Model", _])))
                    .elements(x.dot(&w).relu())
                    .ty("float32[16@Data,8]")
                    .sent(&[(AllReduce, 1, 384)])
                    .hint(
                        Clue::Has(AllGather),
                        "operands are gathered: `matmul_to(w, P![Data, _])` sums instead",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "typed_late",
            chapter: "typed_rules.md",
            task: "`a` and `b` are unreduced over `Model`: each device has a summand. Add \
                   them, so that the `reshard` that follows sums once.",
            grade: |a| {
                let (mesh, x) = (Pod::mesh()?, normal(1, [16, 8]));
                let y = normal(2, [16, 8]);
                let f = |x: &Array, y: &Array| Ok((a.typed_late)(&x.typed()?, &y.typed()?)?.untyped());
                let part = |x: &Array| x.put(&mesh, p!["Data", _]).reshard(p!["Data", _; U: "Model"]);
                Check::new(two(f, &part(&x), &part(&y)))
                    .elements(&x + &y)
                    .ty("float32[16@Data,8]")
                    .sent(&[(AllReduce, 1, 384)])
                    .hint(Clue::More, "a summand was summed before: add the two as they are, `a + b`")
                    .hint(Clue::Elements(&x + &x), "`a` is added twice")
                    .grade()
            },
        },
    ]
}

fn debugging() -> Vec<Exercise> {
    let part = "debugging";
    vec![
        Exercise {
            part,
            name: "finite",
            chapter: "debugging.md",
            task: "The logarithm of a softmax is -inf where the softmax is 0. Return it without infinite \
                   elements.",
            grade: |a| {
                let x = 100.0 * normal(1, [64, 32]);
                let floor = (x.softmax(1) + 1e-9).log();
                Check::new(one(a.finite, &x.put(&line()?, p!["X", _])))
                    .elements(x.log_softmax(1))
                    .ty("float32[64@X,32]")
                    .sent(&[])
                    .hint(Clue::Elements(floor), "a small number hides it: `log_softmax` is exact")
                    .hint(
                        Clue::Elements(x.softmax(1).log()),
                        "exp underflows to 0: `log_softmax` subtracts first",
                    )
                    .grade()
            },
        },
        Exercise {
            part,
            name: "masked_mean",
            chapter: "debugging.md",
            task: "The mean of the positive elements of `x: float32[64@X]` comes out wrong, since devices \
                   have different numbers of them. Repair it, with one all-reduce of \
                   two numbers.",
            grade: |a| {
                let (mesh, x) = (line()?, normal(1, [64]));
                let positive = x.gt(0.0).astype(F32);
                let blocks = |x: Array| x.reshape([8, 8]).sum(1);
                let means = blocks(&x * &positive) / blocks(positive.clone());
                Check::new(one(|x| (a.masked_mean)(&mesh, x), &x.put(&mesh, p!["X"])))
                    .elements((&x * &positive).sum(..) / positive.sum(..))
                    .ty("float32[]")
                    .sent(&[(AllReduce, 1, 16)])
                    .hint(
                        Clue::Elements(means.mean(..)),
                        "a mean of means weighs all devices the same: sum both numbers over the devices first",
                    )
                    .hint(Clue::Elements((&x * &positive).mean(..)), "divide by the positive ones, not by all")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "less_sent",
            chapter: "reports.md",
            task: "The report of this program has an all-gather of all rows. Return the same result with one \
                   all-reduce of the sums.",
            grade: |a| {
                let x = normal(1, [64, 32]);
                Check::new(one(a.less_sent, &x.put(&line()?, p!["X", _])))
                    .elements(x.relu().sum(0))
                    .ty("float32[32]")
                    .sent(&[(AllReduce, 1, 224)])
                    .hint(
                        Clue::Has(AllGather),
                        "the line that gathers is in the report: leave out the `reshard`",
                    )
                    .hint(Clue::Elements(x.sum(0).relu()), "relu comes before the sum")
                    .grade()
            },
        },
        Exercise {
            part,
            name: "swapped",
            chapter: "native.md",
            task: "Two devices swap their blocks, and wait for each other forever. Repair the order of \
                   messages.",
            grade: |a| {
                let (mesh, x) = (Mesh::new([("X", 2)])?, normal(1, [8]));
                let outcome = (a.swapped)(&mesh, &x.put(&mesh, p!["X"]));
                Check::new(outcome.map(|y| Outcome::Program(y, None)))
                    .elements(x.roll(4, 0))
                    .hint(Clue::Error("wait"), "both wait before they send: send first, which does not wait")
                    .hint(Clue::Elements(x), "each keeps its own block: return what was received")
                    .grade()
            },
        },
    ]
}
