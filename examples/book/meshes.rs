//! Devices, mesh axes, axis types and meshes.

use crate::show::{figure, rejected, section};
use atmesh::AxisType;
use atmesh::prelude::*;

pub(crate) fn chapter() -> Result<()> {
    section("devices");
    // ANCHOR: devices
    println!("{:?}", atmesh::devices(8)?);
    let third = atmesh::devices(8)?[3];
    println!("{third}: id {}, kind {}, process {}", third.id(), third.kind(), third.process());
    // ANCHOR_END: devices

    section("mesh");
    // ANCHOR: mesh
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    println!("{mesh}");
    println!("axes {:?}, sizes {:?}, {} devices", mesh.axis_names(), mesh.axis_sizes(), mesh.size());
    for (position, device) in mesh.devices().iter().enumerate() {
        println!("{device} stands at {:?}", mesh.coordinates(position));
    }
    // ANCHOR_END: mesh

    section("grid");
    // ANCHOR: grid
    let grid = Array::zeros(F32.array_type([2, 4]).on(&mesh, p!["X", "Y"]));
    println!("{}", grid.visualize());
    // ANCHOR_END: grid
    figure("mesh", &[("", &grid)], "", &[], "")?;

    section("constants");
    // ANCHOR: constants
    axes!(DATA, MODEL);
    println!("{}", Mesh::new([(DATA, 4), (MODEL, 2)])?);
    // ANCHOR_END: constants

    section("types");
    // ANCHOR: types
    println!("{}", Mesh::new([("X", 2), ("Y", 4)])?);
    println!("{}", Mesh::auto([("X", 2), ("Y", 4)])?);
    let mixed = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 4, AxisType::Auto)])?;
    println!("{mixed}");
    println!("{}", Mesh::new([("X", 2), ("Y", 4)])?.with_auto("Y")? == mixed);
    // An auto axis is not part of an array's type, so the types below differ from mesh to mesh.
    for mesh in [&mesh, &Mesh::auto([("X", 2), ("Y", 4)])?, &mixed] {
        let x = Array::ones([8, 8]).put(mesh, p!["X", "Y"]);
        println!("{:20} {}", type_of(&x).to_string(), x.sharding()?.expect("it is on a mesh"));
    }
    // ANCHOR_END: types

    section("abstract");
    // ANCHOR: abstract
    let huge = Mesh::without_devices([("data", 1024), ("model", 64)])?;
    println!("{huge}: {} devices, abstract: {}", huge.size(), huge.is_abstract());
    let layer = jit(|x: &Array, w: &Array| x.dot(w).relu());
    let x = F32.array_type([8192, 4096]).on(&huge, p!["data", _]);
    let w = F32.array_type([4096, 4096]).on(&huge, p![_, "model"]);
    let program = layer.trace((x, w))?;
    println!("{}", program.program());
    println!("{}", program.lower()?.collectives());
    // ANCHOR_END: abstract

    section("order");
    // ANCHOR: order
    let d = atmesh::devices(8)?;
    let snake = [d[0], d[1], d[2], d[3], d[7], d[6], d[5], d[4]];
    let snake = Mesh::of_devices(&snake, [("X", 2), ("Y", 4)])?;
    let x = Array::arange(0..8).reshape([2, 4]).put(&snake, p!["X", "Y"]);
    println!("{}\n{}", type_of(&x), x.visualize());
    // ANCHOR_END: order
    figure("mesh-order", &[("", &x)], "", &[], "")?;

    section("several");
    // ANCHOR: several
    let by_rows = Mesh::new([("X", 8)])?;
    let by_blocks = Mesh::new([("X", 2), ("Y", 4)])?;
    let rows = Array::arange(0..64).reshape([8, 8]).put(&by_rows, p!["X", _]);
    let blocks = rows.put(&by_blocks, p!["X", "Y"]);
    println!("{} → {}", type_of(&rows), type_of(&blocks));
    assert_eq!(rows.to_vec::<i32>()?, blocks.to_vec::<i32>()?);
    rejected((&rows + &blocks).ty())?;
    // ANCHOR_END: several

    section("none");
    // ANCHOR: none
    let nowhere = Array::arange(0..4);
    println!("{} on {:?}, sharding {:?}", type_of(&nowhere), nowhere.devices()?, nowhere.sharding()?);
    let somewhere = Array::arange(0..4).put(&Mesh::new([("X", 4)])?, p!["X"]);
    println!("{}", type_of(nowhere + somewhere));
    // ANCHOR_END: none

    section("errors");
    // ANCHOR: errors
    rejected(Mesh::new([("X", 2), ("X", 4)]))?;
    rejected(Mesh::new([("X", 2), ("Y", 0)]))?;
    rejected(Mesh::of_devices(&atmesh::devices(6)?, [("X", 2), ("Y", 4)]))?;
    rejected(Mesh::of_devices(&[d[0], d[0]], [("X", 2)]))?;
    // ANCHOR_END: errors
    Ok(())
}
