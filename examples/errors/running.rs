//! Errors of reading arrays, building them from blocks, donation, and code on devices.
use crate::rejected;
use atmesh::nd::{Array1, ArrayView1};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;

    // ANCHOR: numbers
    let x = Array::ones([4]);
    rejected("data of another element type", x.to_vec::<i32>())?;
    println!("fixed: {:?}\n", x.astype(I32).to_vec::<i32>()?);
    rejected("one element of many", x.item::<f32>())?;
    println!("fixed: {:?}\n", x.slice(ix![0]).item::<f32>()?);
    // ANCHOR_END: numbers

    // ANCHOR: donated
    let x = Array::ones([4]);
    let double = jit(|x: &Array| 2.0 * x).donate(0);
    let y = double.call(&x)?;
    rejected("an argument used after it was donated", (x + y).ty())?;
    // ANCHOR_END: donated

    // ANCHOR: shards
    let x = Array::arange(0..8).put(&mesh, p!["Y"]);
    let sharding = x.sharding()?.expect("it was put on a mesh");
    let mut pieces: Vec<Array> = x.shards()?.into_iter().map(|s| s.data).collect();
    pieces.pop();
    rejected("a piece is missing", Array::from_shards([8], &sharding, pieces.clone()))?;
    pieces.push(Array::arange(0..3));
    rejected("a piece of another shape", Array::from_shards([8], &sharding, pieces.clone()))?;
    // ANCHOR_END: shards
    on_devices()
}

fn on_devices() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);

    // ANCHOR: mismatch
    let odd_one = spmd(&mesh, p!["X"], p![], |dev: &Device, x: ArrayView1<f32>| {
        if dev.axis_index("X")? == 2 { dev.pmax(&x, "X") } else { dev.psum(&x, "X") }
    });
    rejected("devices that call different collectives", odd_one.call(&x))?;
    // ANCHOR_END: mismatch

    // ANCHOR: waiting
    let waits = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| match dev.peer(0) {
        Some(first) if dev.axis_index("X")? == 1 => dev.recv(first),
        _ => Ok::<Array1<f32>, _>(x.to_owned()),
    });
    rejected("a message that is never sent", waits.call(&x))?;
    // ANCHOR_END: waiting

    // ANCHOR: panic
    let fails = spmd(&mesh, p!["X"], p![], |dev: &Device, x: ArrayView1<f32>| {
        assert!(dev.axis_index("X")? != 3, "device 3 has had enough");
        dev.psum(&x, "X")
    });
    rejected("a panic on a device", fails.call(&x))?;
    // ANCHOR_END: panic

    // ANCHOR: parameter
    let ints = spmd(&mesh, p!["X"], p!["X"], |_: &Device, x: ArrayView1<i32>| Ok(x.to_owned()));
    rejected("a parameter of another type", ints.call(&x))?;
    // ANCHOR_END: parameter

    // ANCHOR: global
    let global = Array::ones([2]);
    let mixes = spmd(&mesh, p!["X"], p!["X"], |_: &Device, x: ArrayView1<f32>| {
        (&global + 1.0).to_vec::<f32>()?;
        Ok(x.to_owned())
    });
    rejected("an operation on global arrays inside spmd", mixes.call(&x))?;
    // ANCHOR_END: global
    Ok(())
}
