//~ `X` is not an axis of the mesh `Ring`
//~ not an axis of `Ring`
//~ an array is on one mesh: create it on the mesh that declares `X`
//~ `(X, Y)` are not axes of the mesh `Ring`

use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2, Y: 4 } }
mesh! { struct Ring { Stage: 4 } }

fn main() -> Result<()> {
    let x: T![f32; 8@X, 3] = Typed::zeros(&Ring::mesh()?);
    let y: T![f32; 8@(X, Y)] = Typed::ones(&Ring::mesh()?);
    Ok(())
}
