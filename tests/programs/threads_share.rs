//! Values that may be shared between threads; sharing them gives the same bits.
use atmesh::prelude::*;
use atmesh::{Compiled, Error};

fn shared<T: Send + Sync>() {}

#[test]
fn arrays_meshes_and_compiled_functions_are_send_and_sync() {
    shared::<Array>();
    shared::<Mesh>();
    shared::<Key>();
    shared::<Spec>();
    shared::<Error>();
    shared::<Compiled<(Array, Array), Array>>();
}

#[test]
fn one_compiled_function_is_called_from_many_threads() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Key::new(1).normal([64, 64]).put(&mesh, p!["X", _]);
    let w = Key::new(2).normal([64, 64]);
    let f = jit(|x: &Array, w: &Array| x.dot(w).tanh().sum(0)).lower((&x, &w))?.compile()?;
    let want = f.call((&x, &w))?.to_vec::<f32>()?;
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..4).map(|_| scope.spawn(|| f.call((&x, &w)).and_then(|y| y.to_vec::<f32>()))).collect();
        for call in calls {
            assert_eq!(call.join().expect("no call panics").as_ref(), Ok(&want));
        }
    });
    Ok(())
}
