//! Each typical error, and the mended program.
use atmesh::nd::ArrayView1;
use atmesh::prelude::*;

fn show<T>(name: &str, result: Result<T>) {
    match result {
        Ok(_) => println!("== {name}\naccepted\n"),
        Err(e) => println!("== {name}\n{e}\n"),
    }
}

fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let ones = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);

    // ANCHOR: ambiguous
    let (a, b) = (ones([8, 16], p![_, "X"]), ones([16, 4], p!["X", _]));
    show("both contracted dimensions are split", a.dot(&b).ty());
    println!("mended: {}\n", type_of(a.dot_to(&b, p![])));
    // ANCHOR_END: ambiguous

    // ANCHOR: twice
    let (a, b) = (ones([8, 16], p!["X", _]), ones([16, 4], p![_, "X"]));
    show("one axis would split two dimensions", a.dot(&b).ty());
    println!("mended: {}\n", type_of(a.dot(b.reshard(p![]))));
    // ANCHOR_END: twice

    // ANCHOR: conflict
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p!["Y", _]));
    show("two operands are split differently", (&a + &b).ty());
    println!("mended: {}\n", type_of(&a + b.reshard(p!["X", _])));
    // ANCHOR_END: conflict

    // ANCHOR: divide
    show("a dimension that does not divide", Array::ones([6]).put(&mesh, p!["Y"]).ty());
    println!("mended: {}\n", type_of(Array::ones([8]).put(&mesh, p!["Y"])));
    // ANCHOR_END: divide

    // ANCHOR: unknown
    show("an axis that the mesh does not have", Array::ones([8]).put(&mesh, p!["Z"]).ty());
    show("an axis twice", Array::ones([8, 8]).put(&mesh, p!["X", "X"]).ty());
    show("more entries than dimensions", Array::ones([8]).put(&mesh, p!["X", "Y"]).ty());
    // ANCHOR_END: unknown

    // ANCHOR: dtypes
    show("two element types", (Array::ones([4]) + Array::arange(0..4)).ty());
    println!("mended: {}\n", type_of(Array::ones([4]) + Array::arange(0..4).astype(F32)));
    // ANCHOR_END: dtypes

    // ANCHOR: meshes
    let other = Mesh::new([("X", 4)])?;
    show(
        "two meshes in one operation",
        (ones([8, 8], p!["X", _]) + Array::ones([8, 8]).put(&other, p!["X", _])).ty(),
    );
    // ANCHOR_END: meshes

    // ANCHOR: carry
    let looped = fori_loop(0..3, Array::ones([4]), |_, x| concat([&x, &x], 0));
    show("a loop's carry that changes its type", looped.ty());
    // ANCHOR_END: carry

    // ANCHOR: varying
    let sums = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..));
    show("a result that varies, returned as replicated", sums.call(Array::ones([8])));
    let sums = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X"));
    println!("mended: {}\n", sums.call(Array::ones([8]))?);
    // ANCHOR_END: varying

    // ANCHOR: traced
    let peeked = jit(|x: &Array| {
        let first = x.to_vec::<f32>()?[0];
        Ok(x * first)
    });
    show("the numbers of a traced value", peeked.call(Array::ones([2])));
    // ANCHOR_END: traced

    // ANCHOR: kept
    let kept = std::cell::RefCell::new(None);
    let keeps = jit(|x: &Array| {
        *kept.borrow_mut() = Some(x.clone());
        2.0 * x
    });
    let y = keeps.call(Array::ones([2]))?;
    let later = kept.take().expect("it was traced");
    show("a traced value kept after its trace", (later + y).ty());
    // ANCHOR_END: kept

    // ANCHOR: poisoned
    let bad = Array::ones([4]).dot(Array::ones([3]));
    let worse = (bad.sin() * 2.0).sum(..);
    println!("== a value that carries an error: its shape, its element type, its print");
    println!("{}\n{}\n{worse}\n", worse.shape().is_err(), worse.dtype().is_err());
    // ANCHOR_END: poisoned

    // ANCHOR: donated
    let x = Array::ones([4]);
    let double = jit(|x: &Array| 2.0 * x).donate([0]);
    let y = double.call(&x)?;
    show("an argument used after it was donated", (x + y).ty());
    // ANCHOR_END: donated

    // ANCHOR: all
    let many = jit(|x: &Array| {
        let a = x.reshape([3, 3]);
        let b = x + Array::arange(0..8);
        (a, b)
    });
    show("all errors of a program at once", many.call(Array::ones([8])));
    // ANCHOR_END: all

    // ANCHOR: shards
    let x = Array::arange(0..8).put(&mesh, p!["Y"]);
    let sharding = x.sharding()?.expect("it was put on a mesh");
    let mut pieces: Vec<Array> = x.shards()?.into_iter().map(|s| s.data).collect();
    pieces.pop();
    show("a piece is missing", Array::from_shards([8], &sharding, pieces));
    // ANCHOR_END: shards
    on_devices()
}

fn on_devices() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);

    // ANCHOR: mismatch
    let odd_one =
        spmd(
            &mesh,
            p!["X"],
            p![],
            |dev: &Device, x: ArrayView1<f32>| {
                if dev.index("X") == 2 { dev.pmax(&x, "X") } else { dev.psum(&x, "X") }
            },
        );
    show("devices that call different collectives", odd_one.call(&x));
    // ANCHOR_END: mismatch

    // ANCHOR: panic
    let fails = spmd(&mesh, p!["X"], p![], |dev: &Device, x: ArrayView1<f32>| {
        assert!(dev.index("X") != 3, "device 3 has had enough");
        dev.psum(&x, "X")
    });
    show("a panic on a device", fails.call(&x));
    // ANCHOR_END: panic

    // ANCHOR: global
    let global = Array::ones([2]);
    let mixes = spmd(&mesh, p!["X"], p!["X"], |_: &Device, x: ArrayView1<f32>| {
        (&global + 1.0).to_vec::<f32>()?;
        Ok(x.to_owned())
    });
    show("an operation on global arrays inside spmd", mixes.call(&x));
    // ANCHOR_END: global
    Ok(())
}
