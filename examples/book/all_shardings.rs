//! Prints the book's page of all shardings of a matrix on a mesh of two axes, as its golden file.

use crate::show::figure;
use atmesh::prelude::*;
use atmesh::{Axes, Axis};

/// Returns every spec of a matrix: each axis shards no dimension or one of them, and if two axes
/// shard the same dimension, either may be the major one.
fn all_specs(axes: [Axis; 2]) -> Vec<Spec> {
    let [x, y] = axes;
    let places = [Some(0), Some(1), None];
    let mut specs = Vec::new();
    for (px, py) in places.into_iter().flat_map(|px| places.map(|py| (px, py))) {
        let orders = if px.is_some() && px == py { 2 } else { 1 };
        for order in 0..orders {
            let mut dims = vec![Axes::none(), Axes::none()];
            let named = if order == 0 { [(x, px), (y, py)] } else { [(y, py), (x, px)] };
            for (axis, place) in named {
                if let Some(d) = place {
                    dims[d as usize].push(axis);
                }
            }
            specs.push(Spec::from_dims(dims));
        }
    }
    specs.sort_by_key(|spec| spec.all_axes().count());
    specs
}

pub(crate) fn chapter() -> Result<()> {
    axes!(X, Y);
    let mesh = Mesh::new([(X, 2), (Y, 4)])?;
    let shape = [8, 8];
    let specs = all_specs([X, Y]);
    println!("# All shardings of a matrix\n");
    println!("<!-- written by `cargo run --example book -- all_shardings`; a test compares it -->\n");
    println!(
        "`{mesh}` has devices 0 to 7. An 8×8 matrix of float32, 256 bytes, can be placed on it in {} ways.",
        specs.len()
    );
    println!("*Copies* counts the devices that hold the same block.\n");
    println!("| spec | type | each device holds | bytes per device | copies |\n|---|---|---|---|---|");
    for spec in &specs {
        let x = Array::zeros(F32.array_type(shape).on(&mesh, *spec));
        let shards = x.shards()?;
        let (held, copies) = (&shards[0].data, shards.iter().map(|s| s.replica + 1).max().unwrap_or(0));
        let (ty, block, bytes) = (type_of(&x), held.shape()?, held.nbytes()?);
        println!("| [`{spec}`](#{}) | `{ty}` | `{block}` | {bytes} | {copies} |", name(*spec));
    }
    println!("\nEach block is drawn with the devices that hold it, in the colour of the first of them.\n");
    for spec in &specs {
        let x = Array::zeros(F32.array_type(shape).on(&mesh, *spec));
        let (name, of_mesh) = (name(*spec), x.sharding()?.expect("it is on a mesh"));
        println!("## `{spec}` {{#{name}}}\n");
        println!("`{}`: each device holds `{}`.", type_of(&x), of_mesh.shard_shape(&shape)?);
        println!("{}\n", block_text(&mesh, *spec));
        println!("![{spec}](pictures/{name}.svg)\n");
        println!(
            "<details><summary>in the terminal</summary>\n\n```text\n{}```\n\n</details>\n",
            x.visualize()
        );
        figure(&name, &[("", &x)], "", &[], "")?;
    }
    Ok(())
}

/// Returns a file name for a spec, for example `all-x-y` or `all-yx-whole`.
fn name(spec: Spec) -> String {
    let entry = |axes: &Axes| match axes.is_empty() {
        true => "whole".to_string(),
        false => axes.iter().map(|a| a.name().to_lowercase()).collect(),
    };
    format!("all-{}", spec.dims().iter().map(entry).collect::<Vec<_>>().join("-"))
}

/// Describes a spec in words.
fn block_text(mesh: &Mesh, spec: Spec) -> String {
    let what = ["Rows", "Columns"];
    let dims = what.into_iter().zip(spec.dims()).filter(|(_, axes)| !axes.is_empty()).map(|(what, axes)| {
        let ways =
            axes.iter().map(|a| mesh.axis_size(a)).product::<Result<usize>>().expect("axes of the mesh");
        let order = match axes.as_slice() {
            [major, minor] => format!(": first over {major}, each part again over {minor}"),
            _ => String::new(),
        };
        format!("{what} are split {ways} ways over {axes}{order}.")
    });
    let unused: Vec<&str> =
        mesh.axis_names().iter().filter(|a| !spec.all_axes().any(|b| b == **a)).map(|a| a.name()).collect();
    let copies = match unused.as_slice() {
        [] => "No two devices hold the same.".to_string(),
        all if all.len() == mesh.axis_names().len() => "All devices hold the same.".to_string(),
        _ => format!("Devices that differ only in {} hold the same.", unused.join(" and ")),
    };
    dims.chain([copies]).collect::<Vec<_>>().join(" ")
}
