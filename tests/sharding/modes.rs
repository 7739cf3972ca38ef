//! Regions of a program whose axes have another type than outside: in compiled functions, loops and
//! derivatives.

use crate::error_checks::Unquoted as _;
use atmesh::nd::ArrayD;
use atmesh::prelude::*;
use atmesh::{Axes, Axis, AxisType, auto_axes_over, explicit_axes_over};

fn close(a: &Array, b: &Array) {
    let (a, b) = (a.reshard(p![]), b.clone());
    let (x, y): (ArrayD<f32>, ArrayD<f32>) = (a.to_ndarray().unwrap(), b.to_ndarray().unwrap());
    assert_eq!(x.shape(), y.shape());
    for (x, y) in x.iter().zip(&y) {
        assert!((x - y).abs() <= 2e-5 * (1.0 + y.abs()), "{x} is not {y}");
    }
}
fn explicit() -> Mesh {
    Mesh::new([("data", 2), ("model", 4)]).unwrap()
}
fn normal<const N: usize>(seed: u64, shape: [usize; N]) -> Array {
    Key::new(seed).normal(shape)
}
const ENGINES: [EngineKind; 2] = [Lockstep, Threads];

/// Trains a perceptron: the hidden layer is left to the partitioner, its weights are captured, and
/// gradients flow through.
#[test]
fn gradients_flow_to_what_an_auto_part_captures() -> Result<()> {
    let mesh = explicit();
    let (x, y) = (normal(0, [16, 8]), normal(1, [16, 4]));
    let (w1, w2) = (normal(2, [8, 32]), normal(3, [32, 4]));
    let plain =
        |x: &Array, y: &Array, w1: &Array, w2: &Array| (x.dot(w1).tanh().dot(w2) - y).square().mean(..);
    let step = |ws: &(Array, Array), x: &Array, y: &Array| {
        value_and_grad(ws, |(w1, w2)| {
            let out = auto_axes(x, p!["data", _], |x| {
                assert_eq!(type_of(&x), "float32[16,8]");
                assert_eq!(type_of(&w1), "float32[8,32]"); // as its operations see it
                x.dot(&w1).tanh().dot(&w2)
            });
            assert_eq!(type_of(&out), "float32[16@data,4]");
            (out - y).square().mean(..)
        })
    };
    let (loss, (g1, g2)) = value_and_grad((&w1, &w2), |(w1, w2)| plain(&x, &y, &w1, &w2));
    let ws = (w1.put(&mesh, p![_, "model"]), w2.put(&mesh, p!["model", _]));
    let (xs, ys) = (x.put(&mesh, p!["data", _]), y.put(&mesh, p!["data", _]));
    for engine in ENGINES {
        let (l, (s1, s2)) = jit(step).engine(engine).call((&ws, &xs, &ys))?;
        assert_eq!(type_of(&s1), "float32[8,32@model]");
        assert_eq!(type_of(&s2), "float32[32@model,4]");
        close(&l, &loss);
        close(&s1, &g1);
        close(&s2, &g2);
    }
    let (l, (s1, _)) = step(&ws, &xs, &ys);
    close(&l, &loss);
    close(&s1, &g1);
    Ok(())
}

#[test]
fn loops_inside_and_outside_of_an_auto_part() -> Result<()> {
    let mesh = explicit();
    let x = normal(0, [8, 8]);
    let body = |x: &Array| x.dot(x.t()).tanh() + 0.1 * x;
    let want = fori_loop(0..3, &x, |_, x| fori_loop(0..2, x, |_, x| body(&x)));
    let want_g = grad(&x, |x| fori_loop(0..3, x, |_, x| fori_loop(0..2, x, |_, x| body(&x))).sum(..));
    let f = |x: &Array| {
        fori_loop(0..3, x, |_, x| auto_axes(x, p!["data", "model"], |x| fori_loop(0..2, x, |_, x| body(&x))))
    };
    let placed = x.put(&mesh, p!["data", "model"]);
    for engine in ENGINES {
        let y = jit(f).engine(engine).call(&placed)?;
        assert_eq!(type_of(&y), "float32[8@data,8@model]");
        close(&y, &want);
        let g = jit(|x: &Array| grad(x, |x| f(&x).sum(..))).engine(engine).call(&placed)?;
        assert_eq!(type_of(&g), "float32[8@data,8@model]");
        close(&g, &want_g);
    }
    Ok(())
}

#[test]
fn several_results_each_with_its_spec() -> Result<()> {
    let mesh = explicit();
    let (a, b) = (normal(0, [8, 8]), normal(1, [8, 8]));
    let (pa, pb) = (a.put(&mesh, p!["data", _]), b.put(&mesh, p![_, "model"]));
    let f = jit(|a: &Array, b: &Array| {
        auto_axes((a, b), (p!["model", _], (p![], p![_, "data"])), |(a, b)| (a.dot(&b), (a.sum(0), b.exp())))
    });
    let (product, (sum, e)) = f.call((&pa, &pb))?;
    let types = [type_of(&product), type_of(&sum), type_of(&e)].map(|t| t.to_string());
    assert_eq!(types, ["float32[8@model,8]", "float32[8]", "float32[8,8@data]"]);
    close(&product, &a.dot(&b));
    close(&sum, &a.sum(0));
    close(&e, &b.exp());
    Ok(())
}

/// Over auto axes a dimension need not be divisible, so an auto region takes sizes that explicit
/// types reject.
#[test]
fn what_does_not_divide_is_for_an_auto_part() -> Result<()> {
    let mesh = explicit();
    let x = normal(0, [8, 8]);
    let f = |x: &Array| x.slice(ix![1..4, ..]).pad(0.0, [(2, 3, 0), (0, 0, 0)]) + x;
    let placed = x.put(&mesh, p!["model", _]);
    assert!(jit(f).call(&placed).is_err());
    let g = |x: &Array| auto_axes(x, p!["model", _], |x| f(&x));
    close(&jit(g).call(&placed)?, &f(&x));
    let slope = jit(|x: &Array| grad(x, |x| (g(&x) * normal(1, [8, 8])).sum(..))).call(&placed)?;
    close(&slope, &grad(&x, |x| (f(&x) * normal(1, [8, 8])).sum(..)));
    Ok(())
}

#[test]
fn an_explicit_part_of_an_auto_program() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    let (x, w) = (normal(0, [8, 8]), normal(1, [8, 8]));
    let plain = |x: &Array, w: &Array| fori_loop(0..3, x, |_, x| x.dot(w).tanh()).square().sum(..);
    let f = |x: &Array, w: &Array| {
        let y = fori_loop(0..3, x, |_, x| {
            assert_eq!(type_of(&x), "float32[8,8]");
            explicit_axes((&x, w), (p!["data", _], p![_, "model"]), |(x, w)| {
                let y = x.dot(&w);
                assert_eq!(type_of(&y), "float32[8@data,8@model]");
                y.tanh()
            })
        });
        y.square().sum(..)
    };
    let (px, pw) = (x.put(&mesh, p!["data", _]), w.put(&mesh, p![]));
    let (want, want_g) = value_and_grad(&w, |w| plain(&x, &w));
    for engine in ENGINES {
        let (got, g) =
            jit(|x: &Array, w: &Array| value_and_grad(w, |w| f(x, &w))).engine(engine).call((&px, &pw))?;
        assert_eq!(type_of(&g), "float32[8,8]");
        close(&got, &want);
        close(&g, &want_g);
    }
    Ok(())
}

/// Gradients that are unreduced inside an explicit region are reduced when they leave it.
#[test]
fn sets_of_an_explicit_part_end_with_it() -> Result<()> {
    let mesh = Mesh::auto([("data", 2)])?;
    let (x, w) = (normal(0, [8, 4]), normal(1, [4, 2]));
    let f = jit(|x: &Array, w: &Array| {
        explicit_axes((x, w), (p!["data", _], p![; R: "data"]), |(x, w)| {
            let g = grad(&w, |w| x.dot(&w).square().sum(..));
            assert_eq!(type_of(&g), "float32[4,2]{U:data}");
            &g + &g
        })
    });
    let y = f.call((x.put(&mesh, p!["data", _]), w.put(&mesh, p![])))?;
    assert_eq!(type_of(&y), "float32[4,2]");
    close(&y, &(2.0 * grad(&w, |w| x.dot(&w).square().sum(..))));
    Ok(())
}

#[test]
fn what_is_in_parts_is_summed_when_it_enters_an_auto_part() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let (a, b) = (normal(0, [4, 8]), normal(1, [8, 4]));
    let f = jit(|a: &Array, b: &Array| {
        let parts = a.dot_to(b, p![_, _; U: "X"]);
        auto_axes(parts, p!["X", _], |y| {
            assert_eq!(type_of(&y), "float32[4,4]");
            y.exp()
        })
    });
    let y = f.call((a.put(&mesh, p![_, "X"]), b.put(&mesh, p!["X", _])))?;
    assert_eq!(type_of(&y), "float32[4@X,4]");
    close(&y, &a.dot(&b).exp());
    Ok(())
}

/// A mesh with axes of both types: loops, branches and slices along either.
#[test]
fn mixed_meshes_train() -> Result<()> {
    let mesh = Mesh::with_types([("data", 2, AxisType::Explicit), ("model", 4, AxisType::Auto)])?;
    let (x, w, v) = (normal(0, [8, 6]), normal(1, [6, 10]), normal(2, [10]));
    let net = |x: &Array, w: &Array, v: &Array| {
        let h = fori_loop(0..2, x.dot(w), |_, h| h.tanh() + 1.0);
        let up = h.slice(ix![.., 1..]) - h.slice(ix![.., ..-1]);
        up.square().sum(..) + h.dot(v).square().sum(..)
    };
    let (want, (gw, gv)) = value_and_grad((&w, &v), |(w, v)| net(&x, &w, &v));
    let step = |ws: &(Array, Array), x: &Array| value_and_grad(ws, |(w, v)| net(x, &w, &v));
    // 10 columns over 4 devices need not be divisible: the axis is auto.
    let ws = (w.put(&mesh, p![_, "model"]), v.put(&mesh, p!["model"]));
    for engine in ENGINES {
        let (got, (sw, sv)) = jit(step).engine(engine).call((&ws, x.put(&mesh, p!["data", _])))?;
        assert_eq!([type_of(&sw), type_of(&sv)].map(|t| t.to_string()), ["float32[6,10]", "float32[10]"]);
        close(&got, &want);
        close(&sw, &gw);
        close(&sv, &gv);
    }
    Ok(())
}

#[test]
fn parts_nest_and_stand_in_manual_code() -> Result<()> {
    let mesh = explicit();
    let x = normal(0, [8, 8]);
    let placed = x.put(&mesh, p!["data", "model"]);
    let f = |x: &Array| {
        auto_axes(x, p!["data", _], |x| {
            let y = explicit_axes_over("model", &x, p![_, "model"], |x| {
                assert_eq!(type_of(&x), "float32[8,8@model]");
                let z = auto_axes_over("model", &x, p!["model", _], |x| {
                    assert_eq!(type_of(&x), "float32[8,8]");
                    x.dot(&x)
                });
                assert_eq!(type_of(&z), "float32[8@model,8]");
                z.sin()
            });
            assert_eq!(type_of(&y), "float32[8,8]");
            y
        })
    };
    let want = x.dot(&x).sin();
    close(&jit(f).call(&placed)?, &want);
    let g = jit(|x: &Array| grad(x, |x| f(&x).sum(..))).call(&placed)?;
    close(&g, &grad(&x, |x| x.dot(&x).sin().sum(..)));

    // Manual over `data`, left to the partitioner over `model`.
    let blocks = shard_map(&mesh, p!["data", _], p!["data", _], |x: &Array| {
        assert_eq!(type_of(x), "float32[4,8]{V:data}");
        auto_axes_over("model", x, p![_, "model"], |x| {
            assert_eq!(type_of(&x), "float32[4,8]{V:data}");
            &x - x.mean(..).psum("data") / 2.0
        })
    })
    .over("data");
    let y = jit(move |x: &Array| blocks.call(x)).call(x.put(&mesh, p!["data", _]))?;
    close(&y, &(&x - x.mean(..)));
    Ok(())
}

#[test]
fn examples_and_tangents_go_through_parts() -> Result<()> {
    let mesh = explicit();
    let xs = normal(0, [4, 8, 8]);
    let f = |x: &Array| auto_axes(x, p![], |x| x.dot(&x).tanh().sum(0));
    let placed = xs.put(&mesh, p![_, "model", _]);
    let ys = jit(|xs: &Array| vmap(xs, |x| f(&x))).call(&placed)?;
    close(&ys, &vmap(&xs, |x| x.dot(&x).tanh().sum(0)));
    let (y, dy) = jvp(&placed.slice(ix![0]), &placed.slice(ix![1]), |x| f(&x));
    let (want, d_want) = jvp(&xs.slice(ix![0]), &xs.slice(ix![1]), |x| x.dot(&x).tanh().sum(0));
    close(&y, &want);
    close(&dy, &d_want);
    Ok(())
}

/// A captured array is the whole array for the body, on every kind of axis, or is refused: it is
/// refused exactly if its type shards a dimension over an axis of the region.
#[test]
fn captures_are_whole_or_refused() -> Result<()> {
    let specs =
        [p![], p!["a"], p![_, "a"], p!["b"], p![_, "b"], p!["a", "b"], p![("a", "b")], p![_, ("b", "a")]];
    let kinds = [AxisType::Explicit, AxisType::Auto];
    let whole: Vec<f32> = (0..16).map(|i| (i * i % 7) as f32).collect();
    let rows = |y: Array| y.to_vec::<f32>();
    let (mut refused, mut accepted) = (0, 0);
    for (ka, kb) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| (kinds[i], kinds[j])) {
        let mesh = Mesh::with_types([("a", 2, ka), ("b", 2, kb)])?;
        let x = Array::arange(0.0..8.0f32);
        for spec in specs {
            let w = Array::from(whole.clone()).reshape([4, 4]).put(&mesh, spec);
            for over in ["a", "b", "ab"] {
                let axes: Vec<&str> = ["a", "b"].into_iter().filter(|a| over.contains(a)).collect();
                let explicit = |a: &&&str| (if **a == "a" { ka } else { kb }) == AxisType::Explicit;
                let is_sharded = |a: &&str| spec.dims().iter().any(|d| d.iter().any(|b| b.name() == *a));
                let bad = axes.iter().filter(explicit).any(is_sharded);
                for (nested, checked) in [(false, true), (true, true), (false, false)] {
                    let f = shard_map(&mesh, p![], p![], |x: &Array| {
                        let used = || &w * 2.0;
                        let y = if nested { cond(true, used, || &w + 0.0) } else { used() };
                        if !bad {
                            assert_eq!(type_of(&w), type_of(used()), "what the body sees of the capture");
                            assert_eq!(y.shape().unwrap(), [4, 4]);
                        }
                        x * y.sum(..)
                    })
                    .over(axes.iter().map(|a| Axis::from(*a)).collect::<Axes>());
                    let f = if checked { f } else { f.unchecked() };
                    let said = format!("{mesh} {spec} over {over} {nested} {checked}");
                    match f.call(&x) {
                        Err(e) => {
                            assert!(bad, "{said}: {e}");
                            let e = e.unquoted();
                            assert!(
                                e.contains("pass it as an argument") && e.contains("modes.rs"),
                                "{said}: {e}"
                            );
                            refused += 1;
                        }
                        Ok(y) => {
                            assert!(!bad, "{said} is accepted");
                            let total = 2.0 * whole.iter().sum::<f32>();
                            assert_eq!(
                                rows(y)?,
                                (0..8).map(|i| i as f32 * total).collect::<Vec<_>>(),
                                "{said}"
                            );
                            accepted += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 50 && accepted > 100, "{refused} refused, {accepted} accepted");
    Ok(())
}

/// Each help of the error is accepted and means what it says.
#[test]
fn the_ways_out_of_a_sharded_capture() -> Result<()> {
    let mesh = Mesh::new([("s", 4)])?;
    let w = Array::arange(1.0..5.0f32).put(&mesh, p!["s"]);
    let x = Array::ones([8]).put(&mesh, p!["s"]);
    let e = shard_map(&mesh, p!["s"], p!["s"], |x: &Array| x * w.sum(..)).call(&x).unwrap_err().unquoted();
    assert!(e.contains("`p![\"s\"]`") && e.contains("`.reshard(p![_])`"), "{e}");
    let blocks = shard_map(&mesh, (p!["s"], p!["s"]), p!["s"], |x: &Array, w: &Array| x * w.sum(..));
    assert_eq!(blocks.call((&x, &w))?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    let all = w.reshard(p![_]);
    let whole = shard_map(&mesh, p!["s"], p!["s"], |x: &Array| x * all.sum(..)).call(&x)?;
    assert_eq!(whole.to_vec::<f32>()?, [10.0; 8]);
    Ok(())
}
