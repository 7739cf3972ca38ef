use atmesh::nd::array;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== host");
    host()?;
    println!("== pieces");
    pieces()?;
    println!("== structs");
    structs()?;
    println!("== files");
    files()?;
    println!("== wrong");
    wrong()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()?;
    println!("== workers");
    workers()
}

// ANCHOR: host
fn host() -> Result<()> {
    let a = Array::from([[1.0f32, 2.0], [3.0, 4.0]]); // nested arrays
    let b = Array::from(vec![1i32, 2, 3]); // a Vec: one dimension
    let c = Array::from(array![[1.0f64, 2.0, 3.0]]); // an ndarray
    println!("{} {} {}", type_of(&a), type_of(&b), type_of(&c));

    let mesh = Mesh::new([("X", 2)])?;
    let a = a.put(&mesh, p!["X", _]);
    let back = a.to_ndarray::<f32>()?; // the full array, gathered from its shards
    println!("{}: its sum is {}, by ndarray", type_of(&a), back.sum());
    println!("{:?} {}", a.to_vec::<f32>()?, a.sum(..).item::<f32>()?);
    Ok(())
}
// ANCHOR_END: host

// ANCHOR: pieces
/// Reads some rows of a data set that is too large for one machine.
fn read_rows(from: usize, to: usize) -> Array {
    Array::arange(from as i32..to as i32).reshape([to - from, 1]) * Array::from([1, 10, 100])
}

fn pieces() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let sharding = Sharding::new(&mesh, p!["data", _], &[8, 3])?;
    println!("each device holds {:?}", sharding.shard_shape(&[8, 3])?);
    // The closure is called once for each block.
    let x = Array::from_fn([8, 3], &sharding, |index| read_rows(index[0].start, index[0].end))?;
    println!("{}\n{x}", type_of(&x));
    // Builds the same array from a list of blocks, in the order of the mesh's devices.
    let pieces = (0..4).map(|k| read_rows(2 * k, 2 * k + 2));
    let y = Array::from_shards([8, 3], &sharding, pieces)?;
    println!("the same: {}", x.allclose(&y)?);
    Ok(())
}
// ANCHOR_END: pieces

// ANCHOR: structs
#[derive(Clone, Debug, Tree)]
struct Layer<T = Array> {
    w: T,
    b: T,
}

#[derive(Clone, Debug, Tree)]
struct Network<T = Array> {
    layers: Vec<Layer<T>>,
    scale: T,
}

fn network() -> Network {
    let layer = |k: u64| Layer { w: Key::new(k).normal([8, 8]), b: Array::zeros([8]) };
    Network { layers: vec![layer(0), layer(1)], scale: Array::from(0.5f32) }
}

fn structs() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    // Shardings are one spec for all leaves, or a struct of specs with the same fields.
    let layer = || Layer { w: p!["X", "Y"], b: p!["Y"] };
    let specs = Network { layers: vec![layer(), layer()], scale: p![] };
    let net = tree::put(&network(), &mesh, specs);
    println!("{}", type_of(&net));

    let halved = tree::map(&net, |x| 0.5 * x);
    let sum = tree::map2(&net, &halved, |a, b| a + b);
    println!("{} leaves; scale is now {}", tree::leaves(&sum).len(), sum.scale);

    // A struct of arrays can be an argument, a result, and what `grad` returns.
    let loss = |net: &Network, x: &Array| {
        let y = net.layers.iter().fold(x.clone(), |x, l| (x.dot_to(&l.w, p![]) + &l.b).tanh());
        (&net.scale * y).square().sum(..)
    };
    let gradient = jit(|net: &Network, x: &Array| grad(net, |net| loss(&net, x)));
    println!("{}", type_of(gradient.call((&net, Array::ones([8])))?));
    Ok(())
}
// ANCHOR_END: structs

// ANCHOR: files
fn files() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("atmesh-book-{}", std::process::id()));
    let eight = Mesh::new([("X", 8)])?;
    let net = tree::put(&network(), &eight, p![]);
    tree::save_npy(&net, &folder)?; // layers.0.w.npy, layers.0.b.npy, …

    // Files hold full arrays, so they can be loaded on another machine with another mesh.
    let four = Mesh::new([("X", 2), ("Y", 2)])?;
    let layer = || Layer { w: p!["X", "Y"], b: p!["Y"] };
    let specs = Network { layers: vec![layer(), layer()], scale: p![] };
    let like = tree::put(&network(), &four, specs);
    let loaded = tree::load_npy(&like, &folder)?;
    println!("{}", type_of(&loaded.layers[0].w));
    println!("the same: {}", loaded.layers[1].w.allclose(&net.layers[1].w)?);
    std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)
}
// ANCHOR_END: files

// ANCHOR: wrong
fn wrong() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let sharding = Sharding::new(&mesh, p!["data", _], &[8, 3])?;
    let short = (0..4).map(|k| read_rows(2 * k, 2 * k + if k == 3 { 1 } else { 2 }));
    if let Err(e) = Array::from_shards([8, 3], &sharding, short) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: wrong

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let sharding = Sharding::new(&mesh, p!["X", "Y"], &[4, 4])?;
    let table = Array::from_fn([4, 4], &sharding, |index| {
        let rows = Array::arange(index[0].start as i32 + 1..index[0].end as i32 + 1).reshape([2, 1]);
        rows * Array::arange(index[1].start as i32 + 1..index[1].end as i32 + 1)
    })?;
    println!("{}\n{table}", type_of(&table));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let bytes: usize = tree::leaves(&network()).iter().map(|x| x.nbytes()).sum::<Result<usize>>()?;
    let mesh = Mesh::new([("X", 4)])?;
    let net = tree::put(&network(), &mesh, p![]);
    let split =
        tree::map(
            &net,
            |x| if x.ty().is_ok_and(|t| t.rank() == 2) { x.reshard(p!["X", _]) } else { x.clone() },
        );
    let held: usize =
        tree::leaves(&split).iter().map(|x| x.shards()?[0].data.nbytes()).sum::<Result<usize>>()?;
    println!("{bytes} bytes in all; {held} per device");
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let a = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
    if let Err(e) = a.to_vec::<f64>() {
        println!("{e}");
    }
    println!("{:?}", a.astype(F64).to_vec::<f64>()?);
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    println!("{}", Array::ones([3]).put(&mesh, p![]).to_vec::<f32>()?.len());
    Ok(())
}
// ANCHOR_END: exercise3

// ANCHOR: workers
/// Four workers read at the same time, each the rows of one device.
fn workers() -> Result<()> {
    let mesh = Mesh::new([("data", 4)])?;
    let sharding = Sharding::new(&mesh, p!["data", _], &[8, 3])?;
    let workers = [0, 1, 2, 3].map(|k| std::thread::spawn(move || read_rows(2 * k, 2 * k + 2)));
    let pieces = workers.into_iter().map(|worker| worker.join().expect("a worker returns its rows"));
    let x = Array::from_shards([8, 3], &sharding, pieces)?;
    println!("{}, device 3: {:?}", type_of(&x), x.shards()?[3].data.to_vec::<i32>()?);
    Ok(())
}
// ANCHOR_END: workers
