//! One device's code in types: what a body creates and draws, regions over some axes, generic bodies.
use atmesh::Element;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use std::sync::Mutex;

mesh! { struct Pod { X: 2, Y: 4 } }
mesh! { struct Cube { A: 2, B: 2, C: 2 } }
mesh! { struct Late { Data("data"): ?, Model("model"): 2 } }

fn pod() -> MeshOf<Pod> {
    Pod::mesh().unwrap()
}
fn bits<T: Element>(x: &Array) -> Vec<String> {
    x.to_vec::<T>().unwrap().iter().map(|x| format!("{x:?}")).collect()
}

/// Compares each sampler with its untyped twin: for every sharding the numbers are the same.
#[test]
fn samplers_draw_the_untyped_numbers() {
    macro_rules! agrees { ($t:ty, $array:ty; $($name:ident($($arg:expr)?))*) => { $(
        for seed in 0..3 {
            let key = Key::new(seed);
            let typed = <$array>::$name(&pod(), &key $(, $arg)?).untyped();
            let untyped = key.$name(<$t as Element>::DTYPE.array_type([8, 12]) $(, $arg)?);
            assert_eq!(bits::<$t>(&typed), bits::<$t>(&untyped), stringify!($name $array));
            assert_eq!(type_of(&typed).to_string(), <$array>::type_text());
        }
    )* } }
    macro_rules! shardings { ($t:ty; $($rest:tt)*) => {
        agrees!($t, T![$t; 8@X, 12]; $($rest)*);
        agrees!($t, T![$t; 8, 12@Y]; $($rest)*);
        agrees!($t, T![$t; 8@(Y, X), 12]; $($rest)*);
        agrees!($t, T![$t; 8, 12]; $($rest)*);
    } }
    shardings!(f32; uniform() uniform_in(-2.0..5.0) normal() exponential() gumbel());
    shardings!(f64; uniform() normal());
    shardings!(bf16; uniform() normal());
    shardings!(i32; randint(-3..100));
    shardings!(u8; randint(0..7) bits());
    shardings!(u64; bits());
    for seed in 0..3 {
        let key = Key::new(seed);
        let mask = <T![bool; 8@X, 12@Y]>::bernoulli(&pod(), &key, 0.9).untyped();
        assert_eq!(bits::<bool>(&mask), bits::<bool>(&key.bernoulli([8, 12], 0.9)));
        let clipped = <T![f32; 8@X, 12@Y]>::truncated_normal(&pod(), &key, -1.0, 1.5).untyped();
        assert_eq!(bits::<f32>(&clipped), bits::<f32>(&key.truncated_normal([8, 12], -1.0, 1.5)));
        let x = <T![f32; 8@X, 12]>::normal(&pod(), &key);
        let drawn: T![i32; 8@X] = x.categorical(&key, D1);
        assert_eq!(bits::<i32>(&drawn.untyped()), bits::<i32>(&key.categorical(x.as_untyped(), 1)));
        let order: T![f32; 8@X, 12] = x.permutation(&key, D1);
        assert_eq!(bits::<f32>(&order.untyped()), bits::<f32>(&key.permutation(x.as_untyped(), 1)));
    }
}

#[test]
fn a_body_draws_the_untyped_numbers() {
    let key = Key::new(7);
    let args = (<T![f32; 8@X, 3]>::zeros(&pod()), &key, ThisDevice);
    let (same, own, step, half) =
        Pod.shard_map(args, (P![_, _], P![X, _], P![_], P![X, _]), |(x, key, device)| {
            let same: T![f32; 4, 3; in Pod] = Typed::normal(&device, &key);
            let own = key.fold_in(device.axis_index(X));
            let [first, second] = own.split();
            let own: T![f32; 4, 3; V: X] = Typed::normal(&device, &first);
            let step = <T![i32; 5; in Pod]>::randint(&device, &key.fold_in(3), 0..100);
            let kept = <T![bool; 4, 3; V: X]>::bernoulli(&device, &second, 0.5);
            (same, own, step, x + kept.convert::<f32>())
        });
    assert_eq!(same.to_vec().unwrap(), key.normal([4, 3]).to_vec::<f32>().unwrap());
    let own_keys = [0u32, 1].map(|i| key.fold_in(i).split::<2>());
    let blocks: Vec<f32> =
        own_keys.iter().flat_map(|[first, _]| first.normal([4, 3]).to_vec::<f32>().unwrap()).collect();
    assert_eq!(own.to_vec().unwrap(), blocks);
    assert_eq!(step.to_vec().unwrap(), key.fold_in(3u32).randint([5], 0..100).to_vec::<i32>().unwrap());
    let kept = own_keys
        .iter()
        .flat_map(|[_, second]| second.bernoulli([4, 3], 0.5).astype(F32).to_vec::<f32>().unwrap());
    assert_eq!(half.to_vec().unwrap(), kept.collect::<Vec<_>>());
}

#[test]
fn a_body_creates_arrays() {
    let (ranks, rows, sum) = Pod.shard_map((ThisDevice,), (P![(X, Y)], P![_, _], P![_]), |(device,)| {
        let rank = device.axis_index(X) * 4 + device.axis_index(Y);
        let ranks: T![i32; 1; V: (X, Y)] = <T![i32; 1; in Pod]>::zeros(&device) + rank;
        let rows = <T![i32; 2, 3; in Pod]>::iota(&device, D0);
        let half: T![f32; 2; in Pod] = Typed::full(&device, 0.5);
        (ranks, rows, half + <T![f32; 2; in Pod]>::ones(&device))
    });
    assert_eq!(ranks.to_vec().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(rows.to_vec().unwrap(), [0, 0, 0, 1, 1, 1]);
    assert_eq!(sum.to_vec().unwrap(), [1.5; 2]);
}

#[test]
fn a_block_that_leaves_its_body_is_an_error() {
    let kept = Mutex::new(None);
    let x = Pod.shard_map((<T![f32; 8@X]>::ones(&pod()),), P![X], |(x,)| {
        *kept.lock().unwrap() = Some(x.clone());
        x
    });
    assert_eq!(x.to_vec().unwrap(), [1.0; 8]);
    let block: T![f32; 4; V: X] = kept.into_inner().unwrap().unwrap();
    assert!(block.relu().untyped().to_vec::<f32>().is_err());
    let late = Pod.shard_map((x,), P![X], |(x,)| x + &block);
    assert!(late.to_vec().is_err());
}

#[test]
fn blocks_of_rank_seven_and_eight() {
    let x = <T![i32; 2@X, 1, 1, 3, 1, 1, 4@Y, 2]>::iota(&pod(), D6);
    let z = <T![i32; 1, 2, 1, 1, 1, 1, 4@Y]>::iota(&pod(), D1);
    let (y, w) = Pod.shard_map((&x, &z), (P![_, _, _, _, _, _, Y, X], P![_, X, _, _, _, _, Y]), |(x, z)| {
        let z: T![i32; 1, 1, 1, 1, 1, 1, 1; V: (X, Y)] = z.pvary(X).sum(keep(D1)).reshape();
        (x.all_to_all(X, D7, D0), z)
    });
    let y: T![i32; 2, 1, 1, 3, 1, 1, 4@Y, 2@X] = y;
    let w: T![i32; 1, 2@X, 1, 1, 1, 1, 4@Y] = w;
    assert_eq!((y.to_vec().unwrap(), w.to_vec().unwrap()), (x.to_vec().unwrap(), vec![1; 8]));
}

/// Compares regions over some axes with the untyped `shard_map(..).over(..)`.
#[test]
fn regions_over_some_axes() {
    let mesh = Cube::mesh().unwrap();
    let x = <T![f32; 8@A, 6@B, 4]>::normal(&mesh, &Key::new(1));
    let w = <T![f32; 4, 6@C]>::normal(&mesh, &Key::new(2));
    let y: T![f32; 8@A, 6@B, 6@C] = Cube.over(A).shard_map((&x, &w), P![A, _, _], |(x, w)| {
        let x: T![f32; 4, 6@B, 4; V: A] = x;
        x.matmul(&w).relu()
    });
    let untyped =
        shard_map(&mesh, Inferred, p!["A"], |(x, w): (&Array, &Array)| x.matmul(w).relu()).over("A");
    let untyped = untyped.call((x.as_untyped(), w.as_untyped())).unwrap();
    assert_eq!(type_of(&y).to_string(), type_of(&untyped).to_string());
    assert_eq!(bits::<f32>(&y.untyped()), bits::<f32>(&untyped));

    // manual axes come before others in a dim, and a sum over a dim that others shard is as outside
    let x = <T![f32; 24@(A, B, C), 5]>::normal(&mesh, &Key::new(3));
    let (y, sums, all) = Cube.over((B, A)).shard_map((&x,), (P![(A, B), _], P![_], P![_]), |(x,)| {
        let x: T![f32; 6@C, 5; V: (A, B)] = x;
        (&x * 2.0, x.sum(D0).psum((A, B)), x.max(..).pmax(A).pmax(B).reshape::<S![1]>())
    });
    let y: T![f32; 24@(A, B, C), 5] = y;
    let sums: T![f32; 5] = sums;
    let untyped = shard_map(&mesh, Inferred, (p![("A", "B")], p![], p![]), |x: &Array| {
        (x * 2.0, x.sum(0).psum(["A", "B"]), x.max(..).pmax("A").pmax("B").reshape([1]))
    });
    let (y2, sums2, all2) = untyped.over(["A", "B"]).call(x.as_untyped()).unwrap();
    assert_eq!(bits::<f32>(&y.untyped()), bits::<f32>(&y2));
    assert_eq!(bits::<f32>(&sums.untyped()), bits::<f32>(&sums2));
    assert_eq!(bits::<f32>(&all.untyped()), bits::<f32>(&all2));

    // a dim that no manual axis shards stays as it is
    let z = <T![f32; 8@(A, B), 4@C]>::normal(&mesh, &Key::new(4));
    let twice: T![f32; 8@(A, B), 4@C] = Cube.over(C).shard_map((&z,), P![_, C], |(z,)| {
        let z: T![f32; 8@(A, B), 2; V: C] = z;
        &z + &z
    });
    let doubled: Vec<f32> = z.to_vec().unwrap().iter().map(|z| z + z).collect();
    assert_eq!(twice.to_vec().unwrap(), doubled);
}

#[test]
fn a_region_of_a_mesh_whose_sizes_are_known_late() {
    let mesh = Late::with_sizes(&[4, 2]).unwrap();
    let x = <T![i32; 8@Data, 6@Model]>::iota(&mesh, D0);
    let y: T![i32; 8@Data, 6@Model] =
        Late.over(Data)
            .shard_map((&x, ThisDevice), P![Data, _], |(x, device)| x + device.axis_index(Data) * 10);
    let expected: Vec<i32> = (0..48).map(|i| i / 6 + i / 12 * 10).collect();
    assert_eq!(y.to_vec().unwrap(), expected);
}

/// A layer for any mesh: one bound for its axis.
fn total<M: MeshType, I: ManualAxis<M>, N: Tiles<I>>(mesh: M, x: T![f32; N@I, 4]) -> T![f32; 4] {
    mesh.shard_map((x,), P![_], |(x,)| x.sum(D0).psum(I::AXIS))
}
fn layer<M: MeshType, I: ManualAxis<M>, N: Tiles<I>, D: Tiles<I>>(
    mesh: M,
    x: &T![f32; N@I, D],
    w: &T![f32; D, D],
) -> T![f32; N@I, D] {
    mesh.shard_map((x, w, ThisDevice), P![I::AXIS, _], |(x, w, device)| {
        let y = x.matmul(&w) * &x;
        let shift = device.axis_index(I::AXIS).convert::<f32>();
        (&y + &y + shift).pmean(I::AXIS) - y
    })
}

#[test]
fn bodies_are_generic_over_meshes() {
    let x = <T![f32; 8@X, 4]>::normal(&pod(), &Key::new(1));
    let c = Array::from(x.to_vec().unwrap()).reshape([8, 4]).put(&Cube::mesh().unwrap(), p!["B"]);
    let c: T![f32; 8@B, 4] = c.typed().unwrap();
    let sums = [total(Pod, x.clone()).to_vec().unwrap(), total(Cube, c.clone()).to_vec().unwrap()];
    assert_eq!(sums[0], sums[1]);
    let w = <T![f32; 4, 4]>::normal(&pod(), &Key::new(2));
    let v = <T![f32; 4, 4]>::normal(&Cube::mesh().unwrap(), &Key::new(2));
    assert_eq!(layer(Pod, &x, &w).to_vec().unwrap(), layer(Cube, &c, &v).to_vec().unwrap());
}
