//! Errors as a user sees them: which ones are reported, in which order, each once, and on which
//! source lines.
use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Returns the operation and line of each diagnostic.
fn ops_and_lines(error: &Error) -> Vec<(String, u32)> {
    error
        .diagnostics()
        .iter()
        .map(|d| (d.op.clone(), d.location.expect("operations have a place").line()))
        .collect()
}
fn ops(error: &Error) -> Vec<String> {
    ops_and_lines(error).into_iter().map(|(op, _)| op).collect()
}

#[test]
fn independent_errors_are_all_told_once_in_the_order_of_their_lines() {
    let first = line!() + 2;
    let f = jit(|x: &Array| {
        let a = x.reshape([3, 3]);
        let b = a.sin() * 2.0 + x; // a consequence of `a`, not reported again
        let _dropped = x + Array::arange(0..8);
        let c = &b + x.dot(Array::ones([3]));
        (a, b, c)
    });
    let error = f.call(Array::ones([8])).map(|_| ()).expect_err("three lines are wrong");
    let want = [("reshape", first), ("add", first + 2), ("dot", first + 3)];
    assert_eq!(ops_and_lines(&error), want.map(|(op, line)| (op.to_string(), line)));
    assert_eq!(error.diagnostics()[1].fault.kind, ErrorKind::Dtype);
}

#[test]
fn a_line_that_runs_many_times_is_told_once() {
    let f = jit(|x: &Array| {
        let mut sum = x.clone();
        for _ in 0..5 {
            sum += x.dot(Array::ones([3]));
        }
        sum
    });
    assert_eq!(ops(&f.call(Array::ones([8])).map(|_| ()).unwrap_err()), ["dot"]);
}

/// Returns the sum of two independent errors.
fn two(x: &Array) -> Array {
    x.reshape([3, 3]).sum(..) + (x + Array::arange(0..8))
}

#[test]
fn first_causes_survive_what_is_around_them() {
    let x = Array::ones([8]);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let check = |name: &str, result: Result<Array>| {
        let error = result.map(|_| ()).expect_err(name);
        assert_eq!(ops(&error), ["reshape", "add"], "{name}:\n{error}");
    };
    check("nothing", two(&x).ready());
    check("jit", jit(|x: &Array| two(x)).call(&x));
    let inner = jit(|x: &Array| two(x));
    check("nested jit", jit(|x: &Array| inner.call(x)).call(&x));
    check(
        "nested jit whose error is dropped",
        jit(|x: &Array| inner.call(x).unwrap_or_else(|_| x.clone())).call(&x),
    );
    check("fori_loop", fori_loop(0..3, &x, |_, x| two(&x)).ready());
    check("while_loop", while_loop(&x, |x| x.sum(..).lt(9.0), |x| two(&x)).ready());
    check("while_loop's condition", while_loop(&x, |x| two(x).sum(..).lt(9.0), |x| x + 1.0).ready());
    check("scan", scan(&x, Array::ones([4]), |c, y| (two(&c), y)).0.ready());
    check("cond", cond(x.sum(..).gt(0.0), || two(&x), || x.clone()).ready());
    check("cond's choice", cond(two(&x).sum(..).gt(0.0), || x.clone(), || x.clone()).ready());
    check("switch", switch(1, &[&|| x.clone(), &|| two(&x)]).ready());
    check("grad", grad(&x, |x| two(&x).sum(..)).ready());
    check("vjp", atmesh::vjp(&x, |x| two(&x)).0.ready());
    check("jvp", jvp(&x, &x, |x| two(&x)).0.ready());
    check("vmap", vmap(Array::ones([4, 8]), |x| two(&x)).ready());
    check("checkpoint", checkpoint(&x, |x| two(&x)).ready());
    let x16 = Array::ones([16]);
    check("shard_map", shard_map(&mesh, p!["X"], p!["X"], |x: &Array| two(x)).call(&x16));
    let placed = x.put(&mesh, p![]);
    check("auto_axes", auto_axes(&placed, p![], |x| two(&x)).ready());
    let auto = x.put(&Mesh::auto([("X", 2)]).unwrap(), p![]);
    check("explicit_axes", explicit_axes(&auto, p![], |x| two(&x)).ready());
    check("a tree", jit(|x: &Array| vec![x.clone(), two(x)]).call(&x).map(|v| v[1].clone()));
    check("a capture", {
        let bad = two(&x);
        jit(|x: &Array| x + &bad).call(&x)
    });
    check("an argument", jit(|x: &Array| x + 1.0).call(two(&x)));
    check(
        "a loop in a loop in a gradient",
        grad(&x, |x| fori_loop(0..2, x, |_, x| fori_loop(0..2, x, |_, x| two(&x))).sum(..)).ready(),
    );
}

#[test]
fn operands_with_different_errors_carry_all_of_them() {
    let (a, b) = (Array::ones([4]).reshape([5]), Array::ones([4]) + Array::ones([3]));
    let both = [
        (&a + &b),
        a.dot(&b),
        concat([&a, &b], 0),
        stack([&a, &b], 0),
        a.matmul(&b),
        einsum("i,i->", [&a, &b]),
    ];
    for x in both.into_iter().chain([
        Array::ones([4]).gt(0.0).select(&a, &b),
        a.at(ix![0]).set(&b),
        a.slice(ix![&b]),
    ]) {
        assert_eq!(ops(&x.ty().unwrap_err()), ["reshape", "add"]);
    }
    assert_eq!(
        ops(&jit(|x: &(Array, Array)| &x.0 + &x.1).call((&a, &b)).map(|_| ()).unwrap_err()),
        ["reshape", "add"]
    );
}

#[test]
fn composed_operations_are_told_by_their_own_name_and_the_users_line() {
    let ints = Array::arange(0..4);
    for (x, op) in [
        (ints.softmax(0), "softmax"),
        (Array::ones([4]).logsumexp(1), "logsumexp"),
        (Array::ones([4]).mean(1), "mean"),
        (Array::ones([4]).astype(BF16).std(1), "std"),
        (Array::ones([4]).dot(Array::ones([3])), "dot"),
        (einsum("i,i->", [Array::ones([4]), Array::ones([4]).astype(F64)]), "einsum"),
        (Array::ones([4]).broadcast_to([3]), "broadcast_to"),
        (Array::ones([4]).at(ix![..2]).set(Array::arange(0..2)), "at.set"),
    ] {
        let error = x.ty().unwrap_err();
        assert_eq!(ops(&error), [op], "{error}");
        assert_eq!(error.diagnostics()[0].location.unwrap().file(), file!(), "{error}");
    }
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let mean = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmean("Q"));
    assert_eq!(ops(&mean.call(Array::ones([4])).unwrap_err()), ["pmean"]);
    // The name does not apply to later operations.
    assert_eq!(ops(&(ints + 0.5).ty().unwrap_err()), ["add"]);
}

#[test]
fn every_error_of_arguments_is_reported() {
    let f = jit(|x: &Array, y: &Array| x + y);
    let x = Array::ones([4]);
    let compiled = f.lower((&x, &x)).and_then(|l| l.compile()).unwrap();
    let error = compiled.call((Array::ones([3]), Array::arange(0..4))).unwrap_err();
    let kinds: Vec<_> = error.diagnostics().iter().map(|d| d.fault.kind).collect();
    assert_eq!(kinds, [ErrorKind::Shape, ErrorKind::Dtype]);
    let tangent: (Array, Array) =
        grad(&(Array::arange(0..4), Array::arange(0..3)), |(a, b)| a.sum(..) + b.sum(..));
    assert_eq!(tangent.0.ty().unwrap_err().diagnostics().len(), 2);
    assert!(jit(|x: &Array| x + 1.0).donate(1).call(&x).is_err(), "there is no argument 1");
    let sharding = x.put(&Mesh::new([("X", 2)]).unwrap(), p!["X"]).sharding().unwrap().unwrap();
    assert!(
        Array::from_shards([4], &sharding, (0..3).map(|_| Array::ones([2]))).is_err(),
        "a piece too many"
    );
}

/// Returns the related lines of an error, with the label of each.
fn related(x: &Array) -> Vec<(u32, String)> {
    let error = x.ty().expect_err("it is rejected");
    error.diagnostics()[0].related.iter().map(|(place, what)| (place.line(), what.clone())).collect()
}

/// If a carry or a branch changes its type, the error shows the line that changed it, not the last
/// line before the end.
#[test]
fn lines_that_made_another_type_are_shown() {
    let x = Array::ones([8]).put(&Mesh::new([("X", 2)]).unwrap(), p![]);
    let becomes = |line: u32, ty: &str| vec![(line, format!("becomes {ty} here"))];
    let first = line!() + 2;
    let wide = |x: Array| {
        let y = x.astype(F64);
        let z = y.sin() + 1.0;
        &z * &z
    };
    assert_eq!(related(&fori_loop(0..3, &x, |_, x| wide(x))), becomes(first, "float64[8]"));
    assert_eq!(related(&while_loop(&x, |x| x.sum(..).lt(9.0), wide)), becomes(first, "float64[8]"));
    assert_eq!(related(&scan(&x, Array::ones([4]), |x, y| (wide(x), y)).0), becomes(first, "float64[8]"));
    let split = fori_loop(0..3, &x, |_, x| {
        let y = x.reshard(p!["X"]); // here
        y * 2.0
    });
    assert_eq!(related(&split), becomes(line!() - 3, "float32[8@X]"));
    let longer = fori_loop(0..3, &x, |_, x| concat([&x, &x], 0).cos());
    assert_eq!(related(&longer), becomes(line!() - 1, "float32[16]"));
    // The lines of both branches.
    let chosen = cond(
        x.sum(..).gt(0.0),
        || x.sin() * 2.0,
        || {
            let y = x.astype(F64);
            y.cos()
        },
    );
    let line = line!() - 6;
    let expected = [(line, "float32[8] where it holds"), (line + 2, "float64[8] where it does not")];
    assert_eq!(related(&chosen), expected.map(|(line, what)| (line, what.to_string())));
    let switched = switch(0, &[&|| x.sin(), &|| x.cos(), &|| x.sum(..)]);
    let expected = [(line!() - 1, "float32[8] of branch 0"), (line!() - 1, "float32[] of branch 2")];
    assert_eq!(related(&switched), expected.map(|(line, what)| (line, what.to_string())));
    // A value from outside has no line in the body.
    assert_eq!(related(&cond(x.sum(..).gt(0.0), || x.clone(), || x.sum(..))).len(), 1);
}

/// Each error has an operation and a line, also if the machine or a kernel is the limit.
#[test]
fn limits_are_told_with_their_line() {
    let rank = |n: usize| Array::ones(vec![1; n]);
    for (x, op) in [
        (Array::ones([8]).broadcast_to([1usize << 36, 8]), "broadcast_to"),
        (Array::zeros([1_000_000, 0]).dot(Array::zeros([0, 1_000_000])), "dot"),
        (rank(13), "ones"),
        (stack([rank(12), rank(12)], 0), "stack"),
        (rank(12).matmul(rank(12)), "matmul"),
        (rank(12).expand_dims(0), "expand_dims"),
        (rank(12).reshape(vec![1; 13]), "reshape"),
    ] {
        let error = x.ty().expect_err(op);
        assert_eq!(ops(&error), [op], "{error}");
        assert_eq!(error.diagnostics()[0].location.unwrap().file(), file!(), "{error}");
    }
    assert_eq!(rank(13).ty().unwrap_err().kind(), ErrorKind::Unsupported);
}

/// An error returned by `main`, or printed, is coloured on terminals only, or if the environment
/// requests it.
#[test]
fn colours_are_for_terminals() {
    const CHILD: &str = "ATMESH_TEST_PRINTS";
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Array::ones([4, 2]).put(&mesh, p!["X"]);
    let error = x.dot(Array::ones([3])).ty().unwrap_err();
    if std::env::var_os(CHILD).is_some() {
        eprintln!("{error:?}");
        return x.visualize().print();
    }
    let run = |name: &str| {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", "diagnostics::colours_are_for_terminals", "--nocapture"]).env(CHILD, "1");
        let out = own.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env(name, "1").output().unwrap();
        [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [picture, message] = run("CLICOLOR_FORCE");
    assert!(message.contains(&error.colored()) && error.colored().contains('\x1b'), "{message}");
    assert!(picture.contains(&x.visualize().colored()), "{picture}");
    let [picture, message] = run("NO_COLOR");
    assert!(message.contains(&format!("{error}")) && !message.contains('\x1b'), "{message}");
    assert!(picture.contains(&x.visualize().to_string()) && !picture.contains('\x1b'), "{picture}");
}

#[test]
fn searched_text_has_no_quoted_lines() {
    let error = Array::ones([2]).sum(7 /* quoted */).ty().unwrap_err();
    assert!(format!("{error}").contains("quoted"), "{error}");
    let text = error.unquoted();
    assert!(!text.contains("quoted"), "{text}");
    let parts = ["sum", "there is no dimension 7", "tests/programs/diagnostics.rs:", "float32[2]", "help: "];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

/// Returns the Rust files in a folder and its subfolders.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// Returns true if code ends with an error: a variable `e`, `err` or `error`, or a call of
/// `unwrap_err` or `expect_err`.
fn ends_with_error(code: &str) -> bool {
    let code = code.trim_end();
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let word = &code[code.rfind(|c| !is_word(c)).map_or(0, |at| at + 1)..];
    if !word.is_empty() {
        return matches!(word, "e" | "err" | "error");
    }
    let mut depth = 0;
    let opening = code.char_indices().rev().find(|(_, c)| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    });
    opening.is_some_and(|(at, _)| ["unwrap_err", "expect_err"].iter().any(|call| code[..at].ends_with(call)))
}

/// A printed error quotes the line of the test, so a test that searches it may find its own words.
/// Tests search `error.unquoted()`, and print errors by `format!`.
#[test]
fn tests_do_not_search_quoted_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = Vec::new();
    let call = concat!(".to_", "string()");
    for path in rust_files(&folder).iter().filter(|path| !path.starts_with(folder.join("ui"))) {
        let text = std::fs::read_to_string(path).expect("it can be read");
        for (at, _) in text.match_indices(call).filter(|(at, _)| ends_with_error(&text[..*at])) {
            let line = text[..at].lines().count();
            found.push(format!("{}:{line}", path.display()));
        }
    }
    assert!(
        found.is_empty(),
        "write `.unquoted()` (of `tests/error_checks`) to search an error, `format!` to print it:\n{}",
        found.join("\n")
    );
}
