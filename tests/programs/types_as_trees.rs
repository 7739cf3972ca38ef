//! Structs of types instead of structs of arrays: programs that are lowered without data.

use crate::error_checks::Unquoted as _;
use atmesh::MemoryClass;
use atmesh::prelude::*;

#[derive(Clone, Tree)]
struct Layer<T = Array> {
    w: T,
    b: Option<T>,
}
#[derive(Clone, Tree)]
struct Model<T = Array> {
    first: Layer<T>,
    more: Vec<Layer<T>>,
    scales: [T; 2],
    #[tree(skip)]
    depth: usize,
}
#[derive(Clone, Tree)]
struct Two<A = Array, B = Array>(A, B);

fn run(m: &Model, x: &Array) -> Array {
    let layer = |x: &Array, l: &Layer| {
        let y = x.dot(&l.w);
        l.b.as_ref().map_or_else(|| y.clone(), |b| &y + b)
    };
    let x = m.more.iter().fold(layer(x, &m.first), |x, l| layer(&x, l));
    (x * &m.scales[0] + &m.scales[1]) * m.depth as f64
}

fn types(mesh: &Mesh) -> Model<ArrayType> {
    let ty = |shape: &[usize], spec: Spec| F32.array_type(shape).on(mesh, spec);
    let layer = |b: bool| Layer { w: ty(&[64, 64], p![_, "model"]), b: b.then(|| ty(&[64], p!["model"])) };
    Model {
        first: layer(true),
        more: vec![layer(false), layer(true)],
        scales: [ty(&[64], p!["model"]), ty(&[64], p!["model"])],
        depth: 3,
    }
}

#[test]
fn a_struct_of_types_is_planned() -> Result<()> {
    let large = Mesh::without_devices([("data", 4096), ("model", 16)])?;
    let x = F32.array_type([8192, 64]).on(&large, p!["data", _]);
    let lowered = jit(run).lower((types(&large), x))?;
    // Each layer after the first gathers its input, or its weights.
    assert!(!lowered.collectives().is_empty());
    let memory = lowered.memory();
    assert!(memory.to_string().contains("more.1.w"), "{memory}");
    Ok(())
}

#[test]
fn a_struct_of_arrays_is_passed_as_before() -> Result<()> {
    let ones = |shape: &[usize]| Array::ones(shape.to_vec());
    let layer = || Layer { w: ones(&[2, 2]), b: None };
    let model = Model { first: layer(), more: vec![layer()], scales: [ones(&[2]), ones(&[2])], depth: 2 };
    let f = jit(run);
    let x = ones(&[1, 2]);
    assert_eq!(f.call((&model, &x))?.to_vec::<f32>()?, [10.0; 2]);
    assert_eq!(f.call((model.clone(), &x))?.to_vec::<f32>()?, [10.0; 2]);
    // Scalars may replace arrays, and the parameters may have different kinds.
    let sum = jit(|t: &Two| &t.0 + &t.1);
    assert_eq!(sum.call(Two(1.0f32, Array::from([2.0f32, 3.0])))?.to_vec::<f32>()?, [3.0, 4.0]);
    assert_eq!(sum.lower(Two(F32.array_type([4]), F32.array_type([4])))?.collectives().len(), 0);
    Ok(())
}

#[test]
fn types_are_placed_by_specs_on_a_mesh_without_devices() -> Result<()> {
    let large = Mesh::without_devices([("data", 4096), ("model", 16)])?;
    for mesh in [large.clone(), large.with_auto(["data", "model"])?] {
        let f = jit(|x: &Array, w: &Array| x.dot(w)).on(&mesh).in_specs((p!["data"], p![_, "model"]));
        let lowered = f.lower((F32.array_type([8192, 64]), F32.array_type([64, 64])))?;
        assert!(lowered.collectives().is_empty(), "{}", lowered.collectives());
        assert_eq!(lowered.memory().bytes(MemoryClass::Argument), 4 * (2 * 64 + 64 * 4));
    }
    // Arrays with data cannot be on this mesh, which is abstract.
    let f = jit(|x: &Array| x * 2.0).on(&large).in_specs(p!["data"]);
    let rejected = f.lower(Array::ones([8192])).map(drop).unwrap_err().unquoted();
    assert!(rejected.contains("is abstract: it has no devices that could hold data"), "{rejected}");
    let uneven = f.lower(F32.array_type([100])).map(drop).unwrap_err().unquoted();
    assert!(uneven.contains("4096"), "{uneven}");
    Ok(())
}
