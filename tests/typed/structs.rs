//! Structs of typed arrays: what `#[derive(Tree)]` implements for them, and programs over them.
use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::value_and_grad;

mesh! { struct Pod { Data: 2, Model: 4 } }

#[derive(Tree)]
#[tree(derive(Clone, Debug))]
struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@Model],
    down: T![f32; H@Model, D],
}
type Small = Mlp<N![16], N![32]>;
type Batch = T![f32; 8@Data, 16];

impl<D: Size, H: Size> Mlp<D, H> {
    fn loss<B: Size>(&self, x: &T![f32; B@Data, D], y: &T![f32; B@Data, D]) -> T![f32;] {
        let h = x.matmul(&self.up).tanh();
        (h.matmul_to(&self.down, P![=, _]) - y).square().mean(..)
    }
}

/// A tree parameter, a size, a sharding that is a parameter, and a plain value in one struct.
#[derive(Tree)]
#[tree(derive(Clone, Debug))]
struct Mixed<M, D, A>
where
    D: Size,
    A: Shard,
{
    inner: M,
    row: T![f32; D@A],
    #[tree(skip)]
    depth: usize,
}

/// A tuple struct of a model and an array.
#[derive(Tree)]
#[tree(derive(Debug, Clone))]
struct Steps<M>(M, T![i32;]);

/// A struct with neither trait is a tree too.
#[derive(Tree)]
#[tree(derive())]
struct Bare<D: Size>(T![f32; D]);

/// A struct with a parameter and with a field that is not made of parameters.
#[derive(Clone, Tree)]
struct Half<T = Array> {
    w: T,
    fixed: Array,
}

fn pod() -> MeshOf<Pod> {
    Pod::mesh().unwrap()
}
fn small() -> Small {
    let [a, b] = Key::new(5).split();
    Mlp {
        up: (a.normal([16, 32]) * 0.2).put(&pod(), p![_, "Model"]).typed().unwrap(),
        down: (b.normal([32, 16]) * 0.2).put(&pod(), p!["Model", _]).typed().unwrap(),
    }
}
fn bits(tree: &impl Tree) -> Vec<Vec<u32>> {
    let all = tree::leaves(tree).into_iter();
    all.map(|a| a.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn generic_structs_are_cloned_and_printed() {
    let mixed = Mixed { inner: small(), row: <T![f32; 4@Data]>::ones(&pod()), depth: 3 };
    let again = mixed.clone();
    assert_eq!(bits(&mixed), bits(&again));
    assert_eq!(
        type_of(&again),
        "{inner: {up: float32[16,32@Model], down: float32[32@Model,16]}, row: float32[4@Data]}"
    );
    let row = format!("{:?}", mixed.row);
    let printed = format!("{again:?}");
    assert!(printed.starts_with("Mixed { inner: Mlp { up: "), "{printed}");
    assert!(printed.ends_with(&format!("row: {row}, depth: 3 }}")), "{printed}");
    let steps = Steps(again.row, Typed::zeros(&pod())).clone();
    assert!(format!("{steps:?}").starts_with("Steps("));
    assert_eq!(tree::leaves(&steps).len(), 2);
    let bare = tree::map(&Bare(<T![f32; 3]>::ones(&pod())), |x| x + 1.0f32);
    assert_eq!(bare.0.to_vec().unwrap(), [2.0; 3]);
    let half = tree::map(&Half { w: Array::from(1.0f32), fixed: Array::from(2.0f32) }, |x| x * 2.0f32);
    assert_eq!(bits(&half), [[2f32.to_bits()], [4f32.to_bits()]]);
    assert_eq!(bits(&half.w), [[2f32.to_bits()]]);
    assert_eq!(bits(&half.fixed), [[4f32.to_bits()]]);
}

#[derive(Tree)]
#[tree(derive(Clone))]
struct Adam<M> {
    mean: M,
    square: M,
    steps: T![f32;],
}
impl<M: Tree> Adam<M> {
    fn step(&self, model: &M, gradient: &M) -> (M, Adam<M>) {
        let steps = &self.steps + 1.0;
        let filled = |decay: f32| 1.0 - (&steps * decay.ln()).exp();
        let rate = (filled(0.999).sqrt() / filled(0.9) * 0.01).untyped();
        let mean = tree::map2(&self.mean, gradient, |m, g| m * 0.9f32 + g * 0.1f32);
        let square = tree::map2(&self.square, gradient, |s, g| s * 0.999f32 + g.square() * 0.001f32);
        let change = tree::map2(&mean, &square, |m, s| m / (s.sqrt() + 1e-8f32) * &rate);
        (tree::map2(model, &change, |w, c| w - c), Adam { mean, square, steps })
    }
}
/// Adam for one array of any shape, in types.
fn adam<S: ElementwiseShape>(
    [w, m, s]: [&Typed<f32, S>; 3],
    g: &Typed<f32, S>,
    steps: &T![f32;],
) -> [Typed<f32, S>; 3] {
    let filled = |decay: f32| 1.0 - (steps * decay.ln()).exp();
    let rate = filled(0.999).sqrt() / filled(0.9) * 0.01;
    let (m, s) = (m * 0.9 + g * 0.1, s * 0.999 + g.square() * 0.001);
    let change = &rate * (&m / (s.sqrt() + 1e-8));
    [w - change, m, s]
}

#[test]
fn optimizers_over_trees_and_over_shapes_agree() {
    let [x, y] = Key::new(8).split();
    let x: Batch = x.normal([8, 16]).put(&pod(), p!["Data"]).typed().unwrap();
    let y: Batch = y.normal([8, 16]).put(&pod(), p!["Data"]).typed().unwrap();
    let by_tree = |model: &Small, state: &Adam<Small>, x: &Batch, y: &Batch| {
        let (loss, g) = value_and_grad(model, |model| model.loss(x, y));
        let (model, state) = state.step(model, &g);
        (model, state, loss)
    };
    let by_shape = |model: &Small, state: &Adam<Small>, x: &Batch, y: &Batch| {
        let (loss, g) = value_and_grad(model, |model| model.loss(x, y));
        let (mean, square, steps) = (&state.mean, &state.square, &state.steps + 1.0);
        let [up, m1, s1] = adam([&model.up, &mean.up, &square.up], &g.up, &steps);
        let [down, m2, s2] = adam([&model.down, &mean.down, &square.down], &g.down, &steps);
        let state = Adam { mean: Mlp { up: m1, down: m2 }, square: Mlp { up: s1, down: s2 }, steps };
        (Mlp { up, down }, state, loss)
    };
    let zeros = || tree::map(&small(), |w| w.zeros_like());
    let start = || (small(), Adam { mean: zeros(), square: zeros(), steps: Typed::zeros(&pod()) });
    let (mut eager, mut shaped, mut traced) = (start(), start(), start());
    let jitted = jit(by_tree);
    let mut losses = Vec::new();
    for _ in 0..5 {
        let (model, state, loss) = by_tree(&eager.0, &eager.1, &x, &y);
        eager = (model, state);
        losses.push(loss.item().unwrap());
        let (model, state, _) = by_shape(&shaped.0, &shaped.1, &x, &y);
        shaped = (model, state);
        let (model, state, _) = jitted.call((&traced.0, &traced.1, &x, &y)).unwrap();
        traced = (model, state);
    }
    assert_eq!(bits(&eager), bits(&traced), "jit equals eager");
    assert_eq!(bits(&eager), bits(&shaped), "a rule for one array equals the rule for the tree");
    assert!(losses[4] < losses[0]);
}

/// A layer of a library that declares no mesh.
#[derive(Tree)]
#[tree(derive(Clone))]
struct Linear<D: Size, H: Size, M: MeshAxis> {
    w: T![f32; D, H@M],
}
impl<D: Size, H: Size, M: MeshAxis> Linear<D, H, M> {
    fn apply<B: Size, A: Shard + Distinct<M>>(&self, x: &T![f32; B@A, D]) -> T![f32; B@A, H@M] {
        x.matmul(&self.w)
    }
}

#[test]
fn structs_are_generic_over_axes() {
    let layer = Linear::<N![16], N![4], Model> { w: Typed::ones(&pod()) };
    let rows: T![f32; 8@Data, 4@Model] = layer.apply(&<Batch>::ones(&pod()));
    let whole: T![f32; 8, 4@Model] = layer.apply(&<T![f32; 8, 16]>::ones(&pod()));
    assert_eq!((rows.to_vec().unwrap(), whole.to_vec().unwrap()), (vec![16.0; 32], vec![16.0; 32]));
    let f = jit(|layer: &Linear<N![16], N![4], Model>, x: &Batch| layer.apply(x));
    assert_eq!(f.call((&layer, &<Batch>::ones(&pod()))).unwrap().to_vec().unwrap(), [16.0; 32]);
}

#[test]
fn a_leaf_of_another_type_is_reported_at_the_users_line() {
    let line = line!() + 1;
    let cast = tree::map(&small(), |w| w.astype(BF16));
    let error = cast.up.untyped().ty().unwrap_err();
    assert!(error.unquoted().contains(&format!("typed/structs.rs:{line}:")), "{error}");
    assert!(error.unquoted().contains("the array is bfloat16[16,32@Model]"), "{error}");
    let line = line!() + 1;
    let f = jit(|mlp: &Small| tree::map(mlp, |w| w.sum(0)));
    let error = f.trace(&small()).err().unwrap();
    assert!(error.unquoted().contains(&format!("typed/structs.rs:{line}:")), "{error}");
}
