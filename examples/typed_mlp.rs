//! Tensor-parallel layers with shardings in function signatures: rustc rejects a wrong sharding.
use atmesh::prelude::*;
use atmesh::typed::Typed;
use atmesh::typed::prelude::*;

// ANCHOR: sizes
mesh! { struct Pod { Data: 2, Model: 4 } }
dim!(Batch); // known at run time
dim!(Embed = 64);
dim!(Hidden = 256);
// ANCHOR_END: sizes

// ANCHOR: layer
/// A block of two matrices: the first is sharded by columns, the second by rows.
#[derive(Tree)]
#[tree(derive(Clone))]
struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@Model],
    down: T![f32; H@Model, D],
}

impl<D: Size, H: Size> Mlp<D, H> {
    /// Applies the block: the batch stays sharded, and the hidden dim is sharded by columns.
    fn apply<B: Size>(&self, x: &T![f32; B@Data, D]) -> T![f32; B@Data, D] {
        let h: T![f32; B@Data, H@Model] = x.matmul(&self.up).relu();
        // Contracts `H@Model`; `P![=, _]` says that every device gets the sum.
        let y = h.matmul_to(&self.down, P![=, _]);
        x + y
    }
}
// ANCHOR_END: layer

fn main() -> Result<()> {
    let pod = Pod::mesh()?;
    let [a, b, c] = Key::new(7).split();
    let random = |key: Key, n: [usize; 2], spec| key.normal(n).put(&pod, spec) * 0.1;
    let layers: Vec<Mlp<Embed, Hidden>> = (0..3)
        .map(|i| {
            Ok(Mlp {
                up: random(a.fold_in(i), [64, 256], p![_, "Model"]).typed()?,
                down: random(b.fold_in(i), [256, 64], p!["Model", _]).typed()?,
            })
        })
        .collect::<Result<_>>()?;
    let x: T![f32; Batch@Data, Embed] = random(c, [16, 64], p!["Data"]).typed()?;

    // ANCHOR: run
    let model = jit(|layers: &Vec<Mlp<Embed, Hidden>>, x: &T![f32; Batch@Data, Embed]| {
        layers.iter().fold(x.clone(), |x, layer| layer.apply(&x))
    });
    let y = model.call((&layers, &x))?;
    println!("{}", type_of(&y));
    // Each layer needs one all-reduce, and nothing else is communicated.
    assert_collectives!(model.lower((&layers, &x))?, AllReduce("Model") x 3);
    // ANCHOR_END: run
    println!("{}", <T![f32; Batch@Data, Embed]>::type_text());
    let zero = Typed::zeros_like(&y);
    assert!(!y.untyped().allclose(&zero.untyped())?);
    Ok(())
}
