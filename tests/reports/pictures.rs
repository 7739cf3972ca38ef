//! Pictures: those of the reference, character by character, and those that only this crate draws.

use crate::error_checks::Unquoted as _;
use atmesh::mesh::{Axes, AxisType};
use atmesh::{ArrayType, Mesh, Picture, Sharding, Spec, p};
use expect_test::{Expect, expect};
use serde_json::Value;

fn sharding(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Sharding {
    Sharding::new(mesh, spec, shape).unwrap()
}
fn check(mesh: &Mesh, spec: Spec, shape: &[usize], want: Expect) {
    want.assert_eq(&Picture::new(shape, &sharding(mesh, spec, shape)).to_string());
}

#[test]
fn the_reference_draws_the_same() {
    let path = format!("{}/tests/pictures/reference.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut pictures = 0;
    for part in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let (case, want) = part.split_once('\n').unwrap();
        let case: Value = serde_json::from_str(case).unwrap();
        let list = |v: &Value| v.as_array().unwrap().clone();
        let axes = list(&case["mesh"]);
        let mesh = Mesh::new(axes.iter().map(|a| (a[0].as_str().unwrap(), a[1].as_u64().unwrap() as usize)))
            .unwrap();
        let shape: Vec<usize> = list(&case["shape"]).iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let entry = |e: &Value| list(e).iter().map(|a| a.as_str().unwrap().into()).collect::<Axes>();
        let spec = Spec::from_dims(list(&case["spec"]).iter().map(entry).collect());
        let got = Picture::new(shape.as_slice(), &sharding(&mesh, spec, &shape)).to_string();
        assert_eq!(got.trim_end(), want.trim_end(), "{case}");
        pictures += 1;
    }
    assert!(pictures > 20, "only {pictures} pictures");
}

/// The four pictures of the tutorial, on its mesh.
#[test]
fn pictures_of_the_tutorial() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    check(
        &mesh,
        p!["x", _],
        &[8192, 8192],
        expect![[r#"
        ┌───────────────────────┐
        │                       │
        │        CPU 0,1        │
        │                       │
        │                       │
        ├───────────────────────┤
        │                       │
        │        CPU 2,3        │
        │                       │
        │                       │
        └───────────────────────┘
    "#]],
    );
    check(
        &mesh,
        p![_, "y"],
        &[8192, 8192],
        expect![[r#"
        ┌──────────┬──────────┐
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        │ CPU 0,2  │ CPU 1,3  │
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        └──────────┴──────────┘
    "#]],
    );
    check(
        &mesh,
        p![_, "x"],
        &[4, 4],
        expect![[r#"
        ┌──────────┬──────────┐
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        │ CPU 0,1  │ CPU 2,3  │
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        └──────────┴──────────┘
    "#]],
    );
    // Without a mesh.
    expect![[r#"
        ┌───────────────────────┐
        │                       │
        │                       │
        │                       │
        │                       │
        │         CPU 0         │
        │                       │
        │                       │
        │                       │
        │                       │
        └───────────────────────┘
    "#]]
    .assert_eq(&Picture::from_type(&atmesh::DType::F32.array_type([4, 4])).to_string());
}

#[test]
fn summands_of_an_unreduced_array_stand_apart() {
    let mesh = Mesh::new([("X", 2), ("Y", 2), ("Z", 2)]).unwrap();
    check(
        &mesh,
        p!["X", _; U: "Z"],
        &[4, 4],
        expect![[r#"
        ┌───────────────────────┐
        │                       │
        │     CPU 0,2 + 1,3     │
        │                       │
        │                       │
        ├───────────────────────┤
        │                       │
        │     CPU 4,6 + 5,7     │
        │                       │
        │                       │
        └───────────────────────┘
    "#]],
    );
}
#[test]
fn uneven_blocks_are_drawn_as_they_are() {
    let mesh = Mesh::auto([("X", 4)]).unwrap();
    check(
        &mesh,
        p![_, "X"],
        &[8, 13],
        expect![[r#"
        ┌──────────┬──────────┬──────────┬───────┐
        │          │          │          │       │
        │          │          │          │       │
        │          │          │          │       │
        │          │          │          │       │
        │  CPU 0   │  CPU 1   │  CPU 2   │ CPU 3 │
        │          │          │          │       │
        │          │          │          │       │
        │          │          │          │       │
        │          │          │          │       │
        └──────────┴──────────┴──────────┴───────┘
    "#]],
    );
    check(
        &mesh,
        p!["X"],
        &[5],
        expect![[r#"
        ┌───────┬───────┬───────┐
        │ CPU 0 │ CPU 1 │ CPU 2 │
        └───────┴───────┴───────┘
        CPU 3: nothing
    "#]],
    );
}
#[test]
fn more_dimensions_are_slices() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    check(
        &mesh,
        p!["X", _, "Y"],
        &[4, 8, 8],
        expect![[r#"
        [0:2, :, :]
        ┌──────────┬──────────┐
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        │  CPU 0   │  CPU 1   │
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        └──────────┴──────────┘
        [2:4, :, :]
        ┌──────────┬──────────┐
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        │  CPU 2   │  CPU 3   │
        │          │          │
        │          │          │
        │          │          │
        │          │          │
        └──────────┴──────────┘
    "#]],
    );
    check(
        &mesh,
        p![_, _, ("X", "Y")],
        &[4, 8, 8],
        expect![[r#"
        [:, :, :]
        ┌───────┬───────┬───────┬───────┐
        │       │       │       │       │
        │       │       │       │       │
        │       │       │       │       │
        │       │       │       │       │
        │ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │
        │       │       │       │       │
        │       │       │       │       │
        │       │       │       │       │
        │       │       │       │       │
        └───────┴───────┴───────┴───────┘
    "#]],
    );
    check(
        &mesh,
        p![],
        &[],
        expect![[r#"
        ┌───────────────────────┐
        │      CPU 0,1,2,3      │
        └───────────────────────┘
    "#]],
    );
    check(
        &mesh,
        p!["X"],
        &[0, 4],
        expect![[r#"
            ┌───────────────────────┐
            │      CPU 0,1,2,3      │
            └───────────────────────┘
        "#]],
    );
}
#[test]
fn what_does_not_fit_is_told_in_short() {
    let mesh = Mesh::new([("X", 16), ("Y", 32)]).unwrap();
    check(
        &mesh,
        p![],
        &[64, 64],
        expect![[r#"
        ┌───────────────────────┐
        │                       │
        │                       │
        │                       │
        │                       │
        │       CPU 0-511       │
        │                       │
        │                       │
        │                       │
        │                       │
        └───────────────────────┘
    "#]],
    );
    check(
        &mesh,
        p!["X"],
        &[64, 64],
        expect![[r#"
        ┌───────────────────────┐
        │       CPU 0-31        │
        ├───────────────────────┤
        │       CPU 32-63       │
        ├───────────────────────┤
        │       CPU 64-95       │
        ├───────────────────────┤
        │      CPU 96-127       │
        ├───────────────────────┤
        │      CPU 128-159      │
        ├───────────────────────┤
        │      CPU 160-191      │
        ├───────────────────────┤
        │      CPU 192-223      │
        ├───────────────────────┤
        │      CPU 224-255      │
        ├───────────────────────┤
        │      CPU 256-287      │
        ├───────────────────────┤
        │      CPU 288-319      │
        ├───────────────────────┤
        │      CPU 320-351      │
        ├───────────────────────┤
        │      CPU 352-383      │
        ├───────────────────────┤
        │      CPU 384-415      │
        ├───────────────────────┤
        │      CPU 416-447      │
        ├───────────────────────┤
        │      CPU 448-479      │
        ├───────────────────────┤
        │      CPU 480-511      │
        └───────────────────────┘
    "#]],
    );
    check(
        &mesh,
        p!["Y", "X"],
        &[64, 64],
        expect![[r#"
        ┌──────┬──────┬──────┬───────┬───────┬───────┬───────┬───────┬─┬───────┐
        │CPU 0 │CPU 32│CPU 64│CPU 96 │CPU 128│CPU 160│CPU 192│CPU 224│…│CPU 480│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 1 │CPU 33│CPU 65│CPU 97 │CPU 129│CPU 161│CPU 193│CPU 225│…│CPU 481│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 2 │CPU 34│CPU 66│CPU 98 │CPU 130│CPU 162│CPU 194│CPU 226│…│CPU 482│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 3 │CPU 35│CPU 67│CPU 99 │CPU 131│CPU 163│CPU 195│CPU 227│…│CPU 483│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 4 │CPU 36│CPU 68│CPU 100│CPU 132│CPU 164│CPU 196│CPU 228│…│CPU 484│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 5 │CPU 37│CPU 69│CPU 101│CPU 133│CPU 165│CPU 197│CPU 229│…│CPU 485│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 6 │CPU 38│CPU 70│CPU 102│CPU 134│CPU 166│CPU 198│CPU 230│…│CPU 486│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 7 │CPU 39│CPU 71│CPU 103│CPU 135│CPU 167│CPU 199│CPU 231│…│CPU 487│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 8 │CPU 40│CPU 72│CPU 104│CPU 136│CPU 168│CPU 200│CPU 232│…│CPU 488│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 9 │CPU 41│CPU 73│CPU 105│CPU 137│CPU 169│CPU 201│CPU 233│…│CPU 489│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 10│CPU 42│CPU 74│CPU 106│CPU 138│CPU 170│CPU 202│CPU 234│…│CPU 490│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 11│CPU 43│CPU 75│CPU 107│CPU 139│CPU 171│CPU 203│CPU 235│…│CPU 491│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 12│CPU 44│CPU 76│CPU 108│CPU 140│CPU 172│CPU 204│CPU 236│…│CPU 492│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 13│CPU 45│CPU 77│CPU 109│CPU 141│CPU 173│CPU 205│CPU 237│…│CPU 493│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 14│CPU 46│CPU 78│CPU 110│CPU 142│CPU 174│CPU 206│CPU 238│…│CPU 494│
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │  ⋮   │  ⋮   │  ⋮   │   ⋮   │   ⋮   │   ⋮   │   ⋮   │   ⋮   │⋮│   ⋮   │
        ├──────┼──────┼──────┼───────┼───────┼───────┼───────┼───────┼─┼───────┤
        │CPU 31│CPU 63│CPU 95│CPU 127│CPU 159│CPU 191│CPU 223│CPU 255│…│CPU 511│
        └──────┴──────┴──────┴───────┴───────┴───────┴───────┴───────┴─┴───────┘
    "#]],
    );
    check(
        &mesh,
        p![_, "Y"],
        &[10, 4096],
        expect![[r#"
        ┌────────────────┬────────────────┬────────────────┬─┬─────────────────┐
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        │CPU 0,…,480 (16)│CPU 1,…,481 (16)│CPU 2,…,482 (16)│…│CPU 31,…,511 (16)│
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        │                │                │                │ │                 │
        └────────────────┴────────────────┴────────────────┴─┴─────────────────┘
    "#]],
    );
    for spec in [p![], p!["X", "Y"], p![("X", "Y"), _], p![_, ("Y", "X")], p!["Y"; U: "X"]] {
        let picture = Picture::new([512, 512], &sharding(&mesh, spec, &[512, 512])).to_string();
        assert!(picture.lines().all(|l| l.chars().count() <= 80), "{picture}");
        assert!(picture.lines().count() < 80, "{picture}");
    }
}
#[test]
fn types_are_drawn_while_tracing() {
    let mesh = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 2, AxisType::Auto)]).unwrap();
    let ty = ArrayType::parse("f32[8@X,4]", &mesh).unwrap();
    expect![[r#"
        ┌──────────┐
        │          │
        │ CPU 0,1  │
        │          │
        │          │
        ├──────────┤
        │          │
        │ CPU 2,3  │
        │          │
        │          │
        └──────────┘
        over Y: as propagation decides
    "#]]
    .assert_eq(&Picture::from_type(&ty).to_string());
    // Inside shard_map: a block for each device over which it varies.
    let manual = Mesh::with_types([("X", 2, AxisType::Manual), ("Y", 2, AxisType::Explicit)]).unwrap();
    let ty = ArrayType::parse("f32[4@Y]{V:X}", &manual).unwrap();
    expect![[r#"
        X=0
        ┌───────┬───────┐
        │ CPU 0 │ CPU 1 │
        └───────┴───────┘
        X=1
        ┌───────┬───────┐
        │ CPU 2 │ CPU 3 │
        └───────┴───────┘
    "#]]
    .assert_eq(&Picture::from_type(&ty).to_string());
    let plan = Mesh::without_devices([("X", 4)]).unwrap();
    let ty = ArrayType::parse("f32[8@X]", &plan).unwrap();
    expect![[r#"
        ┌───────┬───────┬───────┬───────┐
        │ dev 0 │ dev 1 │ dev 2 │ dev 3 │
        └───────┴───────┴───────┴───────┘
    "#]]
    .assert_eq(&Picture::from_type(&ty).to_string());
}
#[test]
fn devices_are_named_by_their_own_numbers() {
    let mut order = atmesh::devices(4).unwrap();
    order.reverse();
    let mesh = Mesh::of_devices(&order, [("X", 4)]).unwrap();
    check(
        &mesh,
        p!["X"],
        &[8],
        expect![[r#"
        ┌───────┬───────┬───────┬───────┐
        │ CPU 3 │ CPU 2 │ CPU 1 │ CPU 0 │
        └───────┴───────┴───────┴───────┘
    "#]],
    );
}
#[test]
fn colours_and_images() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let picture = Picture::new([8], &sharding(&mesh, p!["X"], &[8]));
    expect![[r#"
        ^[38;2;255;255;255;48;2;56;107;158m         ^[0m^[38;2;255;255;255;48;2;56;158;64m         ^[0m
        ^[38;2;255;255;255;48;2;56;107;158m CPU 0,1 ^[0m^[38;2;255;255;255;48;2;56;158;64m CPU 2,3 ^[0m
        ^[38;2;255;255;255;48;2;56;107;158m         ^[0m^[38;2;255;255;255;48;2;56;158;64m         ^[0m
    "#]]
    .assert_eq(&picture.colored().replace('\x1b', "^"));
    expect![[r##"
        <svg xmlns="http://www.w3.org/2000/svg" width="504" height="72" viewBox="0 0 504 72" font-family="ui-monospace, monospace" font-size="12">
        <g><title>CPU 0,1 [0:4]</title><rect x="12.0" y="12.0" width="240.0" height="36.0" fill="#386b9e" stroke="#fff"/><text x="132.0" y="34.5" text-anchor="middle" fill="#fff">CPU 0,1</text></g>
        <g><title>CPU 2,3 [4:8]</title><rect x="252.0" y="12.0" width="240.0" height="36.0" fill="#389e40" stroke="#fff"/><text x="372.0" y="34.5" text-anchor="middle" fill="#fff">CPU 2,3</text></g>
        </svg>
    "##]].assert_eq(&picture.to_svg());
    let picture = Picture::new([8, 8], &sharding(&mesh, p!["X", "Y"], &[8, 8]));
    assert_eq!(picture.to_svg().matches("<rect").count(), 4);
    // A sum has a stripe in each term's colour, and a background for its label.
    let sum = Picture::new([8], &sharding(&mesh, p![_; U: "X"], &[8])).to_svg_sized(96.0);
    for colour in ["#386b9e", "#389e40"] {
        assert!(sum.matches(colour).count() >= 2, "{sum}");
    }
    assert_eq!(sum.matches("<text").count(), 1, "{sum}");
    let odd = Mesh::auto([("<&>", 2)]).unwrap();
    let ty = ArrayType { mesh: Some(odd), ..atmesh::DType::F32.array_type([2]) };
    assert!(Picture::from_type(&ty).to_svg().contains("over &lt;&amp;&gt;"), "names are escaped");
}

/// Data movement is derived from runs of the program: each result element lists its source devices.
/// A program that does more than move and add elements is an error.
#[test]
fn what_moves_is_found_out() {
    use atmesh::{Array, Permutation, jit, shard_map};
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Array::from([1, 2, 3, 4]).put(&mesh, p!["X"]);
    let shift =
        jit(shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", Permutation::shift(1)) + 3 * x));
    expect![[r#"
        int32[4@X]
          CPU 0: 1<0 2<0
          CPU 1: 3<1 4<1
        int32[4@X]
          CPU 0: 3<0 6<0
          CPU 1: 10<0+1 14<0+1
        permute over X: the busiest device receives 8 bytes
    "#]]
    .assert_eq(&shift.data_movement(&x).unwrap().to_string());
    let parts = jit(|x: &Array| x.sum_to(0, p![; U: "X"]));
    expect![[r#"
        int32[4@X]
          CPU 0: 1<0 2<0
          CPU 1: 3<1 4<1
        int32[]{U:X}
          CPU 0: 3<0
        + CPU 1: 7<1
        nothing is sent
    "#]]
    .assert_eq(&parts.data_movement(&x).unwrap().to_string());
    for f in [|x: &Array| x * x, |x: &Array| x + 1, |x: &Array| x.max(0) * x] {
        let e = jit(f).data_movement(&x).unwrap_err().unquoted();
        assert!(e.contains("does more than move and add"), "{e}");
    }
    let large = Array::arange(0..512).put(&mesh, p!["X"]);
    assert!(jit(|x: &Array| -x).data_movement(&large).unwrap_err().unquoted().contains("too large"));
    let summands = parts.call(&x).unwrap();
    assert!(jit(|x: &Array| -x).data_movement(&summands).unwrap_err().unquoted().contains("unreduced"));
    // Without a mesh there is one device.
    let alone = jit(|x: &Array| -x).data_movement(&Array::from([1, 2])).unwrap();
    assert!(alone.to_string().ends_with("CPU 0: -1<0 -2<0\nnothing is sent\n"), "{alone}");
}
