//! Tests of questions and answers, run natively.

mod book;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn ask(mesh: &str, operands: &str, program: &str, target: &str) -> Value {
    let question =
        json!({ "mesh": mesh, "operands": operands, "program": program, "target": target, "run": true });
    serde_json::from_str(&crate::answer(&question.to_string())).expect("an answer is JSON")
}
fn text(answer: &Value) -> &str {
    answer["error"]["text"].as_str().unwrap_or_default()
}
/// Checks the type of a program of `a` and `b` on a 2×4 mesh, or its error with the helps.
fn check(a: &str, b: &str, program: &str, want: Expect) {
    let answer = ask("X=2, Y=4", &format!("a: {a}\nb: {b}"), program, "");
    let mut output = match answer["result"]["type"].as_str() {
        Some(ty) => format!("{ty}\n"),
        None => text(&answer).to_string(),
    };
    for help in answer["error"]["helps"].as_array().into_iter().flatten() {
        output +=
            &format!("{} => {}\n", help["text"].as_str().unwrap(), help["source"].as_str().unwrap_or("-"));
    }
    for row in answer["collectives"].as_array().into_iter().flatten() {
        output += &format!(
            "{} over {}: {} bytes\n",
            row["kind"].as_str().unwrap(),
            row["axes"].as_str().unwrap(),
            row["bytes"]
        );
    }
    want.assert_eq(&output);
}

#[test]
fn a_program_has_a_type_a_report_and_values() {
    let answer = ask("X=4", "x: float32[8@X]", "(&x * &x).sum(..)", "");
    assert_eq!(answer["result"]["type"], "float32[]");
    assert_eq!(answer["collectives"][0]["kind"], "all_reduce");
    assert_eq!(answer["values"][3], json!({ "device": "CPU 3", "part": "[]", "data": "140.0" }));
    assert!(answer["operands"][0]["picture"].as_str().unwrap().starts_with("<svg"));
    assert_eq!(answer["operands"][0]["bytes_per_device"], 8);
    for listing in [&answer["program"], &answer["spmd"]] {
        let listing = listing.as_str().unwrap();
        assert!(listing.contains("return") && !listing.contains(".rs"), "{listing}");
    }
}
#[test]
fn programs_are_written_as_in_the_book() {
    let (a, b) = ("float32[8@X,8]", "float32[8,8@Y]");
    check(
        a,
        b,
        "let h = a.dot(&b)?; // both\n(h + 1.0).tanh().sum(0)",
        expect![[r#"
        float32[8@Y]
        all_reduce over X: 8 bytes
    "#]],
    );
    check(
        a,
        b,
        "einsum(\"ij,jk->ik\", [&a, &b])",
        expect![[r#"
        float32[8@X,8@Y]
    "#]],
    );
    check(
        a,
        b,
        "-a.t().reshape([64]).reshard(p![\"Y\"]) * 2 - 1e-3",
        expect![[r#"
            error[sharding]: reshape: dimension 1 of the operand, 8@X, becomes the minor part of dimension 0 of the result, whose major part is unsharded: its elements would move between devices
             |
             | -a.t().reshape([64]).reshard(p!["Y"]) * 2 - 1e-3
             |        ^^^^^^^
             |
             = operand: float32[8,8@X]
                                  ^^^
            say the result's sharding: `x.reshape_to([64], p!["X"])` => -a.t().reshape_to([64], p!["X"]).reshard(p!["Y"]) * 2 - 1e-3
            reshard it first: `.reshard(p![_, _])` => -a.t().reshard(p![_, _]).reshape([64]).reshard(p!["Y"]) * 2 - 1e-3
        "#]],
    );
    check(
        a,
        b,
        "grad(&a, |a| a.dot(&b).square().sum(..))",
        expect![[r#"
        float32[8@X,8]
        all_reduce over Y: 192 bytes
    "#]],
    );
    check(
        a,
        b,
        "shard_map(&mesh, (p![\"X\"], p![_, \"Y\"]), p![_, \"Y\"], |a: &Array, b| { let s = a.sum(0).psum(\"X\"); b * s.sum(..) }).call((&a, &b))?",
        expect![[r#"
            float32[8,8@Y]
            all_reduce over X: 32 bytes
        "#]],
    );
    check(
        a,
        b,
        "concat([a, a], 1).softmax(-1).astype(BF16).max(Dims::keep([0, 1]))",
        expect![[r#"
        bfloat16[1,1]
        all_reduce over X: 2 bytes
    "#]],
    );
}
#[test]
fn helps_that_are_source_can_be_applied() {
    check(
        "float32[8,8@X]",
        "float32[8@X,8]",
        "a.dot(&b).exp()",
        expect![[r#"
            error[sharding]: dot: dimension 1 of operand 0, 8@X, and dimension 0 of operand 1, 8@X, are contracted: the result could be summed over X, summed and scattered, or left unreduced
             |
             | a.dot(&b).exp()
             |   ^^^
             |
             = operands: float32[8,8@X], float32[8@X,8]
                                   ^^^           ^^^
            all-reduced: `x.dot_to(&w, p![_, _])` => a.dot_to(&b, p![_, _]).exp()
            scattered: `x.dot_to(&w, p!["X", _])` => a.dot_to(&b, p!["X", _]).exp()
            left unreduced, to be summed later: `x.dot_to(&w, p![_, _; U: "X"])` => a.dot_to(&b, p![_, _; U: "X"]).exp()
        "#]],
    );
    check(
        "float32[8@X,8]",
        "float32[8@Y,8]",
        "2.0 * (a * 2.0 + b)",
        expect![[r#"
            error[sharding]: add: dimension 0 of operand 0, 8@X, and dimension 0 of operand 1, 8@Y, must match, but are sharded differently
             |
             | 2.0 * (a * 2.0 + b)
             |       ^^^^^^^^^^^^^
             |
             = operands: float32[8@X,8], float32[8@Y,8]
                                 ^^^             ^^^
            reshard operand 0: `.reshard(p!["Y", _])` => 2.0 * ((a * 2.0).reshard(p!["Y", _]) + b)
            reshard operand 1: `.reshard(p!["X", _])` => 2.0 * (a * 2.0 + b.reshard(p!["X", _]))
        "#]],
    );
    check(
        "float32[8@X,8@Y]",
        "float32[8]",
        "(a + b).reshape([64])",
        expect![[r#"
        float32[64@(X,Y)]
        all_to_all over Y: 24 bytes
    "#]],
    );
    check(
        "float32[8]",
        "int32[8]",
        "a + b",
        expect![[r#"
            error[dtype]: add: operand 0 is float32, operand 1 is int32: they must be of one element type
             |
             | a + b
             | ^^^^^
             |
             = operands: float32[8], int32[8]
                         ^^^^^^^     ^^^^^
            convert operand 1: `.astype(F32)` => a + b.astype(F32)
        "#]],
    );
}
#[test]
fn what_is_applied_is_accepted() {
    for (a, b, program) in [
        ("float32[8,8@X]", "float32[8@X,8]", "a.dot(&b).exp()"),
        ("float32[8@X,8]", "float32[8@Y,8]", "2.0 * (a * 2.0 + b)"),
        ("float32[8,8@X]", "float32[8]", "(a + b).reshape([64]).sum(..)"),
        ("float32[8]", "int32[8]", "a + b"),
    ] {
        let operands = format!("a: {a}\nb: {b}");
        let answer = ask("X=2, Y=4", &operands, program, "");
        let helps: Vec<_> = answer["error"]["helps"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|h| h["source"].as_str())
            .collect();
        assert!(!helps.is_empty(), "{program}: {answer}");
        for source in helps {
            let after = ask("X=2, Y=4", &operands, source, "");
            assert!(
                after["error"].is_null() || text(&after).contains("unreduced"),
                "{source}: {}",
                text(&after)
            );
        }
    }
}
#[test]
fn bad_input_is_an_error() {
    let (a, b) = ("float32[8]", "float32[8]");
    for program in [
        "",
        "a.dott(&b)",
        "a.sum(0",
        "c + 1",
        "a.dot(1)",
        "a.sum(0, 1)",
        "a.sum(\"x\")",
        "f(a)",
        "let x = a",
        "a ? +",
        "1 + 2",
        "p![X; Q]",
        "|x| x",
        "é",
        "\"",
        "a.reshape([-1])",
        "99999999999999999999",
        "grad(&a, |a| a)",
        "grad(&a, |a, c| a)",
        "shard_map(1)",
        "a << 3.5",
        "-mesh",
    ] {
        let answer = ask("X=2", &format!("a: {a}\nb: {b}"), program, "");
        assert!(text(&answer).starts_with("error["), "{program}: {answer}");
    }
    for (mesh, operands, target, field) in [
        ("X", "a: f32[8]", "", "mesh"),
        ("X=0", "a: f32[8]", "", "mesh"),
        ("X=99999999999999999999999", "a: f32[8]", "", "mesh"),
        ("X=1048577", "a: f32[8]", "", "mesh"),
        ("X=2,X=2", "a: f32[8]", "", "mesh"),
        ("X=2", "a f32[8]", "", "operands"),
        ("X=2", "", "", "operands"),
        ("X=2", "a: f32[7@X]", "", "operands"),
        ("X=2", "a: f32[8@Z]", "", "operands"),
        ("X=2", "a: f32[8]", "Z", "target"),
        ("X=2", "a: f32[8]", "p![X, X]", "target"),
        ("X=2", "a: f32[8]", "\"X", "target"),
    ] {
        let answer = ask(mesh, operands, "a", target);
        assert_eq!(answer["error"]["field"], field, "{mesh} {operands} {target}: {answer}");
    }
    let deep = "(".repeat(4000);
    assert!(text(&ask("X=2", "a: f32[8]", &deep, "")).contains("nested"));
    assert!(text(&ask("X=2", "a: f32[8]", &"a.exp()".repeat(10_000), "")).contains("bytes"));
    assert!(text(&ask("X=2", "a: f32[8]", &format!("a{}", ".exp()".repeat(600)), "")).contains("levels"));
    assert!(text(&ask("X=2", "a: f32[8]", &format!("a{}", ".exp()".repeat(60)), "")).is_empty());
    let nested: String = (0..9).map(|k| format!("let f{} = |x| grad(&x, f{k});\n", k + 1)).collect();
    let nested = format!("let f0 = |x| x.sum(..);\n{nested}grad(&a, f9)");
    assert!(text(&ask("X=2", "a: f32[]", &nested, "")).contains("derivatives"));
    for question in ["", "{", "[]", "{\"mesh\": 1}"] {
        assert!(crate::answer(question).contains("error"), "{question}");
    }
}
#[test]
fn large_meshes_have_types_and_reports_only() {
    let answer = ask(
        "data=1024, model=64",
        "x: bfloat16[65536@data,8192]\nw: bfloat16[8192,32768@model]",
        "x.dot(&w).sum(1)",
        "",
    );
    assert_eq!(answer["result"]["type"], "bfloat16[65536@data]");
    assert_eq!((&answer["abstract"], &answer["devices"]), (&json!(true), &json!(65536)));
    assert!(answer["values_error"].as_str().unwrap().contains("abstract") && answer["values"].is_null());
    assert!(answer["collectives"][0]["bytes"].as_u64().unwrap() > 0);
}
#[test]
fn the_target_reshards_the_result() {
    for target in ["p![_, \"X\"]", "_, X", "_, \"X\"", " p! [ _, X ] "] {
        let answer = ask("X=2", "a: float32[4@X,4]", "a", target);
        assert_eq!(
            (&answer["result"]["type"], &answer["collectives"][0]["kind"]),
            (&json!("float32[4,4@X]"), &json!("all_to_all"))
        );
        assert!(
            answer["moves"].as_str().unwrap().starts_with("<svg"),
            "one operand, only moved: who got what from whom is drawn"
        );
    }
    assert_eq!(ask("X=2", "a: float32[4,4]", "a", "; U: X")["result"]["type"], "float32[4,4]{U:X}");
}
/// Checks the calls of the page: buffer, question, answer.
#[test]
fn strings_go_by_place_and_length() {
    use crate::abi::{ask, length, question, reply};
    assert!(!question(16).is_null());
    let n = ask();
    assert_eq!(n, length());
    assert!(n > 0 && !reply().is_null(), "sixteen zeros are no question, and are answered");
    assert!(question(usize::MAX).is_null());
}

#[test]
fn auto_axes_are_placed_and_propagated() {
    let mesh = "data=2 auto, model=4 auto";
    let operands = "x: float32[16,32] over [data,_]\nup: float32[32,64] over [_,model]\ndown: float32[64,32] over [model,_]";
    let answer = ask(mesh, operands, "x.dot(&up).relu().dot(&down)", "");
    assert_eq!(answer["mesh"], "Mesh(data: 2 auto, model: 4 auto)", "{answer}");
    assert_eq!(answer["operands"][1]["type"], "float32[32,64], sharded as p![_, \"model\"]");
    assert_eq!(answer["operands"][1]["bytes_per_device"], 32 * 16 * 4);
    assert_eq!(answer["result"]["type"], "float32[16,32], sharded as p![\"data\", _]");
    assert_eq!(answer["collectives"][0]["kind"], "all_reduce");
    assert!(answer["program"].as_str().unwrap().contains("over [data,model]"), "{answer}");
    assert_eq!(answer["values"][4]["part"], "[8..16, 0..32]", "{answer}");
    // the target requests the result over both axes
    let answer = ask(mesh, operands, "x.dot(&up).relu().dot(&down)", "data, model");
    assert_eq!(answer["result"]["type"], "float32[16,32], sharded as p![\"data\", \"model\"]", "{answer}");
    assert_eq!(answer["collectives"][0]["kind"], "reduce_scatter");
    // an auto axis need not divide a dimension, even next to an explicit axis
    let answer = ask("X=4 auto", "x: float32[10] over X", "&x * 2.0", "");
    assert_eq!(answer["operands"][0]["bytes_per_device"], 12, "{answer}");
    assert_eq!(answer["result"]["type"], "float32[10], sharded as p![\"X\"]", "{answer}");
    let answer = ask("X=2, Y=4 auto", "x: float32[8@X,8] over [_,Y]", "x.exp()", "");
    assert_eq!(answer["result"]["type"], "float32[8@X,8], sharded as p![\"X\", \"Y\"]", "{answer}");
    for (mesh, operand, output) in [
        ("X=4", "x: float32[8] over X", "X is no auto axis of Mesh(X: 4): write it in the type, like 8@X"),
        ("X=4 auto", "x: float32[8] over Z", "Z is no auto axis"),
        ("X=4 auto", "x: float32[8] over [_,X]", "float32[8] has 1 dimensions"),
        ("X=4 auto", "x: float32[8@X]", "auto"),
    ] {
        let answer = ask(mesh, operand, "x", "");
        assert!(text(&answer).contains(output), "{mesh} {operand}: {answer}");
    }
    // an abstract mesh with a placed operand
    let answer = ask("X=65536 auto", "x: float32[65536,8] over X", "x.sum(0)", "");
    assert_eq!(answer["collectives"][0]["kind"], "all_reduce", "{answer}");
}

/// Checks that each preset of the book has its type or an error, and a link on the page.
#[test]
fn presets_are_what_they_say() {
    let script = include_str!("../../book/src/playground/presets.js");
    let page = include_str!("../../book/src/playground.md");
    let from = script.find('{').expect("the presets are JSON");
    let presets: Value = serde_json::from_str(script[from..].trim_end().trim_end_matches(';')).unwrap();
    let presets = presets.as_object().expect("they have names");
    assert!(presets.len() > 12);
    for (name, preset) in presets {
        let field = |of: &str| preset[of].as_str().unwrap_or_else(|| panic!("{name} has no {of}"));
        let answer = ask(field("mesh"), field("operands"), field("program"), field("target"));
        let rejected = !text(&answer).is_empty();
        assert_eq!(answer["result"]["type"].as_str().unwrap_or_default(), field("type"), "{name}: {answer}");
        assert_eq!(rejected, field("type").is_empty(), "{name}: {answer}");
        assert!(page.contains(&format!("id=\"preset-{name}\"")), "{name} has no link");
    }
}
