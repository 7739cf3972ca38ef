//! A primitive is its type and its fields: two that differ in one field are two, in programs and in what is kept of them.

use atmesh::prelude::*;

/// The greatest and the least of bools are other operations than each other, and than a sum.
#[test]
fn extremes_of_bools() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::from([true, false]);
    let greatest = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmax("X"));
    let least = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmin("X"));
    assert_eq!(greatest.call(&x)?.to_vec::<bool>()?, [true]);
    assert_eq!(least.call(&x)?.to_vec::<bool>()?, [false]);
    let (greatest, least) = (jit(move |x: &Array| greatest.call(x)), jit(move |x: &Array| least.call(x)));
    assert_eq!(greatest.call(&x)?.to_vec::<bool>()?, [true]);
    assert_eq!(least.call(&x)?.to_vec::<bool>()?, [false]);
    let (greatest, least) = (greatest.trace(&x)?.to_string(), least.trace(&x)?.to_string());
    assert!(greatest.contains("pmax") && least.contains("pmin"), "{greatest}\n{least}");
    Ok(())
}
