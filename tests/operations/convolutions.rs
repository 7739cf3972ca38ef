//! Convolutions and their gradients against their definition, with every sharding and layout.

use atmesh::prelude::*;
use atmesh::{ConvOptions, ErrorKind, vjp};

/// A small pseudo-random generator.
struct Rng(u64);
impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// A convolution of `[batch, features, a, b]`, with its options.
#[derive(Debug)]
struct Case {
    x: [usize; 4],
    w: [usize; 4],
    strides: [usize; 2],
    padding: [(i64, i64); 2],
    dilation: [usize; 2],
    base: [usize; 2],
    groups: usize,
}

impl Case {
    fn random(r: &mut Rng) -> Case {
        let groups = 1 + r.below(2);
        let (c, o) = (groups * (1 + r.below(2)), groups * (1 + r.below(2)));
        let mut two = |most: usize, from: usize| [from + r.below(most), from + r.below(most)];
        let (sizes, taps) = (two(7, 2), two(4, 1));
        let (strides, dilation, base) = (two(3, 1), two(3, 1), two(3, 1));
        let mut pads = || {
            let [a, b] = two(6, 0);
            (a as i64 - 2, b as i64 - 2)
        };
        let padding = [pads(), pads()];
        Case {
            x: [2, c, sizes[0], sizes[1]],
            w: [o, c / groups, taps[0], taps[1]],
            strides,
            padding,
            dilation,
            base,
            groups,
        }
    }
    fn options(&self) -> ConvOptions {
        ConvOptions::default()
            .strides(self.strides)
            .padding(self.padding)
            .dilation(self.dilation)
            .base_dilation(self.base)
            .groups(self.groups)
    }
    /// Returns the size of a spatial dimension of the result; `None` if negative padding removes
    /// more than the size.
    fn size(&self, k: usize) -> Option<usize> {
        let (n, taps) = (self.x[2 + k] as i64, self.w[2 + k] as i64);
        let padded = (n - 1) * self.base[k] as i64 + 1 + self.padding[k].0 + self.padding[k].1;
        let last = padded - ((taps - 1) * self.dilation[k] as i64 + 1);
        (padded >= 0).then(|| if last < 0 { 0 } else { last as usize / self.strides[k] + 1 })
    }
    /// Calls `term` with the positions in x, in w and in the result of each product.
    fn each_term(&self, mut term: impl FnMut(usize, usize, usize)) -> Option<usize> {
        let ([n, c, a, b], [o, i, s, t]) = (self.x, self.w);
        let (ya, yb) = (self.size(0)?, self.size(1)?);
        let mut out = 0;
        for (bn, bo) in (0..n).flat_map(|n| (0..o).map(move |o| (n, o))) {
            for (ja, jb) in (0..ya).flat_map(|a| (0..yb).map(move |b| (a, b))) {
                for ci in 0..i {
                    for (ta, tb) in (0..s).flat_map(|a| (0..t).map(move |b| (a, b))) {
                        let at = |k: usize, j: usize, t: usize, n: usize| {
                            let p = (self.strides[k] * j + self.dilation[k] * t) as i64 - self.padding[k].0;
                            let (q, base) = (p / self.base[k] as i64, self.base[k] as i64);
                            (p >= 0 && p % base == 0 && q < n as i64).then_some(q as usize)
                        };
                        let (Some(qa), Some(qb)) = (at(0, ja, ta, a), at(1, jb, tb, b)) else { continue };
                        let feature = bo / (o / self.groups) * i + ci;
                        let at = ((bn * c + feature) * a + qa) * b + qb;
                        term(at, ((bo * i + ci) * s + ta) * t + tb, out);
                    }
                }
                out += 1;
            }
        }
        Some(out)
    }
    /// Computes the convolution by its definition.
    fn plain(&self, x: &[f64], w: &[f64]) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.each_term(|_, _, _| ())?];
        self.each_term(|i, j, k| sums[k] += x[i] * w[j]);
        Some(sums)
    }
    /// Computes both gradients by their definition, from the cotangent of the result.
    fn plain_gradients(&self, x: &[f64], w: &[f64], ct: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        self.each_term(|i, j, k| {
            dx[i] += ct[k] * w[j];
            dw[j] += ct[k] * x[i];
        });
        (dx, dw)
    }
}

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 29 + 7) % 97) as f64 / 40.0 - 1.2).collect()
}

#[test]
fn convolutions_are_what_the_definition_says_on_every_sharding() -> Result<()> {
    let mut r = Rng(5);
    let meshes = [(1, 1), (2, 1), (2, 2), (5, 1), (4, 2)];
    let mut accepted = 0;
    for k in 0..60 {
        let case = Case::random(&mut r);
        let (xs, ws) = (numbers(case.x.iter().product(), k), numbers(case.w.iter().product(), k + 1));
        let (x, w) = (Array::from(xs.clone()).reshape(case.x), Array::from(ws.clone()).reshape(case.w));
        let alone = x.conv_with(&w, case.options());
        let Some(want) = case.plain(&xs, &ws) else {
            assert_eq!(alone.ty().expect_err("it leaves out too much").kind(), ErrorKind::Shape);
            continue;
        };
        accepted += 1;
        let got = alone.to_vec::<f64>()?;
        assert_eq!(got.len(), want.len(), "{case:?}");
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-9, "{case:?}: {got} for {want}");
        }
        let ct = Array::from(numbers(want.len(), k + 2)).reshape(alone.shape()?);
        let pull = |x: &Array, w: &Array, ct: &Array| {
            let (_, back) = vjp((x, w), |(x, w): (Array, Array)| x.conv_with(&w, case.options()));
            back.call(ct)
        };
        let slopes = jit(|x: &Array, w: &Array, ct: &Array| pull(x, w, ct));
        let whole: (Array, Array) = slopes.call((&x, &w, &ct))?;
        let (a, b) = meshes[k % meshes.len()];
        let mesh = Mesh::auto([("X", a), ("Y", b)])?;
        for spec in [p![_, _, "X", "Y"], p!["X", _, _, "Y"], p![_, "X", "Y"]] {
            for engine in [Lockstep, Threads] {
                let x = x.put(&mesh, spec);
                let f = jit(|x: &Array, w: &Array| x.conv_with(w, case.options())).engine(engine);
                let split: Array = f.call((&x, &w))?;
                // Sums over features are split into partial sums.
                let close = |got: &Array, want: &Array, exact: bool| -> Result<()> {
                    for (got, want) in got.to_vec::<f64>()?.iter().zip(&want.to_vec::<f64>()?) {
                        let same = if exact { got == want } else { (got - want).abs() < 1e-9 };
                        assert!(same, "{case:?} {spec} {engine:?}: {got} for {want}");
                    }
                    Ok(())
                };
                close(&split, &alone, spec != p![_, "X", "Y"])?;
                let back: (Array, Array) = jit(|x: &Array, w: &Array, ct: &Array| pull(x, w, ct))
                    .engine(engine)
                    .call((&x, &w, &ct))?;
                close(&back.0, &whole.0, false)?;
                close(&back.1, &whole.1, false)?;
            }
        }
        // The transposes satisfy ⟨ct, conv(x)⟩ = ⟨back(ct), x⟩, for the filter, too.
        let dot = |a: &Array, b: &Array| -> Result<f64> { (a * b).sum(..).item::<f64>() };
        let want = dot(&ct, &alone)?;
        assert!(
            (dot(&whole.0, &x)? - want).abs() < 1e-8 && (dot(&whole.1, &w)? - want).abs() < 1e-8,
            "{case:?}"
        );
    }
    assert!(accepted > 40, "{accepted}");
    Ok(())
}

/// Features fill vectors of every level, with and without a rest. The sums are exact, so that they
/// do not depend on their order.
#[test]
fn wide_convolutions_of_each_layout_are_exact() -> Result<()> {
    let mut r = Rng(9);
    for k in 0..12 {
        let (groups, c, o) =
            [(1, 3, 64), (1, 17, 16), (2, 8, 34), (1, 33, 5), (12, 12, 12), (12, 12, 24)][k % 6];
        let mut two = |most: usize, from: usize| [from + r.below(most), from + r.below(most)];
        let (sizes, taps, strides, dilation) = (two(14, 6), two(3, 1), two(3, 1), two(2, 1));
        let padding = [0, 1].map(|_| two(3, 0)).map(|[a, b]| (a as i64, b as i64));
        let (x, w) = ([2, c, sizes[0], sizes[1]], [o, c / groups, taps[0], taps[1]]);
        let case = Case { x, w, strides, padding, dilation, base: [1, 1], groups };
        let whole = |n: usize, m: usize| -> Vec<f64> { (0..n).map(|i| (i * m % 7) as f64 - 3.0).collect() };
        let (xs, ws) = (whole(x.iter().product(), 37), whole(w.iter().product(), 11));
        let want = case.plain(&xs, &ws).expect("padding is not negative");
        let cts = whole(want.len(), 5);
        let (dx, dw) = case.plain_gradients(&xs, &ws, &cts);
        let of =
            |v: &[f64], shape: &[usize], dtype: DType| Array::from(v.to_vec()).reshape(shape).astype(dtype);
        let (odd, rest) = (k % 2 == 1, [F64, BF16, F64][k / 2 % 3]);
        for (dtype, last) in [(F32, odd), (rest, !odd)] {
            // of bfloat16, sums are rounded once
            let round = |v: &[f64]| match dtype {
                BF16 => Array::from(v.to_vec()).astype(F32).astype(BF16).astype(F64).to_vec::<f64>(),
                _ => Ok(v.to_vec()),
            };
            let (order, filter) =
                if last { ([0, 2, 3, 1], [2, 3, 1, 0]) } else { ([0, 1, 2, 3], [0, 1, 2, 3]) };
            let options = if last { case.options().layout("NHWC", "HWIO", "NHWC") } else { case.options() };
            let (x, w) = (of(&xs, &x, dtype).transpose(order), of(&ws, &w, dtype).transpose(filter));
            let conv = |x: &Array, w: &Array| x.conv_with(w, options.clone());
            let back = |y: Array| if last { y.moveaxis(-1, 1) } else { y }.astype(F64).to_vec::<f64>();
            let y = conv(&x, &w);
            let ct = of(&cts, &[2, o, case.size(0).unwrap(), case.size(1).unwrap()], dtype).transpose(order);
            assert_eq!(back(y.clone())?, round(&want)?, "{case:?} {dtype} {last}");
            let pull = |x: &Array, w: &Array, ct: &Array| {
                vjp((x, w), |(x, w): (Array, Array)| conv(&x, &w)).1.call(ct)
            };
            let (a, b): (Array, Array) = jit(pull).call((&x, &w, &ct))?;
            let b = if last { b.transpose([3, 2, 0, 1]) } else { b };
            assert_eq!(back(a)?, round(&dx)?, "{case:?} {dtype} {last}");
            assert_eq!(b.astype(F64).to_vec::<f64>()?, round(&dw)?, "{case:?} {dtype} {last}");
            let mapped = vmap(&x, |x: Array| conv(&x.expand_dims(0), &w).squeeze(0));
            assert_eq!(back(mapped)?, round(&want)?, "{case:?} {dtype} {last}");
            let mesh = Mesh::auto([("X", 2)])?;
            let split = jit(conv).call((x.put(&mesh, p!["X"]), &w))?;
            assert_eq!(back(split)?, round(&want)?, "{case:?} {dtype} {last}");
        }
    }
    Ok(())
}
