//! The type language and the layout of shards, case by case as in the reference.

use crate::error_checks::Unquoted as _;
use atmesh::mesh::{Axes, AxisType};
use atmesh::sharding::blocks;
use atmesh::{ArrayType, ErrorKind, Mesh, Sharding, Spec, p};
use serde_json::{Value, json};

#[path = "../conformance/kinds.rs"]
mod kinds;
use kinds::case_name;

/// Returns the cases of a file; its first line describes the set.
fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/conformance/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let meta = lines.next().unwrap();
    let cases: Vec<_> = lines.collect();
    assert_eq!(meta["meta"]["cases"], cases.len(), "{file} is cut off");
    cases
}
fn mesh(case: &Value) -> Mesh {
    let (axes, types) = (&case["mesh"]["axes"], &case["mesh"]["types"]);
    let axes = axes.as_array().unwrap().iter().zip(types.as_array().unwrap());
    Mesh::with_types(axes.map(|(a, t)| {
        let ty = match t.as_str().unwrap() {
            "explicit" => AxisType::Explicit,
            "auto" => AxisType::Auto,
            "manual" => AxisType::Manual,
            other => panic!("axis type {other}"),
        };
        (a[0].as_str().unwrap(), a[1].as_u64().unwrap() as usize, ty)
    }))
    .unwrap()
}
fn sizes(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}
fn spec(v: &Value) -> Spec {
    let axes = |e: &Value| match e {
        Value::Null => Axes::none(),
        Value::String(a) => Axes::from(a.as_str()),
        several => several.as_array().unwrap().iter().map(|a| a.as_str().unwrap().into()).collect(),
    };
    Spec::from_dims(v.as_array().unwrap().iter().map(axes).collect())
}
/// Formats the entry of one dimension as cases write it.
fn entry(axes: &Axes) -> Value {
    match axes.as_slice() {
        [] => Value::Null,
        [one] => json!(one.name()),
        several => json!(several.iter().map(|a| a.name()).collect::<Vec<_>>()),
    }
}
fn names(axes: &Axes) -> Value {
    json!(axes.iter().map(|a| a.name()).collect::<Vec<_>>())
}
/// Runs every case, and reports all differences.
fn run(file: &str, answer: impl Fn(&Value) -> Value) {
    let cases = cases(file);
    let wrong: Vec<_> = (cases.iter())
        .filter_map(|case| {
            let got = answer(case);
            (got != case["expect"])
                .then(|| format!("{}\n  want {}\n  got  {got}", case["id"], case["expect"]))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn types_parse_and_print_as_the_reference_has_them() {
    run("types.jsonl", |case| {
        let (mesh, text) = (mesh(case), case["text"].as_str().unwrap());
        let ty = match ArrayType::parse(text, &mesh) {
            Ok(ty) => ty,
            Err(e) => return json!({"error": case_name(e.kind())}),
        };
        let mut fields = json!({
            "dtype": ty.dtype.name(), "shape": ty.shape.to_vec(), "spec": ty.spec.dims().iter().map(entry).collect::<Vec<_>>(),
            "varying": names(&ty.varying), "unreduced": names(ty.spec.unreduced_axes()),
            "reduced": names(ty.spec.reduced_axes()), "short": ty.short_text(),
        });
        let print = ty.to_string();
        if print != text {
            fields["print"] = json!(print);
        }
        // The printed text, in either form, parses to the same type.
        for text in [print, ty.short_text()] {
            assert_eq!(ArrayType::parse(&text, &mesh).unwrap(), ty);
        }
        fields
    });
}

#[test]
fn shards_lie_where_the_reference_puts_them() {
    run("layout.jsonl", |case| {
        let shape = sizes(&case["shape"]);
        let held = Sharding::new(&mesh(case), spec(&case["spec"]), &shape)
            .and_then(|sharding| Ok((sharding.shard_shape(&shape)?, sharding)));
        let (local, sharding) = match held {
            Ok(held) => held,
            Err(fault) => return json!({"error": case_name(fault.kind())}),
        };
        let shards: Vec<_> = (blocks(&sharding, &shape).unwrap().iter())
            .map(|b| {
                let index: Vec<_> = b.index.iter().map(|r| [r.start, r.end]).collect();
                json!({"index": index, "replica": b.replica})
            })
            .collect();
        json!({"shard_shape": local.to_vec(), "shards": shards})
    });
}

#[test]
fn copies_of_an_unreduced_value_are_summands_not_replicas() {
    let mesh = Mesh::new([("X", 2), ("Y", 2), ("Z", 2)]).unwrap();
    let sharding = Sharding::new(&mesh, p!["X"; U: "Y"], &[4]).unwrap();
    let replicas: Vec<_> = blocks(&sharding, &[4]).unwrap().iter().map(|b| b.replica).collect();
    assert_eq!(replicas, [0, 1, 0, 1, 0, 1, 0, 1], "only devices that differ along Z hold the same");
    assert!(!sharding.is_replicated());
    assert!(!Sharding::new(&mesh, p![_; U: "Y"], &[4]).unwrap().is_replicated());
    assert!(Sharding::new(&mesh, p![_; R: "Y"], &[4]).unwrap().is_replicated());
}

#[test]
fn blocks_follow_the_order_of_the_mesh_not_the_numbers_of_the_devices() {
    let mut order = atmesh::devices(4).unwrap();
    order.reverse();
    let mesh = Mesh::of_devices(&order, [("X", 4)]).unwrap();
    let sharding = Sharding::new(&mesh, p!["X"], &[8]).unwrap();
    let blocks = blocks(&sharding, &[8]).unwrap();
    assert_eq!(mesh.devices()[0].id(), 3);
    assert_eq!(blocks[0].index[0], 0..2, "the first device of the mesh, CPU 3, holds the first block");
    assert_eq!(blocks[3].index[0], 6..8);
}

#[test]
fn uneven_blocks_over_auto_axes_end_short_or_empty() {
    let mesh = Mesh::auto([("X", 4)]).unwrap();
    let sharding = Sharding::new(&mesh, p!["X"], &[5]).unwrap();
    let index: Vec<_> = blocks(&sharding, &[5]).unwrap().into_iter().map(|b| b.index[0].clone()).collect();
    assert_eq!(index, [0..2, 2..4, 4..5, 5..5]);
    let fault = sharding.shard_shape(&[5]).unwrap_err().diagnostics()[0].fault.clone();
    assert_eq!(fault.kind, ErrorKind::Shape, "no shape is that of every device");
    assert!(!fault.message.contains("auto"), "{}", fault.message);
}

#[test]
fn equivalent_shardings_put_the_same_parts_on_the_same_devices() {
    let mesh = Mesh::new([("x", 2), ("y", 4)]).unwrap();
    let on = |mesh: &Mesh, spec: Spec| Sharding { mesh: mesh.clone(), spec };
    let same = |a: Spec, b: Spec| on(&mesh, a).is_equivalent(&on(&mesh, b));
    assert!(same(p!["x"], p!["x", _]));
    assert!(same(p![], p![; R: "x"]));
    assert!(!same(p![], p![; U: "x"]));
    assert!(!same(p![("x", "y")], p![("y", "x")]));
    let cut = Mesh::new([("a", 2), ("b", 2), ("c", 2)]).unwrap();
    assert!(on(&mesh, p!["x"]).is_equivalent(&on(&cut, p!["a"])));
    assert!(on(&mesh, p!["y"]).is_equivalent(&on(&cut, p![("b", "c")])));
    assert!(!on(&mesh, p!["y"]).is_equivalent(&on(&cut, p![("c", "b")])));
    let thin = Mesh::new([("a", 1), ("b", 8)]).unwrap();
    assert!(on(&thin, p!["a"]).is_equivalent(&on(&thin, p![])) && on(&thin, p!["a"]).is_replicated());
    let mut order = atmesh::devices(8).unwrap();
    order.swap(0, 1);
    let permuted = Mesh::of_devices(&order, [("x", 2), ("y", 4)]).unwrap();
    assert!(!on(&mesh, p![]).is_equivalent(&on(&permuted, p![])));
}

#[test]
fn what_a_mesh_cannot_be_is_an_error_with_a_mend() {
    let said = |r: atmesh::Result<Mesh>| {
        let d = r.unwrap_err().diagnostics()[0].clone();
        assert!(d.location.is_some_and(|p| p.file().ends_with("types_and_layouts.rs")));
        assert!(!d.fault.help.is_empty() || d.fault.message.contains("counted"));
        d.fault.message
    };
    assert_eq!(said(Mesh::new([("X", 2), ("Y", 0)])), "axis Y has size 0");
    assert_eq!(said(Mesh::new([("X", 2), ("X", 2)])), "axis X appears twice");
    assert_eq!(
        said(Mesh::of_devices(&atmesh::devices(6).unwrap(), [("X", 2), ("Y", 4)])),
        "the axes X: 2, Y: 4 make 8 devices, but 6 are given"
    );
    let twice = [atmesh::devices(1).unwrap(), atmesh::devices(1).unwrap()].concat();
    assert_eq!(said(Mesh::of_devices(&twice, [("X", 2)])), "CPU 0 appears twice");
    let huge = usize::MAX / 2;
    assert!(said(Mesh::new([("X", huge)])).contains("at most"));
    assert!(said(Mesh::new([("X", huge), ("Y", 4)])).contains("more devices than can be counted"));
    assert!(Mesh::without_devices([("X", 1 << 40)]).is_ok(), "plans may be of any size");
}

#[test]
fn what_a_spec_cannot_be_is_an_error_with_a_mend() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let fault =
        |spec, shape: &[usize]| Sharding::new(&mesh, spec, shape).unwrap_err().diagnostics()[0].fault.clone();
    let unknown = fault(p!["Q"], &[8]);
    assert_eq!(
        (unknown.message.as_str(), unknown.help.as_slice()),
        ("Q is not an axis of the mesh Mesh(X: 2, Y: 4)", &["its axes are X, Y".to_string()][..])
    );
    assert!(fault(p!["X", "X"], &[8, 8]).message.contains("names the axis X twice"));
    let uneven = fault(p![_, "Y"], &[8, 10]);
    assert_eq!(uneven.message, "dimension 1 has size 10, which Y does not divide into 4 equal parts");
    assert_eq!(uneven.help[0], "the nearest multiples of 4: 8 and 12");
    assert_eq!(
        fault(p![_, "X"], &[8]).message,
        r#"the spec p![_, "X"] has entries for 2 dimensions, but the array has 1"#
    );
}

/// A type has no more dimensions than an operation supports, and no more bytes than it may have.
#[test]
fn parsed_types_are_those_of_arrays() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let parse = |rank: usize| ArrayType::parse(&format!("f32[{}]", vec!["1"; rank].join(",")), &mesh);
    assert_eq!(parse(12).unwrap().rank(), 12);
    let error = parse(13).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.unquoted().contains("has 13 dimensions: at most 12 are supported"), "{error}");
}

/// Meshes that differ in the types of their axes have different hashes.
#[test]
fn the_hash_of_a_mesh_includes_the_types_of_its_axes() {
    use std::hash::{BuildHasher, RandomState};
    let (state, explicit) = (RandomState::new(), Mesh::new([("X", 2), ("Y", 4)]).unwrap());
    let auto = explicit.with_axis_types("X", AxisType::Auto).unwrap();
    assert_ne!(explicit, auto);
    assert_ne!(state.hash_one(&explicit), state.hash_one(&auto));
    assert_eq!(state.hash_one(&explicit), state.hash_one(Mesh::new([("X", 2), ("Y", 4)]).unwrap()));
}

/// `full` has the requested element type, also if it repeats an array of another one.
#[test]
fn full_converts_an_array() -> atmesh::Result<()> {
    use atmesh::{Array, DType, jit};
    let row = Array::from([1i32, -2, 3]);
    let of = |x: &Array| Array::full(DType::F64.array_type([2, 3]), x);
    for y in [of(&row), jit(of).call(&row)?] {
        assert_eq!(y.ty()?.to_string(), "float64[2,3]");
        assert_eq!(y.to_vec::<f64>()?, [1.0, -2.0, 3.0, 1.0, -2.0, 3.0]);
    }
    Ok(())
}

/// The end of a range is excluded, also where the largest number that is drawn rounds to it.
#[test]
fn uniform_numbers_are_below_the_end() -> atmesh::Result<()> {
    use atmesh::{DType, Key};
    let ranges = [(DType::F16, 100.0..101.0), (DType::BF16, 1.0..1.25), (DType::F32, 1e6..1e6 + 1.0)];
    for (dtype, range) in ranges {
        for (low, high) in [(range.start, range.end), (-range.end, -range.start)] {
            let x = Key::new(1).uniform_in(dtype.array_type([20_000]), low..high).astype(DType::F64);
            let all = x.to_vec::<f64>()?;
            assert!(all.iter().all(|x| (low..high).contains(x)), "{dtype} {low}..{high}: {}", x.max(..));
        }
    }
    Ok(())
}
