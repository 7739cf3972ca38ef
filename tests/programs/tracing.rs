//! Tracing: trees, stages, control flow and errors.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{Error, ErrorKind, Tree};

#[derive(Clone, Tree)]
struct Layer<T = Array> {
    w: T,
    b: T,
}

#[derive(Clone, Tree)]
struct Mlp<T = Array> {
    layers: Vec<Layer<T>>,
    scale: Option<T>,
}

fn mlp() -> Mlp {
    let layer = |i, o| Layer { w: array(&[i, o]), b: array(&[o]) };
    Mlp { layers: vec![layer(4, 8), layer(8, 2)], scale: None }
}

fn array(shape: &[usize]) -> Array {
    Array::from(vec![1.0f32; shape.iter().product()]).reshape(shape)
}

#[test]
fn the_handle_and_compiled_functions_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Array>();
    crosses::<Mesh>();
    crosses::<atmesh::Compiled<(Array, Mlp), Vec<Array>>>();
}

#[test]
fn a_trace_types_as_it_goes() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let program = jit(|x: &Array, y: &Array| {
        let z = x + y;
        assert_eq!(type_of(&z), "int32[4@X,8@Y]");
        z * 2
    });
    let (x, y) = (typed("int32[4@X,1]", &mesh), typed("int32[1,8@Y]", &mesh));
    let traced = program.trace((x, y)).unwrap();
    assert_eq!(traced.program().output_types()[0].to_string(), "int32[4@X,8@Y]");
}

/// Parses the type of an array without data.
fn typed(text: &str, mesh: &Mesh) -> ArrayType {
    ArrayType::parse(text, mesh).unwrap()
}

#[test]
fn all_errors_of_a_trace_come_together() {
    let f = jit(|x: &Array| {
        let _ = x + Array::from([1.0f32, 2.0, 3.0]);
        let _ = x.dot(x);
        x.sin()
    });
    let e = f.trace(array(&[2, 4])).unwrap_err();
    assert_eq!(e.diagnostics().len(), 2, "{e}");
    assert!(e.diagnostics().iter().all(|d| d.location.is_some_and(|p| p.file().ends_with("tracing.rs"))));
}

#[test]
fn a_value_kept_after_its_trace_is_rejected() {
    let kept = std::cell::RefCell::new(None);
    let f = jit(|x: &Array| {
        *kept.borrow_mut() = Some(x.clone());
        x.clone()
    });
    let _ = f.trace(array(&[2])).unwrap();
    let old = kept.borrow().clone().unwrap();
    let e = (old + 1.0).ready().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Trace, "{e}");
    assert!(e.unquoted().contains("kept after its trace"), "{e}");
}

#[test]
fn the_first_cause_flows() {
    let bad = array(&[2]) + array(&[3]);
    let e: Error = (bad.sin() * 2.0).ready().unwrap_err();
    assert_eq!(e.diagnostics().len(), 1);
    assert_eq!(e.kind(), ErrorKind::Shape);
}

#[test]
fn trees_have_paths() {
    let mut names = Vec::new();
    let _ = tree::map_named(&mlp(), |path, a| {
        names.push(path.to_string());
        a.clone()
    });
    assert_eq!(names, ["layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b"]);
    let mut other = mlp();
    other.layers.pop();
    let wrong = tree::map2(&mlp(), &other, |a, _| a.clone());
    let e = wrong.layers[0].w.ty().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Tree);
    assert!(e.unquoted().contains("layers"), "{e}");
}

#[test]
fn a_struct_of_specs_shards_a_struct() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let layer = Layer { w: p!["X", _], b: p![] };
    let plan: Mlp<Spec> = Mlp { layers: vec![layer.clone(), layer], scale: None };
    let placed = tree::put(&mlp(), &mesh, &plan);
    assert_eq!(type_of(&placed.layers[0].w), "float32[4@X,8]");
    assert_eq!(type_of(&placed.layers[1].b), "float32[2]");
    let wrong = tree::put(&mlp(), &mesh, (p![], p![]));
    assert_eq!(wrong.layers[0].w.ty().unwrap_err().kind(), ErrorKind::Tree);
}

#[test]
fn functions_of_all_kinds_can_be_traced() {
    fn item(x: &Array, w: Array) -> Array {
        x + &w
    }
    fn known_by_a_bound(f: impl Fn(&Array) -> Array) {
        let x = array(&[2]);
        jit(&f).trace(&x).unwrap();
        jit(f).trace(&x).unwrap();
    }
    let (x, y) = (array(&[2]), array(&[2]));
    jit(item).trace((&x, &y)).unwrap();
    jit(item as fn(&Array, Array) -> Array).trace((&x, 1.0)).unwrap();
    known_by_a_bound(|x| x.sin());
    let boxed: Box<dyn Fn(&Array) -> Array> = Box::new(|x| x.cos());
    jit(&boxed).trace(&x).unwrap();
    jit(&*boxed).trace(&x).unwrap();
    jit(|| Array::from(1)).trace(()).unwrap();
    jit(|(a, b): (&Array, &Array), m: &Mlp| a + b + &m.layers[0].b).trace(((1.0, 2.0), mlp())).unwrap();
    jit(|x: &Array| -> Result<Array> { Ok(x.reshape([x.shape()?[0], 1])) }).trace(&x).unwrap();
}

#[test]
fn carries_keep_their_types() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let f = jit(|x: &Array| {
        let (y, _) = fori_loop(0..3, (x, 0), |_, (x, n)| (x.reshard(p!["X"]), n + 1));
        y
    });
    let e = f.trace(typed("float32[4]", &mesh)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Sharding);
    let text = e.unquoted();
    assert!(
        text.contains("carry `0`") && text.contains("float32[4@X]") && text.contains("reshard"),
        "{text}"
    );

    let f = jit(|x: &Array| while_loop(x, |x| x.sum(..).gt(0.0), |x| x.astype(F64)));
    assert_eq!(f.trace(array(&[2])).unwrap_err().kind(), ErrorKind::Dtype);
    let f = jit(|x: &Array| while_loop(x, |x| x.clone(), |x| x));
    assert_eq!(f.trace(array(&[])).unwrap_err().kind(), ErrorKind::Dtype);
    let f = jit(|x: &Array| scan(x, Array::from([1.0f32, 2.0]), |c, x| (c.clone(), c + x)));
    let traced = f.trace(array(&[3])).unwrap();
    let types: Vec<_> = traced.program().output_types().iter().map(|t| t.to_string()).collect();
    assert_eq!(types, ["float32[3]", "float32[2,3]"]);
}

#[test]
fn branches_agree() {
    let f = jit(|p: &Array, x: &Array| cond(p, || x.sum(0), || x.clone()));
    let e = f.trace((true, array(&[2]))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Shape);
    let f = jit(|i: &Array, x: &Array| switch(i, &[&|| x.sin(), &|| x * 2.0, &|| x.clone()]));
    let traced = f.trace((1, array(&[2]))).unwrap();
    // The equations of each branch stay in the branch.
    assert_eq!(traced.program().equations.len(), 1, "{traced}");
    let f = jit(|i: &Array, x: &Array| switch(i, &[&|| x.clone()]));
    assert_eq!(f.trace((1.5, array(&[2]))).unwrap_err().kind(), ErrorKind::Dtype);
}

#[test]
fn derivatives_have_the_types_of_their_points() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let f = jit(|w: &Array, x: &Array| {
        let ((loss, _), g) = value_and_grad((w, x), |(w, x)| {
            let y = x.dot(&w).tanh();
            (y.square().sum(..), y)
        });
        (loss, g)
    });
    let traced = f.trace((typed("float32[4,8@X]", &mesh), typed("float32[16,4]", &mesh))).unwrap();
    let types: Vec<_> = traced.program().output_types().iter().map(|t| t.to_string()).collect();
    assert_eq!(types, ["float32[]", "float32[4,8@X]", "float32[16,4]"]);

    let twice = jit(|x: &Array| grad(x, |x| grad(x, |x| x.sin().sum(..)).sum(..)));
    assert_eq!(twice.trace(array(&[3])).unwrap().program().output_types()[0].to_string(), "float32[3]");
    let ill = jit(|x: &Array| grad(x, |x| x.sin()));
    assert_eq!(ill.trace(array(&[3])).unwrap_err().kind(), ErrorKind::Shape);
    let ill = jit(|x: &Array| grad(x, |x| x.astype(F32)));
    assert_eq!(ill.trace(1).unwrap_err().kind(), ErrorKind::Dtype);
}

#[test]
fn per_device_code_is_typed_on_blocks() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let f = shard_map(&mesh, (p!["X", "Y"], p![]), (p!["X"], p![]), |a: &Array, b: &Array| {
        assert_eq!(type_of(a), "float32[4,2]{V:(X,Y)}");
        assert_eq!(type_of(b), "float32[2]");
        assert_eq!(axis_size("X").unwrap(), 2);
        assert_eq!(axis_size(["X", "Y"]).unwrap(), 4);
        assert_eq!(axis_size("Z").unwrap_err().kind(), ErrorKind::Mesh);
        (a.dot(b).psum("Y"), axis_index("X").psum("X"))
    });
    let args = (typed("float32[8@X,4@Y]", &mesh), typed("float32[2]", &mesh));
    let types: Vec<_> =
        f.trace(args.clone()).unwrap().program().output_types().iter().map(|t| t.to_string()).collect();
    assert_eq!(types, ["float32[8@X]", "int32[]"]);
    // Inside a jit it is one equation.
    assert_eq!(jit(&f).trace(args).unwrap().program().equations.len(), 1);

    let promised = shard_map(&mesh, p!["X"], p![], |a: &Array| a.sum(..));
    let e = promised.trace(typed("float32[8@X]", &mesh)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Varying);
    assert!(e.unquoted().contains("psum"), "{e}");
    let uneven = shard_map(&mesh, p!["X"], p!["X"], |a: &Array| a.clone());
    assert_eq!(uneven.trace(typed("float32[7]", &mesh)).unwrap_err().kind(), ErrorKind::Shape);
    let other = shard_map(&mesh, p!["X"], p!["X"], |a: &Array| a.clone());
    assert_eq!(other.trace(typed("float32[8@Y]", &mesh)).unwrap_err().kind(), ErrorKind::Sharding);
    let _ = shard_map(&mesh, Inferred, p!["Y"], |a: &Array| a.clone())
        .trace(typed("float32[8@Y]", &mesh))
        .unwrap();
    let unknown = shard_map(&mesh, p!["Z"], p![], |a: &Array| a.clone());
    assert_eq!(unknown.trace(typed("float32[8]", &mesh)).unwrap_err().kind(), ErrorKind::Mesh);
    let trusted = shard_map(&mesh, p!["X"], p![], |a: &Array| a.sum(..)).unchecked();
    let _ = trusted.trace(typed("float32[8@X]", &mesh)).unwrap();
    let partial = shard_map(&mesh, p!["X"], p!["X"], |a: &Array| {
        assert_eq!(type_of(a), "float32[4,4@Y]{V:X}");
        a * 2.0
    })
    .over("X");
    let t = partial.trace(typed("float32[8@X,4@Y]", &mesh)).unwrap();
    assert_eq!(t.program().output_types()[0].to_string(), "float32[8@X,4@Y]");
}

#[test]
fn captures_of_per_device_code_are_whole() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let f = jit(|a: &Array, w: &Array| {
        let body = shard_map(&mesh, p!["X"], p!["X"], |a: &Array| {
            let (own, used) = (type_of(w), type_of(&(w + 1.0)));
            for seen in [own, used] {
                let refused = seen.to_string().contains("pass it as an argument");
                assert!(seen == "float32[8]" || refused, "{seen}");
            }
            a * w.sum(..)
        });
        body.call(a)
    });
    let ty = |s| typed(s, &mesh);
    let t = f.trace((ty("float32[8@X]"), ty("float32[8]"))).unwrap();
    assert_eq!(t.program().output_types()[0].to_string(), "float32[8@X]");
    let e = f.trace((ty("float32[8@X]"), ty("float32[8@X]"))).unwrap_err();
    assert!(e.kind() == ErrorKind::Sharding && e.unquoted().contains("pass it as an argument"), "{e}");
}

#[test]
fn loops_and_branches_in_per_device_code() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let ty = || typed("float32[8@X]", &mesh);
    let f =
        shard_map(&mesh, p!["X"], p!["X"], |x: &Array| fori_loop(0..3, x, |i, x| x * i.astype(F32) + 1.0));
    let _ = f.trace(ty()).unwrap();
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| fori_loop(0..3, Array::zeros([4]), |_, y| y + x));
    let e = f.trace(ty()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Varying, "{e}");
    assert!(e.unquoted().contains("pvary"), "{e}");
    // If devices choose a branch independently, the results vary over devices.
    let f = shard_map(&mesh, p!["X"], p![], |_: &Array| {
        let one = Array::ones([]);
        let y = cond(axis_index("X").eq(0), || one.clone(), || &one * 2.0);
        assert_eq!(type_of(&y), "float32[]{V:X}");
        y
    });
    assert_eq!(f.trace(ty()).unwrap_err().kind(), ErrorKind::Varying);
    let f = shard_map(&mesh, p!["X"], p![], |x: &Array| {
        cond(axis_index("X").eq(0), || x.sum(..).psum("X"), || Array::ones([]))
    });
    let e = f.trace(ty()).unwrap_err();
    assert!(e.kind() == ErrorKind::Varying && e.unquoted().contains("different branches"), "{e}");
    // Devices may leave a loop at different iterations, but then the loop must not contain
    // collectives.
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| while_loop(x, |x| x.sum(..).gt(0.0), |x| x - 1.0));
    assert_eq!(f.trace(ty()).unwrap().program().output_types()[0].to_string(), "float32[8@X]");
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        while_loop(x, |x| x.sum(..).gt(0.0), |x| &x - x.sum(..).psum("X"))
    });
    assert_eq!(f.trace(ty()).unwrap_err().kind(), ErrorKind::Varying);
}

/// A value of an unfinished trace is used by another thread inside a nested closure: the error must
/// not say that the trace has ended.
#[test]
fn a_value_of_a_trace_on_another_thread_is_told_as_one() {
    let f = jit(|x: &Array| {
        let error = std::thread::scope(|s| {
            let there = s.spawn(|| cond(true, || x + 1.0, || x.clone()).ty().unwrap_err());
            there.join().unwrap()
        });
        assert!(error.unquoted().contains("open on another thread"), "{error}");
        assert_eq!(error.diagnostics()[0].op, "add", "{error}");
        x + 1.0
    });
    let _ = f.call(Array::ones([2]));
}
