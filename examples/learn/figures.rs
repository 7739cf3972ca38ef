//! The data-movement diagrams of the lessons, drawn by running programs.

use atmesh::prelude::*;
use atmesh::{ConvOptions, Error, MovementDiagram, Padding};
use std::path::Path;

fn digits() -> Array {
    Array::from(vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2])
}

/// Returns every diagram: its file, its title, and the movement.
fn all() -> Result<Vec<(&'static str, &'static str, MovementDiagram)>> {
    let mesh = Mesh::new([("i", 4)])?;
    let auto = Mesh::auto([("i", 4)])?;
    let short = Array::from([3, 9, 5, 2]).put(&mesh, p!["i"]);
    let long = digits().put(&mesh, p!["i"]);
    let on = |out: Spec, f: fn(&Array) -> Array| jit(shard_map(&mesh, p!["i"], out, f));
    let swap = || AllToAll::split(0).concat(0);
    let two = Mesh::new([("x", 2)])?;
    let grid = Mesh::new([("x", 2), ("y", 2)])?;
    let ring = |x: &Array| {
        let (mut block, mut have) = (x.clone(), vec![x.clone()]);
        for _ in 1..4 {
            block = block.ppermute("i", Permutation::ring(1));
            have.push(concat([&have[have.len() - 1], &block], 0));
        }
        have.split_off(1)
    };
    let table = digits().reshape([4, 4]);
    Ok(vec![
        (
            "moves-put",
            "sharded, then replicated",
            jit(|x: &Array| x.reshard(p![])).data_movement(&Array::arange(0..8).put(&mesh, p!["i"]))?,
        ),
        (
            "moves-replicated",
            "replicated: nothing is sent",
            jit(|x: &Array| 1 * x).data_movement(&Array::arange(0..8).put(&mesh, p![]))?,
        ),
        (
            "moves-sum",
            "a sum over what is split",
            jit(|x: &Array| x.sum(..)).data_movement(&Array::arange(0..8).put(&mesh, p!["i"]))?,
        ),
        (
            "moves-gather",
            "all-gather",
            on(p![], |x| x.all_gather("i", CollectiveDim::tiled(0).invarying())).data_movement(&short)?,
        ),
        ("moves-reduce", "all-reduce: psum", on(p![], |x| x.psum("i")).data_movement(&long)?),
        (
            "moves-scatter",
            "reduce-scatter: psum_scatter",
            on(p!["i"], |x| x.psum_scatter("i", CollectiveDim::tiled(0))).data_movement(&long)?,
        ),
        (
            "moves-all-to-all",
            "all-to-all",
            jit(shard_map(&mesh, p!["i"], p!["i"], move |x: &Array| x.all_to_all("i", swap())))
                .data_movement(&long)?,
        ),
        (
            "moves-permute",
            "permute: ring(1)",
            on(p!["i"], |x| x.ppermute("i", Permutation::ring(1))).data_movement(&short)?,
        ),
        (
            "moves-shift",
            "permute: shift(1)",
            on(p!["i"], |x| x.ppermute("i", Permutation::shift(1))).data_movement(&short)?,
        ),
        (
            "moves-halo",
            "halo: each number and its right neighbour",
            jit(|x: &Array| x.slice(ix![..-1]) + x.slice(ix![1..]))
                .data_movement(&digits().put(&auto, p!["i"]))?,
        ),
        (
            "moves-exchange",
            "exchange: the array twice, blocks of 3 become blocks of 6",
            jit(|x: &Array| concat([x, x], 0)).data_movement(&Array::arange(0..12).put(&auto, p!["i"]))?,
        ),
        (
            "moves-ring",
            "an all-gather in three steps of a ring",
            jit(shard_map(&mesh, p!["i"], p!["i"], ring)).data_movement(&short)?,
        ),
        (
            "moves-identity",
            "a reduce-scatter, then an all-gather",
            jit(|x: &Array| {
                let part = x.sum_to(0, p!["i"]);
                (part.clone(), part.reshard(p![]))
            })
            .data_movement(&table.put(&mesh, p!["i", _]))?,
        ),
        (
            "moves-unreduced",
            "an unreduced sum, and its all-reduce",
            jit(|x: &Array| {
                let parts = x.sum_to(0, p![_; U: "x"]);
                (parts.clone(), parts.reshard(p![]))
            })
            .data_movement(&Array::arange(0..8).reshape([2, 4]).put(&two, p!["x", _]))?,
        ),
        (
            "moves-turn",
            "rows become columns",
            jit(|x: &Array| x.reshard(p![_, "i"])).data_movement(&table.put(&mesh, p!["i", _]))?,
        ),
        (
            "moves-grid",
            "a gather along y only",
            jit(|x: &Array| x.reshard(p!["x"]))
                .data_movement(&Array::arange(0..8).put(&grid, p![("x", "y")]))?,
        ),
        (
            "moves-heat",
            "one step of the heat equation: halves and quarters",
            jit(|x: &Array| {
                let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
                x.at(ix![1..-1]).set(inner)
            })
            .data_movement(
                &Array::from([0.0f32, 0.0, 0.0, 16.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 4.0])
                    .put(&auto, p!["i"]),
            )?,
        ),
    ])
}

/// Returns the diagrams of single pages.
fn of_pages() -> Result<Vec<(&'static str, &'static str, MovementDiagram)>> {
    let mesh = Mesh::new([("i", 4)])?;
    let auto = Mesh::auto([("i", 4)])?;
    let table = || digits().reshape([4, 4]);
    let filter = Array::from([1, 2, 1]).astype(F32).reshape([1, 1, 3]);
    let smooth = move |x: &Array| {
        let same = ConvOptions::default().padding(Padding::Same);
        x.reshape([1, 1, 12]).conv_with(&filter, same).reshape([12])
    };
    let ids = Array::from([6, 1, 4]);
    let weights = Array::from([1.0f32, 2.0, 3.0]).put(&mesh, p![]);
    let examples = Array::arange(0..12).reshape([4, 3]).astype(F32).put(&mesh, p!["i"]);
    let (rows, dice) = (table().put(&mesh, p!["i", _]), Key::new(3));
    let w = Array::arange(0..8).reshape([4, 2]).put(&auto, p!["i"]);
    let numbers = || digits().slice(ix![..12]);
    Ok(vec![
        (
            "moves-uneven",
            "thirteen numbers on four devices: nothing is sent",
            jit(|x: &Array| 2 * x).data_movement(&digits().slice(ix![..13]).put(&auto, p!["i"]))?,
        ),
        (
            "moves-conflict",
            "a table and its transpose are added: rows meet columns",
            jit(|x: &Array| x + x.t()).data_movement(&table().put(&auto, p!["i", _]))?,
        ),
        (
            "moves-windows",
            "a filter of three moves over a signal",
            jit(smooth).data_movement(&numbers().astype(F32).put(&auto, p!["i"]))?,
        ),
        (
            "moves-lookup",
            "rows 6, 1 and 4 of a split table",
            jit(move |t: &Array| t.take_to(&ids, 0, p![]))
                .data_movement(&Array::arange(0..16).reshape([8, 2]).put(&mesh, p!["i"]))?,
        ),
        (
            "moves-back",
            "the gradient of replicated weights by split examples",
            jit(move |x: &Array| grad(&weights, |w| (w * x).sum(..))).data_movement(&examples)?,
        ),
        (
            "moves-running",
            "a running sum over what is split",
            jit(|x: &Array| x.cumsum(0)).data_movement(&numbers().put(&auto, p!["i"]))?,
        ),
        (
            "moves-dice",
            "dropout: each device makes its part of one mask",
            jit(move |x: &Array| x * dice.bernoulli([16], 0.5).astype(I32))
                .data_movement(&digits().put(&mesh, p!["i"]))?,
        ),
        (
            "moves-examples",
            "each device has its examples, and sums each of them",
            jit(|x: &Array| vmap(x, |row| Ok(row.sum(..)))).data_movement(&examples)?,
        ),
        (
            "moves-layer",
            "a product whose summed dimension is split",
            jit(move |x: &Array| x.dot(&w)).data_movement(&Array::from([1, 2, 3, 4]).put(&auto, p!["i"]))?,
        ),
        (
            "moves-power",
            "one step of the power method: the vector is gathered, and rows multiply it",
            jit(move |v: &Array| rows.dot(v.reshard(p![])))
                .data_movement(&Array::from([1, 0, 2, 0]).put(&mesh, p!["i"]))?,
        ),
    ])
}

pub(crate) fn draw(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::other)?;
    for (name, title, moves) in all()?.into_iter().chain(of_pages()?) {
        std::fs::write(folder.join(format!("{name}.svg")), moves.to_svg(title)).map_err(Error::other)?;
    }
    std::fs::write(folder.join("heat-plate.svg"), crate::plate::draw()?).map_err(Error::other)?;
    std::fs::write(folder.join("choosing.svg"), crate::chart::draw()).map_err(Error::other)?;
    Ok(())
}
