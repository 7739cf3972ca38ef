//! Values in a notebook: the text of the display protocol, and HTML that is well formed and escaped.

use atmesh::display::LineChart;
use atmesh::notebook::MimeBundle;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;
use atmesh::{Error, Picture, Spec};
use expect_test::expect;
use std::collections::BTreeMap;
use std::process::Command;

/// Checks that each tag is closed in order, that attributes are quoted, and that `&` starts an entity.
/// Returns the text without tags.
fn text_of(html: &str) -> String {
    let (mut open, mut text, mut rest) = (Vec::new(), String::new(), html);
    while let Some(at) = rest.find('<') {
        text += &rest[..at];
        let end = rest[at..].find('>').map(|n| at + n).expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert!(!tag.contains('<') && tag.matches('"').count().is_multiple_of(2), "{tag} in {html}");
        let name = tag.trim_matches('/').split(' ').next().expect("a tag has a name");
        match tag {
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{html}"),
            _ if tag.ends_with('/') => {}
            _ => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} are not closed in {html}");
    text += rest;
    for after in text.split('&').skip(1) {
        let entity = after.split(';').next().expect("there is a first part");
        assert!(["amp", "lt", "gt", "quot"].contains(&entity), "&{entity} in {text}");
    }
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    plain.iter().fold(text, |text, (entity, c)| text.replace(entity, c))
}

/// Checks the protocol around the forms of a value, and returns them.
fn bundle(value: &impl NotebookDisplay) -> MimeBundle {
    let bundle = value.mime_bundle();
    let text = bundle.to_string();
    let mut rest = text.as_str();
    for form in ["text/plain", "text/html", "image/svg+xml"] {
        let Some(content) = bundle.get(form) else { continue };
        let part = format!("EVCXR_BEGIN_CONTENT {form}\n{content}\nEVCXR_END_CONTENT\n");
        rest = rest.strip_prefix(part.as_str()).unwrap_or_else(|| panic!("{form} in {text}"));
        if form != "text/plain" {
            text_of(content);
        }
    }
    assert_eq!(rest, "");
    bundle
}

fn html(value: &impl NotebookDisplay) -> String {
    bundle(value).get("text/html").expect("the value has HTML").to_string()
}

#[test]
fn arrays_print_their_type_and_elements() {
    let x = Array::from([[1.5f32, -2.0], [0.25, 3.0]]);
    expect![[r#"
        EVCXR_BEGIN_CONTENT text/plain
        float32[2,2]
        [[ 1.5  -2.  ]
         [ 0.25  3.  ]]
        EVCXR_END_CONTENT
        EVCXR_BEGIN_CONTENT text/html
        <div><code>float32[2,2]</code></div>
        <pre style="margin: 0; font-family: monospace; white-space: pre; overflow-x: auto">[[ 1.5  -2.  ]
         [ 0.25  3.  ]]</pre>
        EVCXR_END_CONTENT
    "#]]
    .assert_eq(&x.mime_bundle().to_string());
}

#[test]
fn sharded_arrays_show_their_devices() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let shown = html(&Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X"]));
    assert!(shown.contains("<code>int32[4@X,2]</code>") && shown.contains("<summary>on 4 devices</summary>"));
    assert!(text_of(&shown).contains("CPU 0,1"), "{shown}");
    // a value on one device has no picture, and neither has one on very many
    let alone = Array::ones([2]).put(&Mesh::new([("X", 1)])?, p!["X"]);
    assert!(!html(&alone).contains("svg"));
    let many = F32.array_type([4096]).on(&Mesh::without_devices([("X", 4096)])?, p!["X"]);
    assert_eq!(text_of(&html(&many)).trim(), "float32[4096@X]");
    Ok(())
}

#[test]
fn large_arrays_are_abbreviated() {
    let shown = bundle(&Array::arange(0..1_000_000)).to_string();
    assert!(shown.contains("int32[1000000]\n[") && shown.contains("..."), "{shown}");
    assert!(shown.len() < 1000, "{shown}");
}

#[test]
fn errors_are_shown() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let place = |spec: Spec| Array::ones([4]).put(&mesh, spec);
    let bad = place(p!["X"]) + place(p!["Y"]);
    let error = bad.ty().expect_err("the shardings differ");
    let shown = html(&bad);
    assert!(text_of(&shown).contains("error[sharding]"), "{shown}");
    let forms: [MimeBundle; 3] = [bundle(&error), bundle(&Err::<Array, Error>(error.clone())), bundle(&bad)];
    assert!(forms.iter().all(|form| *form == forms[0]));
    // the good part of a tree is shown, and an error does not hide it
    let pair = html(&(Array::ones([2]), bad.clone()));
    assert!(pair.contains("float32[2]") && pair.contains("error[sharding]"));
    let picture = bundle(&Picture::from_error(&error));
    assert!(picture.get("text/html").is_some_and(|html| html.contains("error[sharding]")));
    let many = html(&vec![bad; 20]);
    assert!(many.contains("error[sharding]"));
    Ok(())
}

#[derive(Clone, Tree)]
struct Params {
    w: Array,
    b: Array,
}

#[test]
fn trees_show_their_arrays() -> Result<()> {
    let params = Params { w: Array::ones([2, 2]), b: Array::zeros([2]) };
    let text = bundle(&params).get("text/plain").map(str::to_string);
    assert_eq!(text.as_deref(), Some("w: float32[2,2]\n[[1. 1.]\n [1. 1.]]\nb: float32[2]\n[0. 0.]"));
    let many: BTreeMap<String, Array> = (0..9).map(|k| (format!("a<{k}"), Array::ones([k]))).collect();
    let table = html(&many);
    assert!(table.contains("<td style=\"text-align: left\">a&lt;8</td>"), "{table}");
    assert!(table.contains("<td style=\"text-align: left\">9 arrays</td>"), "{table}");
    assert_eq!(bundle(&()).to_string(), "");
    assert_eq!(html(&Ok::<Array, Error>(Array::ones([3]))), html(&Array::ones([3])));
    Ok(())
}

#[test]
fn reports_plans_and_pictures_show_themselves() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let (x, w) = (Array::ones([4, 8]).put(&mesh, p![_, "X"]), Array::ones([8, 4]).put(&mesh, p!["X", _]));
    let f = jit(|x: &Array, w: &Array| x.dot_to(w, p![]));
    let lowered = f.lower((&x, &w))?;
    let report = html(lowered.collectives());
    assert!(report.contains("<td style=\"text-align: right\">") && report.contains("all_reduce"), "{report}");
    assert!(report.contains("<code>peak memory: "));
    let nothing = jit(|x: &Array| x + 1).lower(&x)?;
    assert!(html(nothing.collectives()).starts_with("<div><code>no collectives; peak memory"));
    for text in [
        html(&lowered),
        html(&f.trace((&x, &w))?),
        html(f.trace((&x, &w))?.program()),
        html(&lowered.memory()),
        html(&lowered.plan(&Machine::h100().links(Link::switch(50e9)))?),
        html(&lowered.explain(0)?),
        html(&type_of((&x, &w))),
        html(&tree::summary((&x, &w))?),
        html(&x.shards()?),
        html(&mesh),
        html(&x.sharding()?.expect("it is placed")),
        html(&x.ty()?),
        html(&p!["X"]),
        html(&F32),
    ] {
        assert!(!text_of(&text).trim().is_empty());
    }
    assert!(html(&mesh).contains("CPU 3") && html(&mesh).contains("Mesh(X: 2, Y: 2)"));
    for picture in [
        bundle(&x.visualize()),
        bundle(&jit(|x: &Array| x.reshard(p![])).data_movement(&x)?),
        bundle(&LineChart::new("a < b & c").line("loss", [(0, 3.0), (1, 2.0)])),
    ] {
        assert!(picture.get("image/svg+xml").is_some_and(|svg| svg.starts_with("<svg")));
        assert!(picture.get("text/plain").is_some_and(|text| !text.is_empty()));
    }
    Ok(())
}

/// The kernel reads forms from stdout, each in whole lines.
#[test]
fn values_are_printed_to_stdout() {
    const CHILD: &str = "ATMESH_NOTEBOOK_CHILD";
    let value = Array::arange(0..3);
    if std::env::var_os(CHILD).is_some() {
        value.evcxr_display();
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("the path of the test"));
    child.args(["--exact", "notebook::values_are_printed_to_stdout", "--nocapture"]).env(CHILD, "1");
    let output = child.output().expect("the test starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains(&value.mime_bundle().to_string()), "{printed}");
}

/// Content with a line of the protocol does not end the form.
#[test]
fn content_cannot_end_a_form() {
    let text = MimeBundle::new("before\nEVCXR_END_CONTENT\nafter").to_string();
    assert_eq!(
        text,
        "EVCXR_BEGIN_CONTENT text/plain\nbefore\n EVCXR_END_CONTENT\nafter\nEVCXR_END_CONTENT\n"
    );
}
