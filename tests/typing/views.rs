//! Derivative rules of operations that only move elements: every primitive of shapes, slices and
//! shardings.

use crate::derive::{check_jvp, check_transpose};
use atmesh::Mesh;
use atmesh::Spec;
use atmesh::mesh::AxisType;
use atmesh::ops::shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose};
use atmesh::ops::sharding::{Constrain, Copy, Reshard};
use atmesh::ops::slicing::{Concatenate, Pad, Slice, UpdateSlice};
use atmesh::p;
use atmesh::program::Prim;
use atmesh::types::Scalar;
use std::sync::Arc;

fn both(prim: impl Into<Prim>, types: &[&str], wrt: &[usize]) {
    let prim = prim.into();
    check_jvp(prim.clone(), types, wrt, 0.0);
    for k in wrt {
        check_transpose(prim.clone(), types, *k);
    }
}
fn to_prim(prim: impl atmesh::program::Primitive) -> Prim {
    Arc::new(prim)
}

#[test]
fn broadcasts() {
    let to = |shape: &[usize], dims: &[usize], out: Option<Spec>| {
        to_prim(BroadcastInDim {
            shape: shape.into(),
            broadcast_dimensions: dims.to_vec(),
            out_sharding: out,
        })
    };
    both(to(&[3, 4], &[], None), &["float64[]"], &[0]);
    both(to(&[3, 2, 4], &[2, 0], None), &["float64[4@X,1]"], &[0]);
    both(to(&[3, 2, 4], &[2, 1], None), &["float64[4@X,2@Y]"], &[0]);
    both(to(&[1, 4], &[0, 1], None), &["float64[1,4@X]{R:Y}"], &[0]);
    both(to(&[4, 2], &[1], Some(p!["X", _])), &["float64[2@Y]"], &[0]);
    both(to(&[4, 2], &[0, 1], Some(p![_, "X"])), &["float64[4@X,1]"], &[0]);
}

#[test]
fn reshapes() {
    let to =
        |shape: &[usize], out: Option<Spec>| to_prim(Reshape { new_sizes: shape.into(), out_sharding: out });
    both(to(&[4, 6], Some(p![])), &["float64[6,4]"], &[0]);
    both(to(&[2, 2, 3], None), &["float64[4@X,3]"], &[0]);
    both(to(&[8, 3], None), &["float64[4@X,2,3]"], &[0]);
    both(to(&[4], None), &["float64[1,4@(X,Y),1]"], &[0]);
    both(to(&[4, 3], Some(p!["X", _])), &["float64[3,4@Y]"], &[0]);
    both(to(&[2, 6], None), &["float64[12@X]{U:Y}"], &[0]);
    both(to(&[0, 5], None), &["float64[5,0]"], &[0]);
}

#[test]
fn orders_and_dimensions_of_one() {
    both(to_prim(Transpose { permutation: vec![2, 0, 1] }), &["float64[2@X,3,4@Y]"], &[0]);
    both(to_prim(Squeeze { dimensions: vec![1] }), &["float64[2@X,1,3]"], &[0]);
    both(to_prim(ExpandDims { dimensions: vec![0, 2] }), &["float64[2@X,3]"], &[0]);
    both(to_prim(Rev { dimensions: vec![0] }), &["float64[4@X,3]"], &[0]);
}

#[test]
fn slices_and_pads() {
    let slice = |start: &[usize], limit: &[usize], strides: &[usize], out: Option<Spec>| {
        to_prim(Slice {
            start: start.to_vec(),
            limit: limit.to_vec(),
            strides: strides.to_vec(),
            out_sharding: out,
        })
    };
    both(slice(&[1, 0], &[7, 3], &[3, 1], None), &["float64[8@X,3]"], &[0]);
    both(slice(&[1, 0], &[8, 3], &[3, 2], Some(p![])), &["float64[8@X,3]"], &[0]);
    both(slice(&[2, 1], &[2, 3], &[1, 1], None), &["float64[8,3]"], &[0]);
    both(slice(&[0, 0], &[8, 2], &[1, 1], None), &["float64[8@X,4@Y]"], &[0]);
    let pad = |low: &[i64], high: &[i64], interior: &[usize], value: f64, out: Option<Spec>| {
        let (low, high, interior) = (low.to_vec(), high.to_vec(), interior.to_vec());
        to_prim(Pad { low, high, interior, value: Scalar::Float(value), out_sharding: out })
    };
    both(pad(&[1, 0], &[3, 2], &[0, 1], 0.0, None), &["float64[4@X,3]"], &[0]);
    both(pad(&[-1, 1], &[-2, -2], &[2, 0], 0.5, None), &["float64[4,3]"], &[0]);
    both(pad(&[-3, 0], &[2, 0], &[1, 0], 0.0, None), &["float64[4@X,3]"], &[0]);
    both(pad(&[-3], &[-2], &[0], 0.0, None), &["float64[6]"], &[0]);
    both(pad(&[1], &[2], &[0], 0.0, Some(p![])), &["float64[4@X]"], &[0]);
    both(pad(&[-5], &[2], &[0], 0.0, None), &["float64[4]"], &[0]);
}

#[test]
fn concatenations_and_updates() {
    let types = ["float64[2@X,2]", "float64[2@X,1]", "float64[2@X,3]"];
    both(to_prim(Concatenate { dimension: 1 }), &types, &[0, 1, 2]);
    both(to_prim(Concatenate { dimension: 0 }), &["float64[4@X]{U:Y}", "float64[2@X]{U:Y}"], &[0]);
    let at = |start: &[usize]| to_prim(UpdateSlice { start: start.to_vec() });
    both(at(&[1, 2]), &["float64[4,5]", "float64[2,3]"], &[0, 1]);
    both(at(&[1, 0]), &["float64[8@X,4@Y]", "float64[4@X,4@Y]"], &[0, 1]);
    both(at(&[0, 0]), &["float64[4@X,2]", "float64[4@X,2]"], &[0, 1]);
    both(at(&[3]), &["float64[6]", "float64[0]"], &[0, 1]);
    both(at(&[]), &["float64[]", "float64[]"], &[0, 1]);
}

#[test]
fn shardings() {
    let mesh = Mesh::without_devices([("X", 2), ("Y", 2)]).unwrap();
    let to = |spec: Spec| to_prim(Reshard::new(mesh.clone(), spec));
    both(to(p!["X", _]), &["float64[4,2@Y]"], &[0]);
    both(to(p![]), &["float64[4@X]{U:Y}"], &[0]);
    both(to(p!["Y"]), &["float64[4]{U:Y}"], &[0]);
    both(to(p![_; U: "X"]), &["float64[4]"], &[0]);
    both(to(p![_; R: "X"]), &["float64[4@Y]"], &[0]);
    both(to_prim(Copy), &["float64[4@Y]{U:X}"], &[0]);
    both(to_prim(Constrain::new(mesh.clone(), p!["X"])), &["float64[4@X]"], &[0]);
    let auto = mesh.with_axis_types(["X", "Y"], AxisType::Auto).unwrap();
    assert!(to_prim(Constrain::new(auto, p!["X"])).constraint().is_some());
}
