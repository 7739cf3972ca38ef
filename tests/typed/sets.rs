//! What the typed and the dynamic layer accept on operands that are plain, unreduced, reduced or
//! varying: the same operations, with the same result types.
//!
//! The dynamic layer says for each operation and operand whether it is accepted, and the result's
//! type. One program states these types, and rustc rejects the lines of it that the dynamic layer
//! rejects, and no others, except those in [`STRICTER`].
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::{PcastTo, concat, stack};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

mesh! { struct Pod { X: 2, Y: 4 } }

/// The operations that the typed layer rejects although the dynamic layer accepts them, with the
/// operands' sets: operation, sets, reason.
const STRICTER: &[(&str, &[&str], &str)] = &[
    (
        "x.shift(1, D0, 0.0)",
        &["U: X", "U: (X, Y)", "in Pod, U: X", "V: Y, U: X"],
        "a fill value other than zero counts once per device, and types do not show the value",
    ),
    ("x / 2.0", &["in Pod, U: X", "V: Y, U: X"], "`x * 0.5` scales a part of a sum"),
    ("x.mean(D0)", &["in Pod, U: X", "V: Y, U: X"], "`x.sum(D0) * 0.125` scales a part of a sum"),
    (
        "x / y",
        &[
            "in Pod, U: X | in Pod, R: X",
            "in Pod, U: X | V: Y, R: X",
            "V: Y, U: X | in Pod, R: X",
            "V: Y, U: X | V: Y, R: X",
        ],
        "`x * y.reciprocal()` multiplies a part of a sum by a reduced value",
    ),
];

/// An operation of one operand: the typed and the untyped code.
type Unary = (&'static str, fn(&Array) -> Array);
const UNARY: &[Unary] = &[
    ("-x", |x| -x),
    ("x.stop_gradient()", |x| x.stop_gradient()),
    ("x.relu()", |x| x.relu()),
    ("x.square()", |x| x.square()),
    ("x.abs()", |x| x.abs()),
    ("x.is_finite()", |x| x.is_finite()),
    ("x.powi(2)", |x| x.powi(2)),
    ("x.convert::<f64>()", |x| x.astype(F64)),
    ("x.convert::<i32>()", |x| x.astype(I32)),
    ("x.transpose((D1, D0))", |x| x.transpose([1, 0])),
    ("x.t()", |x| x.transpose([1, 0])),
    ("x.expand_dims(D0).squeeze(D0)", |x| x.expand_dims(0).squeeze(0)),
    ("x.broadcast_to::<S![3, 8, 16]>()", |x| x.broadcast_to([3, 8, 16])),
    ("x.reshape::<S![16, 8]>()", |x| x.reshape([16, 8])),
    ("x.split_dim::<N![2], N![4], _>(D0)", |x| x.reshape([2, 4, 16])),
    ("x.merge_dims(D0)", |x| x.reshape([128])),
    ("x.slice::<N![1], N![3], _>(D0)", |x| x.slice(ix![1..3])),
    ("x.split::<N![1], N![7], _>(D0).1", |x| x.split([1, 7], 0).swap_remove(1)),
    ("x.flip(D0)", |x| x.flip(0)),
    ("x.roll(1, D0)", |x| x.roll(1, 0)),
    ("x.shift(1, D0, 0.0)", |x| x.shift(1, 0, 0.0)),
    ("x.pad::<N![1], N![2], _>(D0, 1.0)", |x| x.pad(1.0, vec![(1, 2, 0), (0, 0, 0)])),
    ("x.cumsum(D0)", |x| x.cumsum(0)),
    ("x.cummax(D0)", |x| x.cummax(0)),
    ("x.cumlogsumexp(D0)", |x| x.cumlogsumexp(0)),
    ("x.sort(D0)", |x| x.sort(0)),
    ("x.argsort(D0)", |x| x.argsort(0)),
    ("x.top_k::<N![2], _>(D0).0", |x| x.top_k(2, 0).0),
    ("x.tile::<N![2], _>(D0)", |x| x.tile([2, 1])),
    ("x.sum(D0)", |x| x.sum(0)),
    ("x.sum(..)", |x| x.sum(..)),
    ("x.prod(D0)", |x| x.prod(0)),
    ("x.max(D0)", |x| x.max(0)),
    ("x.mean(D0)", |x| x.mean(0)),
    ("x.any(D0)", |x| x.any(0)),
    ("x.softmax(D0)", |x| x.softmax(0)),
    ("x.argmax(D0)", |x| x.argmax(0)),
    ("x * 2.0", |x| x * 2.0),
    ("2.0 * x", |x| 2.0 * x),
    ("x / 2.0", |x| x / 2.0),
    ("2.0 / x", |x| 2.0 / x),
    ("x + 2.0", |x| x + 2.0),
    ("2.0 - x", |x| 2.0 - x),
    ("x % 2.0", |x| x % 2.0),
    ("x.maximum(2.0)", |x| x.maximum(2.0)),
    ("x.gt(2.0)", |x| x.gt(2.0)),
    ("x.clamp(0.0, 1.0)", |x| x.clamp(0.0, 1.0)),
    ("x.zeros_like()", |x| x.zeros_like()),
];

/// An operation of two operands: the typed and the untyped code.
type Binary = (&'static str, fn(&Array, &Array) -> Array);
const BINARY: &[Binary] = &[
    ("x + y", |x, y| x + y),
    ("x - y", |x, y| x - y),
    ("x * y", |x, y| x * y),
    ("x / y", |x, y| x / y),
    ("x % y", |x, y| x % y),
    ("x.maximum(y)", |x, y| x.maximum(y)),
    ("x.atan2(y)", |x, y| x.atan2(y)),
    ("x.eq(y)", |x, y| x.eq(y)),
    ("x.matmul(&y.t())", |x, y| x.matmul(y.transpose([1, 0]))),
    ("einsum!(\"ab,ab->b\", x, y)", |x, y| atmesh::einsum("ab,ab->b", [x, y])),
    ("x.concat(y, D0)", |x, y| concat([x, y], 0)),
    ("x.stack(y, D0)", |x, y| stack([x, y], 0)),
];

/// Sets of operands, as the second `;` of `T![..]` writes them. Those with `in` or `V` are of
/// values in a body of `shard_map`.
const OUTSIDE: [&str; 4] = ["", "; U: X", "; R: X", "; U: (X, Y)"];
const INSIDE: [&str; 6] =
    ["; in Pod", "; V: X", "; in Pod, U: X", "; in Pod, R: X", "; V: Y, U: X", "; V: Y, R: X"];

fn mesh() -> atmesh::typed::MeshOf<Pod> {
    Pod::mesh().unwrap()
}
/// Returns an operand with these sets, outside of a body.
fn operand(sets: &str) -> Array {
    let x = Array::ones([8, 16]).put(&mesh(), p![]);
    match sets {
        "" => x,
        "; U: X" => x.reshard(p![; U: "X"]),
        "; R: X" => x.reshard(p![; R: "X"]),
        "; U: (X, Y)" => x.reshard(p![; U: ("X", "Y")]),
        _ => unreachable!("{sets}"),
    }
}
/// Casts a block that is equal on every device to these sets.
fn cast(x: &Array, sets: &str) -> Array {
    match sets {
        "; in Pod" => x.clone(),
        "; V: X" => x.pvary("X"),
        "; in Pod, U: X" => x.pvary("X").pcast("X", PcastTo::Unreduced),
        "; in Pod, R: X" => x.pcast("X", PcastTo::Reduced),
        "; V: Y, U: X" => x.pvary(["X", "Y"]).pcast("X", PcastTo::Unreduced),
        "; V: Y, R: X" => x.pcast("X", PcastTo::Reduced).pvary("Y"),
        _ => unreachable!("{sets}"),
    }
}
/// Returns the result types of operations on operands with these sets; `None` if rejected.
fn results(sets: [&str; 2], inside: bool) -> Vec<(String, Option<String>)> {
    let found = RefCell::new(Vec::new());
    let run = |x: &Array, y: &Array| {
        let mut found = found.borrow_mut();
        let ty = |a: Array| a.ty().ok().map(|t| t.to_string());
        if sets[0] == sets[1] {
            found.extend(UNARY.iter().map(|(code, f)| (code.to_string(), ty(f(x)))));
        }
        found.extend(BINARY.iter().map(|(code, f)| (code.to_string(), ty(f(x, y)))));
    };
    if inside {
        let body = |x: &Array| {
            run(&cast(x, sets[0]), &cast(x, sets[1]));
            x.clone()
        };
        // the trace of the body also reports what is rejected
        let _ = shard_map(&mesh(), p![], p![], body).call(operand(""));
    } else {
        run(&operand(sets[0]), &operand(sets[1]));
    }
    found.into_inner()
}
/// Returns a dynamic type as the typed layer writes it.
fn typed(ty: &str, inside: bool) -> String {
    let (dtype, rest) = ty.split_once('[').unwrap();
    let (dims, sets) = rest.split_once(']').unwrap();
    let dtype = match dtype {
        "float32" => "f32",
        "float64" => "f64",
        "int32" => "i32",
        other => other,
    };
    let sets = sets.trim_matches(['{', '}']);
    let sets = match (inside, sets) {
        (true, "") => "; in Pod".to_string(),
        (true, sets) => format!("; in Pod, {sets}"),
        (false, "") => String::new(),
        (false, sets) => format!("; {sets}"),
    };
    format!("T![{dtype}; {dims}{sets}]")
}

/// Returns the library that these tests are linked with: the newest one that is not newer than the
/// test binary.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let files = std::fs::read_dir(tests.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let libraries = files.filter(|f| {
        let name = f.file_name().unwrap().to_string_lossy();
        name.starts_with("libatmesh-") && name.ends_with(".rlib") && built(f) <= built(&tests)
    });
    libraries.max_by_key(built).expect("the library is next to its tests")
}

#[test]
fn both_layers_accept_the_same() {
    let mut source = String::from(
        "#![allow(unused)]\nuse atmesh::prelude::*;\nuse atmesh::typed::prelude::*;\nmesh! { struct Pod { X: 2, Y: 4 } }\nfn main() {}\n",
    );
    let mut lines = Vec::new();
    let before = source.lines().count();
    for (all, inside) in [(&OUTSIDE[..], false), (&INSIDE[..], true)] {
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            for (code, ty) in results([a, b], inside) {
                let (out, end) = match &ty {
                    Some(ty) => (format!(" -> {}", typed(ty, inside)), ""),
                    None => (String::new(), ";"),
                };
                writeln!(
                    source,
                    "fn f{}(x: &T![f32; 8, 16{a}], y: &T![f32; 8, 16{b}]){out} {{ {code}{end} }}",
                    lines.len()
                )
                .unwrap();
                lines.push((code, a, b, ty));
            }
        }
    }
    let library = library();
    let name = library.with_file_name(format!("typed-sets-{}", std::process::id()));
    let file = name.with_extension("rs");
    std::fs::write(&file, source).unwrap();
    let out = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--error-format=short", "-o"])
        .arg(&name)
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("atmesh={}", library.display()))
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    let start = format!("{}:", file.display());
    let mut errors: Vec<Option<&str>> = vec![None; lines.len()];
    for line in said.lines() {
        let Some((number, rest)) = line.strip_prefix(&start).and_then(|rest| rest.split_once(':')) else {
            continue;
        };
        errors[number.parse::<usize>().unwrap() - before - 1].get_or_insert(rest);
    }
    let _ = (std::fs::remove_file(&name), std::fs::remove_file(&file));
    let (mut wrong, mut stricter) = (String::new(), BTreeSet::new());
    let mut accepted = 0;
    for ((code, a, b, ty), error) in lines.iter().zip(&errors) {
        accepted += usize::from(ty.is_some());
        if ty.is_some() == error.is_none() {
            continue;
        }
        let sets = [a.trim_start_matches("; "), b.trim_start_matches("; ")];
        let sets =
            if UNARY.iter().any(|(unary, _)| unary == code) { sets[0].to_string() } else { sets.join(" | ") };
        if ty.is_some() && STRICTER.iter().any(|(op, on, _)| op == code && on.contains(&&*sets)) {
            stricter.insert((code.as_str(), sets));
            continue;
        }
        writeln!(wrong, "{code} on {sets}: dynamic {ty:?}, rustc {error:?}").unwrap();
    }
    println!("{accepted} of {} are accepted", lines.len());
    let listed: usize = STRICTER.iter().map(|s| s.1.len()).sum();
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(stricter.len(), listed, "cases that are stricter: {stricter:?}");
    assert!(accepted > 300 && lines.len() - accepted > 300, "{accepted} of {}", lines.len());
}
