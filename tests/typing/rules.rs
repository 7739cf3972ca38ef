//! Rules that no case of the reference covers: completeness of every primitive, meshes, manual
//! mode, and the texts of errors.

use atmesh::diagnostic::TypePart;
use atmesh::mesh::AxisType;
use atmesh::ops::PRIMITIVES;
use atmesh::ops::creation::Full;
use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::{Binary, Clamp, Select, Unary};
use atmesh::ops::reduce::{Reduce, Reduction};
use atmesh::program::factors::FactorKind;
use atmesh::program::{Prim, TypedOperand};
use atmesh::types::{ArrayType, DType, Scalar};
use atmesh::{ErrorKind, Mesh, p};
use std::collections::HashSet;
use std::sync::Arc;

fn mesh() -> Mesh {
    Mesh::without_devices([("X", 2), ("Y", 4)]).unwrap()
}
fn operands(mesh: &Mesh, types: &[&str]) -> Vec<TypedOperand> {
    types
        .iter()
        .map(|t| match t.strip_prefix("lit ") {
            Some(t) => TypedOperand::new(DType::from_name(t).unwrap().array_type([]), true),
            None => TypedOperand::new(ArrayType::parse(t, mesh).unwrap(), false),
        })
        .collect()
}
fn typed(prim: impl Into<Prim>, mesh: &Mesh, types: &[&str]) -> Result<String, ErrorKind> {
    let prim: Prim = prim.into();
    prim.types(&operands(mesh, types)).map(|t| t[0].to_string()).map_err(|f| f.kind)
}
fn to_prim(f: Binary) -> Prim {
    Arc::new(f)
}

#[test]
fn every_primitive_is_complete() {
    let mut names = HashSet::new();
    for entry in PRIMITIVES {
        let (prim, types) = (entry.example)();
        assert_eq!(prim.name(), entry.name);
        names.insert(entry.name);
        let operands: Vec<TypedOperand> =
            types.iter().map(|ty| TypedOperand::new(ty.clone(), false)).collect();
        let results = prim.types(&operands).unwrap_or_else(|f| panic!("{}: {f:?}", prim.key()));
        let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.clone())).collect();
        if prim.collective().is_some() {
            continue;
        }
        let factors = prim.factors(&types, &shapes);
        assert_eq!(factors.operands.len(), types.len(), "{}", prim.key());
        let dims = factors.operands.iter().zip(&types).chain(factors.results.iter().zip(&results));
        for (dims, ty) in dims {
            assert_eq!(dims.len(), ty.rank(), "{}: a dimension without loops", prim.key());
        }
        let loop_nests = prim.loop_nests(&types, &results);
        assert_eq!(loop_nests.len(), results.len(), "{}", prim.key());
        for (s, ty) in loop_nests.iter().zip(&results) {
            assert_eq!(s.extents[..s.rank], ty.shape[..], "{}", prim.key());
            assert_eq!(s.dtype, ty.dtype.storage(), "{}", prim.key());
            for part in s.accesses.iter().flat_map(|r| &r.pieces) {
                assert_eq!(part.ranges.len(), s.extents.len(), "{}", prim.key());
            }
        }
    }
    assert_eq!(names.len(), PRIMITIVES.len(), "two primitives of one name");
}

#[test]
fn roles_are_the_authors_word() {
    let role = |prim: Prim, types: &[&str], l: usize| {
        let types: Vec<ArrayType> = operands(&mesh(), types).into_iter().map(|o| o.ty).collect();
        let ops: Vec<TypedOperand> = types.iter().map(|t| TypedOperand::new(t.clone(), false)).collect();
        prim.factors(&types, &prim.shapes(&ops).unwrap()).kind(l)
    };
    let add = || to_prim(Binary::Add);
    assert_eq!(role(add(), &["f32[8,1]", "f32[8,4]"], 1), FactorKind::PassThrough);
    let sum = || Arc::new(Reduce::new(Reduction::Sum, &[1], None)) as Prim;
    assert_eq!(
        [role(sum(), &["f32[8,4]"], 0), role(sum(), &["f32[8,4]"], 1)],
        [FactorKind::PassThrough, FactorKind::Reduction]
    );
    let dot = || Arc::new(DotGeneral::matmul()) as Prim;
    let roles = [0, 1, 2].map(|l| role(dot(), &["f32[8,4]", "f32[4,2]"], l));
    assert_eq!(roles, [FactorKind::PassThrough, FactorKind::PassThrough, FactorKind::Reduction]);
}

#[test]
fn values_on_no_mesh_join_as_replicated() {
    let x = TypedOperand::new(ArrayType::parse("f32[8@X,4]", &mesh()).unwrap(), false);
    let y = TypedOperand::new(DType::F32.array_type([8, 4]), false);
    let t = to_prim(Binary::Add).types(&[y.clone(), x.clone()]).unwrap();
    assert_eq!((t[0].to_string().as_str(), t[0].mesh.as_ref()), ("float32[8@X,4]", Some(&mesh())));
    assert_eq!(to_prim(Binary::Add).types(&[y.clone(), y]).unwrap()[0].mesh, None);
    let other = Mesh::without_devices([("X", 4), ("Y", 2)]).unwrap();
    let z = TypedOperand::new(ArrayType::parse("f32[8@X,4]", &other).unwrap(), false);
    assert_eq!(to_prim(Binary::Add).types(&[x, z]).unwrap_err().kind, ErrorKind::Mesh);
    let placed =
        Full { ty: ArrayType { spec: p!["X"], ..DType::F32.array_type([8]) }, value: Scalar::Float(0.0) };
    assert_eq!((Arc::new(placed) as Prim).types(&[]).unwrap_err().kind, ErrorKind::Mesh);
}

/// Inside shard_map, operands are cast to the union of the varying axes.
#[test]
fn manual_mode() {
    let inner = mesh().with_axis_types(["X", "Y"], AxisType::Manual).unwrap();
    let add = |types: &[&str]| typed(to_prim(Binary::Add), &inner, types);
    assert_eq!(add(&["f32[4]{V:X}", "f32[4]{V:Y}"]).unwrap(), "float32[4]{V:(X,Y)}");
    assert_eq!(add(&["f32[4]", "f32[4]{V:Y}"]).unwrap(), "float32[4]{V:Y}");
    assert_eq!(add(&["f32[4]{V:X}", "lit f32"]).unwrap(), "float32[4]{V:X}");
    // Reduced over exactly the axes that it lacks: it becomes varying.
    assert_eq!(add(&["f32[4]{R:X}", "f32[4]{V:X}"]).unwrap(), "float32[4]{V:X}");
    assert_eq!(add(&["f32[4]{R:X}", "f32[4]{V:(X,Y)}"]), Err(ErrorKind::Sharding));
    assert_eq!(add(&["f32[4]{U:X}", "f32[4]{V:X}"]), Err(ErrorKind::Sharding));
    // Combined with a value that does not vary, a reduced value is an error. A number has no
    // cotangent, so it may be added, but the reference rejects it as a factor.
    assert_eq!(add(&["f32[4]{R:X}", "f32[4]"]), Err(ErrorKind::Sharding));
    assert_eq!(add(&["f32[4]{R:X}", "lit f32"]).unwrap(), "float32[4]{R:X}");
    assert_eq!(add(&["f32[4]{U:X}", "lit f32"]), Err(ErrorKind::Sharding));
    assert_eq!(add(&["f32[4]{U:X}", "f32[4]{U:X}"]).unwrap(), "float32[4]{U:X}");
    let mul = |types: &[&str]| typed(to_prim(Binary::Mul), &inner, types);
    assert_eq!(mul(&["f32[4]{U:X}", "f32[4]{R:X}"]).unwrap(), "float32[4]{U:X}");
    assert_eq!(mul(&["f32[4]{U:X}", "lit f32"]).unwrap(), "float32[4]{U:X}");
    assert_eq!(mul(&["f32[4]{R:X}", "lit f32"]), Err(ErrorKind::Sharding));
    // A quotient is linear in its first operand.
    let div = |types: &[&str]| typed(to_prim(Binary::Div), &inner, types);
    assert_eq!(div(&["f32[4]{U:X}", "lit f32"]).unwrap(), "float32[4]{U:X}");
    assert_eq!(div(&["f32[4]{U:X}", "f32[4]{R:X}"]).unwrap(), "float32[4]{U:X}");
    assert_eq!(div(&["f32[4]{R:X}", "f32[4]{U:X}"]), Err(ErrorKind::Sharding));
    assert_eq!(div(&["i32[4]{U:X}", "lit i32"]), Err(ErrorKind::Sharding));
    // Explicit axes remain usable next to manual ones.
    let partly = mesh().with_axis_types("X", AxisType::Manual).unwrap();
    assert_eq!(
        typed(to_prim(Binary::Mul), &partly, &["f32[4,8@Y]{V:X}", "f32[8]"]).unwrap(),
        "float32[4,8@Y]{V:X}"
    );
    let dot = |types: &[&str]| typed(Arc::new(DotGeneral::matmul()) as Prim, &inner, types);
    assert_eq!(dot(&["f32[4,2]{V:X}", "f32[2,3]{V:Y}"]).unwrap(), "float32[4,3]{V:(X,Y)}");
    assert_eq!(dot(&["f32[4,2]{R:X}", "f32[2,3]{R:X}"]).unwrap(), "float32[4,3]{R:X}");
    assert_eq!(dot(&["f32[4,2]{U:X}", "f32[2,3]{R:X}"]).unwrap(), "float32[4,3]{U:X}");
    assert_eq!(dot(&["f32[4,2]{R:X}", "f32[2,3]"]), Err(ErrorKind::Sharding));
}

#[test]
fn sets() {
    let select = |types: &[&str]| typed(Arc::new(Select) as Prim, &mesh(), types);
    assert_eq!(select(&["bool[]", "f32[4]{U:X}", "f32[4]{U:X}"]).unwrap(), "float32[4]{U:X}");
    assert_eq!(select(&["bool[4@X]", "f32[4@X]", "lit f32"]).unwrap(), "float32[4@X]");
    assert_eq!(select(&["bool[4@X]", "lit f32", "lit f32"]).unwrap(), "float32[4@X]");
    assert_eq!(select(&["bool[4]{R:X}", "lit f32", "lit f32"]).unwrap(), "float32[4]{R:X}");
    assert_eq!(select(&["bool[]", "f32[4]{U:X}", "lit f32"]), Err(ErrorKind::Sharding));
    let clamp = |types: &[&str]| typed(Arc::new(Clamp) as Prim, &mesh(), types);
    assert_eq!(clamp(&["f32[]", "f32[4@X]", "lit f32"]).unwrap(), "float32[4@X]");
    assert_eq!(clamp(&["f32[4]", "f32[4@X]", "lit f32"]), Err(ErrorKind::Sharding));
    assert_eq!(typed(Arc::new(Unary::Exp) as Prim, &mesh(), &["f32[4]{U:X}"]), Err(ErrorKind::Sharding));
    assert_eq!(typed(Arc::new(Unary::Neg) as Prim, &mesh(), &["f32[4]{U:X}"]).unwrap(), "float32[4]{U:X}");
}

/// Errors name operands, dimensions, and a correct form.
#[test]
fn errors_say_what_to_write() {
    let fault = |prim: Prim, types: &[&str]| prim.types(&operands(&mesh(), types)).unwrap_err();
    let f = fault(to_prim(Binary::Add), &["f32[8@X,16@Y]", "f32[8@Y,16@X]"]);
    assert_eq!(
        f.message,
        "dimension 0 of operand 0, 8@X, and dimension 0 of operand 1, 8@Y, must match, but are sharded differently"
    );
    assert_eq!(
        f.help,
        [r#"reshard operand 0: `.reshard(p!["Y", "X"])`"#, r#"reshard operand 1: `.reshard(p!["X", "Y"])`"#]
    );
    assert_eq!(f.highlights, [(0, TypePart::Dim(0)), (1, TypePart::Dim(0))]);

    let dot = || Arc::new(DotGeneral::matmul()) as Prim;
    let f = fault(dot(), &["f32[8,16@Y]", "f32[16@Y,4]"]);
    assert_eq!(
        f.message,
        "dimension 1 of operand 0, 16@Y, and dimension 0 of operand 1, 16@Y, are contracted: the result could be summed over \
         Y, summed and scattered, or left unreduced"
    );
    let choices: Vec<_> = f.out_shardings.iter().map(|(what, out)| (what.as_str(), *out)).collect();
    assert_eq!(
        choices,
        [
            ("all-reduced", p![_, _]),
            ("scattered", p!["Y", _]),
            ("left unreduced, to be summed later", p![_, _; U: "Y"])
        ]
    );

    let f = fault(dot(), &["f32[8@X,16]", "f32[16,4@X]"]);
    assert_eq!(f.message, "the result would name X twice: in dimension 0 and in dimension 1");
    assert_eq!(
        f.help,
        ["reshard operand 0: `.reshard(p![_, _])`", "reshard operand 1: `.reshard(p![_, _])`"]
    );

    let f = fault(to_prim(Binary::Mul), &["f32[8]{U:X}", "f32[8]"]);
    assert_eq!(
        f.message,
        "operand 0, float32[8]{U:X}, is unreduced over X: the other factor must be reduced over X too"
    );
    assert_eq!(
        f.help,
        [r#"reshard operand 1: `.reshard(p![_; R: "X"])`"#, "or sum operand 0 first: `.reshard(p![_])`"]
    );
}
