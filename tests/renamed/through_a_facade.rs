//! A crate that depends on `facade`, and not on atmesh.
use facade::arrays::prelude::*;
use facade::arrays::typed::prelude::*;

mesh! { pub struct Pod { Data: 2, Model: 4 } }

#[derive(Tree)]
#[tree(crate = facade::arrays, derive(Clone))]
pub struct Linear<D: Size, H: Size, A: MeshAxis> {
    w: T![f32; D, H@A],
    bias: T![f32; H@A],
}

impl<D: Size, H: Size> Linear<D, H, Model> {
    pub fn apply<B: Size>(&self, x: &T![f32; B@Data, D]) -> T![f32; B@Data, H@Model] {
        einsum!("bd,dh->bh", x, self.w) + &self.bias
    }
}

pub fn gradient<D: Size, H: Size>(
    layer: &Linear<D, H, Model>,
    x: &T![f32; 8@Data, D],
) -> Linear<D, H, Model> {
    grad(layer, |layer| layer.apply(x).square().sum(..))
}
