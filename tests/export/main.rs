//! Programs as StableHLO: the text is consistent, equals the golden text, and errors name the
//! source line.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod checker;
mod jax;
#[path = "../../examples/beyond/programs.rs"]
mod programs;

use atmesh::prelude::*;
use atmesh::stablehlo::{Annotate, Options};
use error_checks::Unquoted as _;
use std::fmt::Write;
use std::sync::LazyLock;

static CASES: LazyLock<Vec<programs::Case>> =
    LazyLock::new(|| programs::all().expect("all programs are written"));

#[test]
fn every_text_holds_together() {
    for case in CASES.iter() {
        if let Err(why) = checker::check(case.module.text()) {
            panic!("{}: {why}\n{}", case.name, case.module);
        }
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let case = CASES.iter().find(|c| c.name == "scan_gradient").expect("it is there");
    let text = case.module.text();
    assert_eq!(checker::check(text), Ok(()));
    let wrong = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        checker::check(&text.replacen(from, to, 1)).expect_err(to)
    };
    assert!(wrong("stablehlo.tanh %", "stablehlo.tanh %9").contains("is not bound"));
    let tanh = text.lines().find(|l| l.contains("stablehlo.tanh")).expect("a line");
    assert!(wrong(tanh, &tanh.replace("8xf32", "9xf32")).contains("is read as tensor<9xf32>"));
    assert!(wrong("} do {", "do {").contains("line"));
    assert!(wrong("%1 = ", "%arg0 = ").contains("is bound twice"));
}

/// The module has tables of arguments, results and captured values.
#[test]
fn tables_say_what_goes_in_and_out() {
    let find = |name: &str| &CASES.iter().find(|c| c.name == name).expect(name).module;
    let step = find("mlp_step");
    let port_text = |p: &atmesh::transform::Port| {
        format!("{} {} {}", p.name, p.ty, p.sharding.clone().unwrap_or_default())
    };
    let all: Vec<String> = step.arguments().iter().chain(step.results()).map(port_text).collect();
    assert_eq!(
        all,
        [
            "0 float32[8@dp,16] <@mesh, [{\"dp\"}, {}]>",
            "1 float32[16,32@tp] <@mesh, [{}, {\"tp\"}]>",
            "2 float32[32@tp,16] <@mesh, [{\"tp\"}, {}]>",
            "0 float32[] <@mesh, []>",
            "1 float32[16,32@tp] <@mesh, [{}, {\"tp\"}]>",
            "2 float32[32@tp,16] <@mesh, [{\"tp\"}, {}]>",
        ]
    );
    assert_eq!((step.devices(), find("transforms").devices()), (8, 1));
    assert!(find("donated").arguments()[0].donated);
    assert!(find("donated").text().contains("jax.buffer_donor = true"));
    // Small captured values are constants, larger ones arguments; a key is two words.
    assert_eq!(find("captured").arguments().len(), 1);
    let w = Array::ones([32, 16]);
    let large = jit(|x: &Array| x.dot(&w)).trace(Array::ones([32])).unwrap().to_stablehlo().unwrap();
    assert_eq!(large.arguments()[1].file.as_deref(), Some("capture0.npy"));
    assert_eq!(large.captures().len(), 1);
    assert_eq!(find("keys").arguments()[0].tensor, "tensor<2xui32>");
    assert_eq!(find("keys").results().len(), 4);
}

/// The arguments and results of our own engine have the types in the tables.
#[test]
fn tables_agree_with_arguments_and_results() {
    for case in CASES.iter() {
        let (ins, outs) = (case.module.arguments(), case.module.results());
        let given = ins.iter().filter(|p| p.file.is_none()).zip(&case.arguments);
        for (port, a) in given.chain(outs.iter().zip(&case.results)) {
            let bits = programs::plain_bits(a).unwrap();
            let sizes: String = bits.shape().unwrap().iter().map(|n| format!("{n}x")).collect();
            assert!(
                port.tensor.starts_with(&format!("tensor<{sizes}")),
                "{}: {} {}",
                case.name,
                port.tensor,
                port.ty
            );
            assert_eq!(port.ty.to_string(), a.ty().unwrap().to_string(), "{}", case.name);
        }
        assert_eq!(
            (outs.len(), ins.len()),
            (case.results.len(), case.arguments.len() + case.module.captures().len())
        );
    }
}

#[test]
fn shardings_are_told_as_asked() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Array::ones([4, 4]).put(&mesh, p!["X"]);
    let traced = jit(|x: &Array| (x + 1.0).reshard(p![_, "X"])).trace(&x).unwrap();
    let constraints = |s| {
        let options = Options::default().shardings(s);
        traced.to_stablehlo_with(options).unwrap().text().matches("sharding_constraint").count()
    };
    assert_eq!(constraints(Annotate::Requested), 1);
    assert_eq!((constraints(Annotate::Explicit), constraints(Annotate::All)), (3, 3));
    let lines = traced.to_stablehlo().unwrap();
    assert!(lines.text().contains("tests/export/main.rs"), "{lines}");
}

/// Complex numbers are ordered by comparisons of their parts, which StableHLO has.
#[test]
fn maxima_of_complex_numbers_are_exported() {
    let pair = (C64.array_type([3]), C64.array_type([3]));
    let extremes: [fn(&Array, &Array) -> Array; 2] = [|x, y| x.maximum(y), |x, y| x.minimum(y)];
    for extreme in extremes {
        let traced = jit(|x: &Array, y: &Array| extreme(x, y)).trace(pair.clone()).unwrap();
        let text = traced.to_stablehlo().unwrap().text().to_string();
        assert!(text.contains("stablehlo.real") && text.contains("stablehlo.select"), "{text}");
        assert!(!text.contains("stablehlo.maximum") && !text.contains("stablehlo.minimum"), "{text}");
    }
}

/// The operations that XLA would have to remove are not written: constraints on one device,
/// conversions around products of 16-bit floats, and transposes that were written before.
#[test]
fn modules_have_no_redundant_operations() {
    let mesh = Mesh::new([("data", 1), ("model", 1)]).unwrap();
    let text = |f: &dyn Fn(&Array) -> Array, dtype: DType| {
        let ty = dtype.array_type([4, 6, 6]).on(&mesh, p!["data", _, "model"]);
        jit(|x: &Array| f(x)).trace(ty).unwrap().to_stablehlo().unwrap().text().to_string()
    };
    let count = |text: &str, op: &str| text.matches(op).count();
    let softmax = text(&|x| x.softmax(-1), F32);
    assert_eq!(count(&softmax, "sharding_constraint"), 0, "{softmax}");
    for dtype in [BF16, F16] {
        let products = text(&|x| (x.square() * x).matmul(x).maximum(x).max(1), dtype);
        assert_eq!(count(&products, "stablehlo.convert"), 0, "{products}");
        // sums are accumulated in float32 and rounded once
        let sum = text(&|x| x.sum(1), dtype);
        assert_eq!(count(&sum, "stablehlo.convert"), 2, "{sum}");
    }
    let twice = text(&|x| x.transpose([2, 1, 0]).exp() + x.transpose([2, 1, 0]).sin(), F32);
    assert_eq!(count(&twice, "stablehlo.transpose"), 1, "{twice}");
}

/// Products and convolutions of float32 have the highest precision unless another one is given, also
/// in derivatives and under `vmap`. Other element types have one precision only.
#[test]
fn float32_products_have_the_requested_precision() {
    use atmesh::{ConvOptions, DotOptions, Precision, einsum_with, grad, vmap};
    let text = |f: &dyn Fn(&Array) -> Array, dtype: DType| {
        let traced = jit(|x: &Array| f(x)).trace(dtype.array_type([2, 3, 4, 4])).unwrap();
        traced.to_stablehlo().unwrap().text().to_string()
    };
    let with =
        |p: Option<Precision>| p.map_or_else(DotOptions::default, |p| DotOptions::default().precision(p));
    let product = |p| move |x: &Array| x.matmul_with(x, with(p));
    let einsum = |p| move |x: &Array| einsum_with("abij,abjk->abik", [x, x], with(p));
    let gradient = |p| move |x: &Array| grad(x, |x| x.matmul_with(&x, with(p)).square().sum(..));
    let mapped = |p| move |x: &Array| vmap(x, |x| x.matmul_with(&x, with(p)));
    let conv = |p: Option<Precision>| {
        let options = p.map_or_else(ConvOptions::default, |p| ConvOptions::default().precision(p));
        move |x: &Array| x.conv_with(x.slice(ix![.., .., ..2, ..2]), options.clone())
    };
    for p in [None, Some(Precision::Highest), Some(Precision::High), Some(Precision::Default)] {
        let name = match p {
            Some(Precision::Default) => None,
            Some(Precision::High) => Some("HIGH"),
            _ => Some("HIGHEST"),
        };
        let (product, einsum, gradient, mapped, conv) =
            (product(p), einsum(p), gradient(p), mapped(p), conv(p));
        type Operation<'a> = (&'a str, &'a dyn Fn(&Array) -> Array);
        let all: [Operation<'_>; 5] = [
            ("matmul", &product),
            ("einsum", &einsum),
            ("grad", &gradient),
            ("vmap", &mapped),
            ("conv", &conv),
        ];
        for (what, f) in &all {
            for dtype in [F32, C64] {
                if (*what, dtype) == ("grad", C64) {
                    continue;
                }
                let text = text(f, dtype);
                let lines: Vec<&str> = text
                    .lines()
                    .filter(|l| l.contains("stablehlo.dot_general") || l.contains("stablehlo.convolution"))
                    .collect();
                assert!(!lines.is_empty(), "{what} {dtype}: {text}");
                for line in lines {
                    let expected = match (name, line.contains("stablehlo.convolution")) {
                        (None, _) => !line.contains("precision"),
                        (Some(n), false) => line.contains(&format!("precision = [{n}, {n}]")),
                        (Some(n), true) => line.contains(&format!(
                            "precision_config = [#stablehlo<precision {n}>, #stablehlo<precision {n}>]"
                        )),
                    };
                    assert!(expected, "{what} {dtype} {p:?}: {line}");
                }
            }
            if *what != "grad" {
                assert!(!text(f, F64).contains("precision"), "{what}");
            }
        }
    }
}

#[test]
fn errors_name_the_line() {
    let mesh = Mesh::auto([("X", 4)]).unwrap();
    let uneven = Array::ones([102]).put(&mesh, p!["X"]);
    let rejected = |e: Result<atmesh::transform::StableHlo>| e.expect_err("rejected").unquoted();
    let text = rejected(jit(|x: &Array| x + 1.0).trace(&uneven).and_then(|t| t.to_stablehlo()));
    assert!(
        text.contains("dimension 0 of float32[102] is sharded into 4 uneven blocks: XLA needs even ones"),
        "{text}"
    );
    assert!(text.contains("pad it to 104"), "{text}");
    let printed = jit(|x: &Array| {
        debug_print!("{}", x);
        x + 1.0
    });
    let text = rejected(printed.trace(Array::ones([2])).and_then(|t| t.to_stablehlo()));
    assert!(text.contains("prints have no StableHLO") && text.contains("tests/export/main.rs:"), "{text}");
    {
        type Case = (&'static str, fn(&Array) -> Array);
        let cases: [Case; 11] = [
            ("lu", |x| x.lu().0),
            ("qr", |x| x.qr(false).0),
            ("eigh", |x| x.eigh().0),
            ("eigvalsh", |x| x.eigvalsh()),
            ("svd", |x| x.svd(false).1),
            ("svdvals", |x| x.svdvals()),
            ("solve", |x| x.solve(x)),
            ("inv", |x| x.inv()),
            ("det", |x| x.det()),
            ("slogdet", |x| x.slogdet().1),
            ("pinv", |x| x.pinv(None)),
        ];
        for (name, f) in cases {
            let text = rejected(jit(f).trace(Array::eye([3, 3], 0)).and_then(|t| t.to_stablehlo()));
            let head = text.lines().next().unwrap_or_default();
            assert!(head.contains(name) && text.contains("has no StableHLO"), "{name}: {text}");
            assert!(text.contains("tests/export/main.rs:") && text.contains("Lockstep"), "{name}: {text}");
        }
    }
}

#[test]
fn a_folder_is_whole_or_not_there() {
    let folder = std::env::temp_dir().join(format!("atmesh-export-{}", std::process::id()));
    let w = Array::ones([64, 64]);
    let module = jit(|x: &Array| x.dot(&w)).trace(Array::ones([64])).unwrap().to_stablehlo().unwrap();
    module.save(&folder).unwrap();
    let names = |folder: &std::path::Path| {
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["capture0.npy", "program.json", "program.mlir"]);
    let table: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("program.json")).unwrap()).unwrap();
    assert_eq!(table["arguments"][1]["file"], "capture0.npy");
    // Saving fails if a file has the folder's name.
    let file = folder.join("program.mlir");
    let error = module.save(&file).expect_err("a file").unquoted();
    assert!(error.contains("program.mlir"), "{error}");
    assert_eq!(names(&folder).len(), 3);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Compares with the golden texts; `ATMESH_BLESS=1` writes them again.
#[test]
fn golden_texts() {
    for (file, primitives) in [("programs.txt", false), ("primitives.txt", true)] {
        let mut text = String::new();
        // The sharded cases are left out: their text differs only in shardings.
        let whole = CASES.iter().filter(|c| !c.name.starts_with("sharded_"));
        for case in whole.filter(|c| c.name.starts_with("prim_") == primitives) {
            // Long texts are represented by their number of lines; a hash takes a hundred lines.
            let lines = case.module.text().lines();
            if lines.clone().count() > 120 {
                writeln!(text, "== {}: {} lines", case.name, lines.count()).unwrap();
            } else {
                write!(text, "== {}\n{}", case.name, case.module).unwrap();
            }
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/export").join(file);
        if std::env::var_os("ATMESH_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = golden.lines().zip(text.lines()).find(|(a, b)| a != b);
        assert!(
            golden == text,
            "{file} differs, first: {differs:?}; `ATMESH_BLESS=1 cargo test --test export` writes it anew"
        );
    }
}
