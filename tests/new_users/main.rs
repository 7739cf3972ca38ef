//! What new users write: programs in several ways, which agree, and mistakes with their errors.

#![cfg(feature = "typed")]

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod magnets;
mod mistakes;
mod retrieval;
mod six_pages;
mod vae;

use atmesh::prelude::*;
use error_checks::Unquoted as _;

/// The forces between bodies: by broadcasting, by components, and by `vmap`.
#[test]
fn bodies_attract_each_other_in_three_ways() -> Result<()> {
    let n = 96;
    let [a, c] = Key::new(6).split();
    let (x, m) = (a.normal([n, 3]), c.uniform([n]) / n as f64);
    type Pull = fn(&Array, &Array) -> Array;
    let ways: [(&str, Pull); 3] = [
        ("by broadcasting", |x, m| {
            let d = x.expand_dims(0) - x.expand_dims(1);
            let r2 = d.square().sum(2) + 1e-2;
            let w = m / (&r2 * r2.sqrt());
            einsum("nk,nkd->nd", [&w, &d])
        }),
        ("by components", |x, m| {
            let d: Vec<Array> = x.unstack(1).iter().map(|c| c.expand_dims(0) - c.expand_dims(1)).collect();
            let r2 = d[0].square() + d[1].square() + d[2].square() + 1e-2;
            let w = m / (&r2 * r2.sqrt());
            stack(d.iter().map(|d| (&w * d).sum(1)).collect::<Vec<_>>(), 1)
        }),
        ("by vmap", |x, m| {
            vmap(x, |a| {
                let d = x - &a;
                let r2 = d.square().sum(1) + 1e-2;
                let w = m / (&r2 * r2.sqrt());
                w.dot(&d)
            })
        }),
    ];
    let (at, mass) = (x.to_vec::<f32>()?, m.to_vec::<f32>()?);
    let pull = |i: usize, d: usize| -> f64 {
        let difference = |j: usize, d: usize| f64::from(at[3 * j + d]) - f64::from(at[3 * i + d]);
        let r2 = |j: usize| (0..3).map(|d| difference(j, d).powi(2)).sum::<f64>() + 1e-2;
        (0..n).map(|j| f64::from(mass[j]) * difference(j, d) / r2(j).powf(1.5)).sum()
    };
    let want: Vec<f64> = (0..3 * n).map(|k| pull(k / 3, k % 3)).collect();
    for mesh in [Mesh::auto([("i", 4)])?, Mesh::auto([("i", 1)])?] {
        let (x, m) = (x.put(&mesh, p!["i", _]), m.put(&mesh, p!["i"]));
        for (name, f) in ways {
            let got = jit(f).call((&x, &m))?.to_vec::<f32>()?;
            let worst = got.iter().zip(&want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-4, "{name} on {mesh}: {worst}");
        }
    }
    Ok(())
}

/// The counts of the grey levels of an image that is split both ways: devices count their own blocks
/// and add the counts.
#[test]
fn levels_of_a_split_image_are_counted_in_place() -> Result<()> {
    let image = Key::new(1).randint([256, 256], 0..256);
    let mut want = vec![0i32; 256];
    image.to_vec::<i32>()?.iter().for_each(|level| want[*level as usize] += 1);
    type Count = fn(&Array) -> Array;
    let ways: [(&str, Count); 4] = [
        ("bincount", |x| x.bincount(256)),
        ("histogram", |x| x.astype(F32).histogram(256, 0.0..256.0).0),
        ("at add", |x| Array::zeros(I32.array_type([256])).at(ix![x]).out_sharding(p![]).add(1)),
        ("one hot", |x| x.one_hot(256).astype(I32).sum([0, 1])),
    ];
    for mesh in [Mesh::auto([("y", 2), ("x", 4)])?, Mesh::new([("y", 2), ("x", 4)])?] {
        let image = image.put(&mesh, p!["y", "x"]);
        for (name, f) in ways {
            let f = jit(f);
            assert_eq!(f.call(&image)?.astype(I32).to_vec::<i32>()?, want, "{name} on {mesh}");
            let lowered = f.lower(&image)?;
            let all = lowered.collectives();
            assert!(all.bytes() <= 1792, "{name} on {mesh}\n{all}");
        }
    }
    Ok(())
}

/// The operators and functions of the table of differences from NumPy in the book.
#[test]
fn arithmetic_is_as_documented() -> Result<()> {
    let a = Array::from([-3, -1, 1, 7]);
    let f = Array::from([1.0f32, 2.0, 3.0, 4.0]);
    let ints = |x: Array| x.to_vec::<i32>();
    let floats = |x: Array| x.to_vec::<f32>();
    assert_eq!(ints(&a % 4)?, [-3, -1, 1, 3]);
    assert_eq!(ints(a.remainder(4))?, [1, 3, 1, 3]);
    assert_eq!(ints(&a / 2)?, [-1, 0, 0, 3]);
    assert_eq!(ints(a.floor_divide(2))?, [-2, -1, 0, 3]);
    assert_eq!(floats(Array::from([-3.0f32, -1.5]) % 2.0)?, [-1.0, -1.5]);
    let halves = Array::from([0.5f32, 1.5, 2.5]);
    assert_eq!(floats(halves.round())?, [1.0, 2.0, 3.0]);
    assert_eq!(floats(halves.rint())?, [0.0, 2.0, 2.0]);
    // integers wrap around; conversions saturate, and NaN becomes 0
    assert_eq!(ints(Array::from([i32::MAX]) + 1)?, [i32::MIN]);
    let huge = Array::from([f32::NAN, 1e20, -1e20]).astype(I32);
    assert_eq!(ints(huge)?, [0, i32::MAX, i32::MIN]);
    // sums count, and means are floats
    assert_eq!(a.gt(0).sum(..).item::<i32>()?, 2);
    assert_eq!(a.gt(0).mean(..).item::<f32>()?, 0.5);
    assert_eq!(a.mean(..).item::<f32>()?, 1.0);
    assert_eq!(a.dot(&a).item::<i32>()?, 60);
    assert_eq!(a.argmax(0).item::<i32>()?, 3);
    assert_eq!(type_of(Array::ones([2, 3, 4]).matmul(Array::ones([4, 5]))), "float32[2,3,5]");
    for (name, rejected, help) in [
        ("sin of integers", a.sin(), ".astype("),
        ("sqrt of integers", a.sqrt(), ".astype("),
        ("integers * 0.5", &a * 0.5, ".astype("),
        ("integers + floats", &a + &f, ".astype(F32)"),
        ("int32 + int64", &a + Array::from([1i64, 2, 3, 4]), ".astype(I64)"),
        ("float32 + float64", Array::from([1.0f32]) + Array::from([1.0f64]), ".astype(F64)"),
        ("bool * float", a.gt(0) * &f, ".astype(F32)"),
        ("an index out of range", a.slice(ix![9]), "-4"),
    ] {
        let text = rejected.ty().map(drop).expect_err(name).unquoted();
        assert!(text.contains(help), "{name}: {text}");
    }
    Ok(())
}
