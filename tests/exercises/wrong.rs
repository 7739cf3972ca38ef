//! Common wrong answers, and the hint that each gets.

use crate::answers::{self, Answers};
use crate::grader::Grade;
use crate::{report, start, tasks};
use atmesh::Error;
use atmesh::nd::{self, ArrayView1};
use atmesh::{optim, prelude::*};

/// A wrong answer: the exercise, the answer among right ones, and words of the hint.
type Wrong = (&'static str, Answers, &'static str);

/// Returns wrong answers of these exercises.
macro_rules! wrong {
    ($($name:ident, $answer:expr, $hint:literal;)*) => {
        vec![$((stringify!($name), Answers { $name: $answer, ..answers::ANSWERS }, $hint),)*]
    };
}

fn arrays() -> Vec<Wrong> {
    wrong! {
        fewest_bytes, || Ok(p!["X", "Y"]), "this cuts rows";
        fewest_bytes, || Ok(p!["Y", _]), "along `X` hold the same";
        fewest_bytes, || Ok(p!["X", _]), "along `Y` hold the same";
        fewest_bytes, || Ok(p![("Y", "X"), _]), "is the major one";
        first_row, || Ok(10), "`Y` is the major axis";
        first_row, || Ok(3), "a block has two rows";
        first_row, || Ok(5), "index of the device";
        normalized, |x| Ok(x / x.square().sum(Dims::keep(1))), "`.sqrt()`";
        normalized, |x| Ok(x / x.square().sum(..).sqrt()), "over dimension 1";
        normalized, |x| Ok(x / x.square().sum(1).sqrt()), "Dims::keep(1)";
        padded_mean, |mesh, x| Ok(x.pad(0.0, [(0, 2, 0)]).put(mesh, p!["X"]).mean(..)), "divide by 12";
        padded_mean, |mesh, x| Ok(x.put(mesh, p!["X"]).sum(..) / 10.0), "x.pad(0.0, [(0, 2, 0)])";
        padded_mean, |mesh, x| Ok(x.pad(1.0, [(0, 2, 0)]).put(mesh, p!["X"]).sum(..) / 10.0), "pad by 0.0";
        padded_mean, |_, x| Ok(x.mean(..)), "nothing is split yet";
    }
}

fn communication() -> Vec<Wrong> {
    wrong! {
        column_sums, |x| Ok(x.sum(0)), "give the spec of the result";
        column_sums, |x| Ok(x.sum_to(0, p![_; U: "X"])), "still pending";
        turned, |x| Ok(x.clone()), "rows are still split";
        turned, |x| Ok(x.reshard(p![])), "this gathers all";
        turned, |x| Ok(x.reshard(p![]).reshard(p![_, "X"])), "the gather is not needed";
        two_layers, |x, up, down| Ok(x.dot(up).relu().dot(down)), "split `up` and `down`";
        two_layers, |x, up, down| Ok(x.dot(up.reshard(p![_, "X"])).relu().dot_to(down.reshard(p![_, "X"]), p![])),
            "the rows of `down`";
        two_layers, |x, up, down| Ok(x.dot(up.reshard(p![_, "X"])).relu().dot(down.reshard(p!["X", _]))),
            "are one dimension";
        gram, |x| Ok(x.t().dot_to(x, p![])), "split dimension 0";
        gram, |x| Ok(x.t().dot_to(x, p![_, "X"])), "name `X` for dimension 0";
        gathered_bytes, || Ok(1 << 20), "seven eighths";
        gathered_bytes, || Ok(1 << 17), "that is one block";
        gathered_bytes, || Ok(7 << 20), "sum over all devices";
        gathered_bytes, || Ok(7 << 15), "four bytes";
    }
}

fn explicit() -> Vec<Wrong> {
    wrong! {
        summed_product, |x, w| Ok(x.dot(w)), "`dot_to` takes the spec";
        summed_product, |x, w| Ok(x.dot_to(w, p!["X", "Y"])), "do not name `Y`";
        summed_product, |x, w| Ok(x.dot_to(w, p!["X", _; U: "Y"])), "leave out `U`";
        summed_product, |x, w| Ok(x.dot_to(w, p![])), "the rows were gathered";
        biased, |x, b| Ok(x + b.reshard(p![])), "over `Y`";
        biased, |x, b| Ok((x.reshard(p![_, "X"]) + b).reshard(p!["X", "Y"])), "the matrix is moved";
        biased, |x, b| Ok(x.reshard(p![_, "X"]) + b), "`x` has to stay";
        heads, |x| Ok(x.reshape([16, 8, 8])), "takes it first";
        heads, |x| Ok(x.reshape([16, 8, 8]).transpose([2, 1, 0])), "dimension 1 has the heads";
        heads, |x| Ok(x.reshape([8, 16, 8])), "keeps the order";
    }
}

fn unreduced() -> Vec<Wrong> {
    wrong! {
        late_sum, |a, b| Ok(a.dot_to(b, p![]) + a.dot_to(2.0 * b, p![])), "leave both pending";
        late_sum, |a, b| Ok((a.dot_to(b, p!["X", _]) + a.dot_to(2.0 * b, p!["X", _])).reshard(p![])),
            "two sums are scattered";
        late_sum, |a, b| Ok(a.dot_to(3.0 * b, p![_, _; U: "X"])), "still pending";
        late_relu, |a, b| Ok(a.dot_to(b, p![]).relu().reshard(p!["X", _])), "let `reshard` scatter it";
        late_relu, |a, b| Ok(a.dot_to(b, p![]).relu()), "on all devices";
        one_sum, |w, x, y| {
            let loss = |w: &Array, x: &Array| x.dot(w).square().sum(..);
            Ok(grad(w, |w| loss(&w, x)) + grad(w, |w| loss(&w, y)))
        }, "mark `w`";
        one_sum, |w, x, _| {
            let marked = w.reshard(p![; U: "X"]);
            Ok(grad(marked, |w| x.dot(&w).square().sum(..)))
        }, "its gradient is one";
    }
}

fn auto_and_manual() -> Vec<Wrong> {
    wrong! {
        smoothed, |x| Ok((x.shift(1, 0, 0.0) + x + x.shift(-1, 0, 0.0)) / 3.0), "`roll` brings the last";
        smoothed, |x| Ok((x.roll(1, 0) + x + x.roll(1, 0)) / 3.0), "both are the left one";
        smoothed, |x| Ok((x.roll(-1, 0) + x + x.roll(-1, 0)) / 3.0), "both are the right one";
        pinned, |x, y| Ok((x + y.t()).constrain(p![])), "nothing is split";
        laplacian, |x| {
            let rows = x.roll(1, 0) + x.roll(-1, 0);
            Ok(&rows + &rows - 4.0 * x)
        }, "roll dimension 1";
        laplacian, |x| {
            let x = &x.constrain(p![]);
            Ok(x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4.0 * x)
        }, "roll the sharded array";
        own_mean, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| x - x.mean(..).psum("X")).call(x)
        }, "`pmean` takes their mean";
        own_mean, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| {
                x - x.all_gather("X", CollectiveDim::tiled(0)).mean(..)
            })
            .call(x)
        }, "a mean is one number";
        from_left, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| x + x.ppermute("X", Permutation::ring(-1))).call(x)
        }, "the right neighbour";
        from_left, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| x + x.ppermute("X", Permutation::shift(1))).call(x)
        }, "close the ring";
        own_softmax, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| {
                let e = (x - x.max(..)).exp();
                &e / e.sum(..).psum("X")
            })
            .call(x)
        }, "the same maximum";
        own_softmax, |mesh, x| {
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| {
                let all = x.all_gather("X", CollectiveDim::tiled(0));
                let top = all.max(..);
                (x - &top).exp() / (&all - top).exp().sum(..)
            })
            .call(x)
        }, "only a maximum and a sum";
    }
}

fn programs() -> Vec<Wrong> {
    wrong! {
        looked_up, |table, ids| Ok(table.reshard(p![]).take(ids, 0)), "the table is gathered";
        looked_up, |table, ids| Ok(table.take_to(ids, 0, p![_, _; U: "X"])), "leave out `U`";
        counts, |words| Ok(words.reshard(p![]).bincount(8)), "count its own";
        highest, |x| Ok(x.cummax(0)), "down the columns";
        step, |w, x| Ok(w + 0.1 * grad(w, |w| x.dot(w).square().sum(..))), "this climbs";
        step, |w, x| Ok(w - 0.05 * grad(w, |w| x.dot(w).square().sum(..))), "factor of 2";
        step, |w, x| Ok(w - 0.1 * grad(w, |w| x.dot(w).square().mean(..))), "not the sum";
        step, |w, x| Ok(w - 0.1 * grad(w, |w| x.dot_to(w, p![_, "X"]).square().sum(..))), "split by rows";
        curvature, |x, _| Ok(12.0 * x.square()), "multiply it by `v`";
        curvature, |x, v| Ok(atmesh::hessian(x, |x| x.powi(4).sum(..)).dot(v)), "`hvp` makes none";
        held, |w, x| Ok(grad(w, |w| (0.5 * x.dot(&w)).stop_gradient().square().sum(..))), "stops everywhere";
        power, |m, v| {
            let v = v.reshard(p![]);
            Ok(fori_loop(0..10, v, |_, v| {
                let v = m.dot(&v);
                &v / v.square().sum(..).sqrt()
            }))
        }, "gather inside the loop";
        power, |m, v| {
            let m = m.reshard(p![]);
            Ok(fori_loop(0..10, v, |_, v| {
                let v = m.dot(v.reshard(p![]));
                (&v / v.square().sum(..).sqrt()).reshard(p!["X"])
            }))
        }, "the matrix stays";
        averages, |xs| {
            let start = xs.slice(ix![0]).zeros_like();
            Ok(scan(start, xs, |mean, x| (0.9 * mean + 0.1 * &x, x)).0)
        }, "after the last step";
        averages, |xs| Ok(0.1 * xs), "the carry is the mean";
        halved, |x| Ok(while_loop(x, |x| x.square().sum(..).lt(1.0), |x| x / 2.0)), "while the sum is above 1";
        two_keys, |key, _| {
            let [a, b] = key.split();
            Ok(b.normal([4]) - a.normal([4]))
        }, "the first key is for `a`";
        two_keys, |key, _| {
            let [a, _] = key.split();
            Ok(key.normal([4]) - a.normal([4]))
        }, "after it was split";
        masked, |mesh, x| {
            Ok(Key::new(7).bernoulli([64], 0.75).put(mesh, p!["X"]).select(x / 0.25, 0.0))
        }, "0.25 is the part that is dropped";
        masked, |mesh, x| {
            let key = Key::new(7);
            shard_map(mesh, p!["X"], p!["X"], |x: &Array| key.bernoulli([8], 0.75).select(x / 0.75, 0.0)).call(x)
        }, "the same mask";
        own_slopes, |w, x| Ok(vmap(x, |row| grad(w, |w| w.dot(&row).tanh()))), "take the norm of each";
        distances, |x, y| Ok(vmap(x, |a| vmap(y, |b| (&a - b).square().sum(..).sqrt()))), "leave out the root";
        distances, |x, y| Ok(vmap(y, |b| vmap(x, |a| (a - &b).square().sum(..)))), "swap the two";
    }
}

fn scale() -> Vec<Wrong> {
    wrong! {
        accumulated, |w, xs| {
            Ok(4.0 * optim::accumulate(w, xs, |w, x| x.dot(&w).square().sum(..)).1)
        }, "returns the mean";
        clipped, |w, x| Ok(w - 0.1 * grad(w, |w| x.dot(&w).square().sum(..))), "not clipped";
        summed_bytes, || Ok(15 << 21), "a reduce-scatter and a gather";
        summed_bytes, || Ok(1 << 25), "15/16 of it";
        summed_bytes, || Ok(1 << 26), "15/16 of that";
        summed_bytes, || Ok(15 << 23), "two bytes";
        best_axis, || Ok(1), "gradients of all weights";
        best_axis, || Ok(8), "activations of all examples";
        typed_layer, |x, w| {
            let (x, w) = (x.clone().untyped(), w.clone().untyped());
            x.reshard(p!["Data", _]).dot(w.reshard(p![])).relu().typed()
        },
            "operands are gathered";
        typed_late, |a, b| {
            let [a, b] = [a, b].map(|x| x.clone().untyped().reshard(p!["Data", _]));
            (a + b).typed()
        }, "a summand was summed before";
        typed_late, |a, _| (a + a).untyped().reshard(p!["Data", _]).typed(), "added twice";
        finite, |x| Ok((x.softmax(1) + 1e-9).log()), "is exact";
        masked_mean, |mesh, x| {
            shard_map(mesh, p!["X"], p![], |x: &Array| x.gt(0.0).select(x, 0.0).mean(..).pmean("X")).call(x)
        }, "not by all";
        less_sent, |x| Ok(x.sum(0).relu()), "before the sum";
        swapped, |mesh, x| {
            spmd(mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
                let other = dev.neighbor_periodic("X", 1)?;
                dev.send(other, &x)?;
                dev.recv::<f32, nd::Ix1>(other)?;
                Ok(x.to_owned())
            })
            .call(x)
        }, "return what was received";
    }
}

#[test]
fn wrong_answers_get_their_hint() -> Result<()> {
    let all = tasks::all();
    let wrong =
        [arrays(), communication(), explicit(), unreduced(), auto_and_manual(), programs(), scale()].concat();
    let mut missed = Vec::new();
    for (name, answers, words) in &wrong {
        let exercise = all.iter().find(|e| e.name == *name).expect("an exercise has this name");
        match (exercise.grade)(answers)? {
            Grade::Wrong { hint: Some(hint), .. } if hint.contains(words) => {}
            grade => missed.push(format!("{name}, {words:?}: {grade:?}")),
        }
    }
    assert!(missed.is_empty(), "{}\n{}", missed.len(), missed.join("\n"));
    // each exercise has a known mistake: here, or in its starting program
    for exercise in &all {
        let is_here = wrong.iter().any(|(name, ..)| *name == exercise.name);
        let starts_open = (exercise.grade)(&start::ANSWERS)? == Grade::Open;
        assert!(is_here || !starts_open, "{} has no wrong answer", exercise.name);
    }
    Ok(())
}

/// What the check says of an open exercise, a wrong type, wrong bytes and a right answer. The book
/// shows it.
#[test]
fn reports_are_those_of_the_book() -> Result<()> {
    let all = tasks::all();
    let mine = Answers {
        late_sum: |a, b| Ok(a.dot_to(b, p![]) + a.dot_to(2.0 * b, p![])),
        turned: |x| Ok(x.clone()),
        column_sums: start::ANSWERS.column_sums,
        ..answers::ANSWERS
    };
    let mut text = String::new();
    for name in ["column_sums", "turned", "late_sum", "gram"] {
        let k = all.iter().position(|e| e.name == name).expect("an exercise has this name");
        text += &report::page(k + 1, &all[k], &(all[k].grade)(&mine)?);
        text += "\n";
    }
    let text = text.trim_end().to_string() + "\n";
    let path = format!("{}/tests/golden/exercises.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(&path, &text).map_err(Error::other)?;
    }
    assert_eq!(text, std::fs::read_to_string(&path).map_err(Error::other)?);
    Ok(())
}
