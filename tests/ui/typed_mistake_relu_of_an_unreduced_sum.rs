//~ `relu` needs a value, not a sum over a mesh axis that has not been made: the array is `GlobalSets<(UnreducedSum<Data>, Invariant)>`
//~ this array is unreduced: each device has only its part of the sum
//~ make the sum first, by `reshard` to a plain spec: `x.reshard(P![_, _])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 16@Data], w: &T![f32; 16@Data, 32]) {
    let _ = x.matmul_to(w, P![_, _; U: Data]).relu();
    //~ fix: let _ = x.matmul_to(w, P![_, _; U: Data]).reshard(P![_, _]).relu();
}
