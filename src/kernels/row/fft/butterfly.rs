//! The passes of mixed-radix transforms. Each product is rounded before it is added.

use super::vector::{ComplexParts, FftFloat, LaneVector};

/// The maximum prime factor of a length whose transforms are computed from its factors.
/// Other lengths use Bluestein's algorithm.
pub(super) const MAX_PRIME: usize = 61;

#[inline(always)]
pub(super) fn add<V: LaneVector>(x: ComplexParts<V>, y: ComplexParts<V>) -> ComplexParts<V> {
    [x[0].add(y[0]), x[1].add(y[1])]
}
#[inline(always)]
pub(super) fn sub<V: LaneVector>(x: ComplexParts<V>, y: ComplexParts<V>) -> ComplexParts<V> {
    [x[0].sub(y[0]), x[1].sub(y[1])]
}
/// Returns the complex product.
#[inline(always)]
pub(super) fn product<V: LaneVector>(x: ComplexParts<V>, w: ComplexParts<V>) -> ComplexParts<V> {
    [x[0].mul(w[0]).sub(x[1].mul(w[1])), x[0].mul(w[1]).add(x[1].mul(w[0]))]
}
/// Returns the product with one complex number.
#[inline(always)]
pub(super) fn times<V: LaneVector>(x: ComplexParts<V>, [re, im]: [V::T; 2]) -> ComplexParts<V> {
    product(x, [x[0].all(re), x[0].all(im)])
}
/// Returns the product with one real number.
#[inline(always)]
pub(super) fn scaled<V: LaneVector>(x: ComplexParts<V>, by: V::T) -> ComplexParts<V> {
    let by = x[0].all(by);
    [x[0].mul(by), x[1].mul(by)]
}
/// Returns `x + i·y`.
#[inline(always)]
fn add_turned<V: LaneVector>(x: ComplexParts<V>, y: ComplexParts<V>) -> ComplexParts<V> {
    [x[0].sub(y[1]), x[1].add(y[0])]
}
/// Returns `x − i·y`.
#[inline(always)]
fn sub_turned<V: LaneVector>(x: ComplexParts<V>, y: ComplexParts<V>) -> ComplexParts<V> {
    [x[0].add(y[1]), x[1].sub(y[0])]
}

#[inline(always)]
fn radix2<V: LaneVector>([a, b]: [ComplexParts<V>; 2]) -> [ComplexParts<V>; 2] {
    [add(a, b), sub(a, b)]
}

#[inline(always)]
fn radix4<V: LaneVector>([a, b, c, d]: [ComplexParts<V>; 4]) -> [ComplexParts<V>; 4] {
    let (s, t, u, v) = (add(a, c), sub(a, c), add(b, d), sub(b, d));
    [add(s, u), sub_turned(t, v), sub(s, u), add_turned(t, v)]
}

#[inline(always)]
fn radix8<V: LaneVector>(x: [ComplexParts<V>; 8]) -> [ComplexParts<V>; 8] {
    let e = radix4([x[0], x[2], x[4], x[6]]);
    let o = radix4([x[1], x[3], x[5], x[7]]);
    let half = x[0][0].all(V::T::nearest(std::f64::consts::FRAC_1_SQRT_2));
    // the products with e^(−πi/4), and with −e^(−3πi/4)
    let o1 = [o[1][0].add(o[1][1]).mul(half), o[1][1].sub(o[1][0]).mul(half)];
    let o3 = [o[3][0].sub(o[3][1]).mul(half), o[3][0].add(o[3][1]).mul(half)];
    [
        add(e[0], o[0]),
        add(e[1], o1),
        sub_turned(e[2], o[2]),
        sub(e[3], o3),
        sub(e[0], o[0]),
        sub(e[1], o1),
        add_turned(e[2], o[2]),
        add(e[3], o3),
    ]
}

/// Transforms `P` elements by the definition, for an odd `P`; `H` is `P / 2`.
#[inline(always)]
fn odd<V: LaneVector, const P: usize, const H: usize>(
    x: [ComplexParts<V>; P],
    roots: &[V::T],
) -> [ComplexParts<V>; P] {
    let roots = &roots[..2 * P];
    let (mut sums, mut differences, mut y) = ([x[0]; H], [x[0]; H], x);
    for i in 0..H {
        sums[i] = add(x[i + 1], x[P - 1 - i]);
        differences[i] = sub(x[i + 1], x[P - 1 - i]);
        y[0] = add(y[0], sums[i]);
    }
    for k in 1..=H {
        let (mut even, mut odd) = (x[0], scaled(differences[0], roots[2 * k + 1]));
        for i in 0..H {
            let at = 2 * (k * (i + 1) % P);
            even = add(even, scaled(sums[i], roots[at]));
            if i > 0 {
                odd = add(odd, scaled(differences[i], roots[at + 1]));
            }
        }
        (y[k], y[P - k]) = (add_turned(even, odd), sub_turned(even, odd));
    }
    y
}

/// Transforms the elements by the definition, for any odd number of them.
#[inline(always)]
fn any_odd<V: LaneVector>(x: &mut [ComplexParts<V>], y: &mut [ComplexParts<V>], roots: &[V::T]) {
    let (p, h) = (x.len(), x.len() / 2);
    y[0] = x[0];
    for i in 1..=h {
        (x[i], x[p - i]) = (add(x[i], x[p - i]), sub(x[i], x[p - i]));
        y[0] = add(y[0], x[i]);
    }
    for k in 1..=h {
        let (mut even, mut odd, mut at) = (x[0], scaled(x[p - 1], roots[2 * k + 1]), k);
        for i in 1..=h {
            even = add(even, scaled(x[i], roots[2 * at]));
            if i > 1 {
                odd = add(odd, scaled(x[p - i], roots[2 * at + 1]));
            }
            at = if at + k >= p { at + k - p } else { at + k };
        }
        (y[k], y[p - k]) = (add_turned(even, odd), sub_turned(even, odd));
    }
}

/// Where a pass reads its elements and writes them.
pub(super) trait PassEnds<V: LaneVector> {
    /// Returns the element in place `at`.
    ///
    /// # Safety
    /// There is such an element.
    unsafe fn read(&self, at: usize) -> ComplexParts<V>;
    /// Writes the element in place `at`.
    ///
    /// # Safety
    /// There is such a place.
    unsafe fn write(&self, at: usize, z: ComplexParts<V>);
}

/// The ends of a pass in place.
pub(super) struct InPlace<V: LaneVector>(pub(super) *mut ComplexParts<V>);

impl<V: LaneVector> PassEnds<V> for InPlace<V> {
    #[inline(always)]
    unsafe fn read(&self, at: usize) -> ComplexParts<V> {
        // SAFETY: the place exists (caller contract).
        unsafe { *self.0.add(at) }
    }
    #[inline(always)]
    unsafe fn write(&self, at: usize, z: ComplexParts<V>) {
        // SAFETY: the place exists (caller contract).
        unsafe { *self.0.add(at) = z }
    }
}

/// A pass of a transform.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a, T> {
    radix: usize,
    /// The length of the transforms that become one.
    m: usize,
    twiddles: &'a [T],
    /// The roots of an odd radix.
    roots: &'a [T],
}

/// Runs a pass with a butterfly of `R` elements.
///
/// Each block of `R·m` elements has `R` transforms of length m, which become one.
macro_rules! pass {
    ($pass:ident, $n:ident, $ends:ident, $V:ident, $R:literal, $x:ident => $butterfly:expr) => {
        for block in (0..$n).step_by($pass.m * $R) {
            for j in 0..$pass.m {
                // SAFETY: places are below `n` (caller contract), and there are twiddle factors for
                // each j but 0.
                unsafe {
                    let mut $x = [$ends.read(block + j); $R];
                    for i in 1..$R {
                        $x[i] = $ends.read(block + j + i * $pass.m);
                    }
                    if j > 0 {
                        let t = $pass.twiddles.as_ptr().add(2 * (j - 1) * ($R - 1));
                        for i in 1..$R {
                            $x[i] = times::<$V>($x[i], [*t.add(2 * i - 2), *t.add(2 * i - 1)]);
                        }
                    }
                    let y = $butterfly;
                    for i in 0..$R {
                        $ends.write(block + j + i * $pass.m, y[i]);
                    }
                }
            }
        }
    };
}

impl<T: FftFloat> Pass<'_, T> {
    /// Runs the pass over `n` elements.
    ///
    /// # Safety
    /// There are places for `n` elements, and the processor has the features of `V`.
    #[inline(always)]
    pub(super) unsafe fn run<V: LaneVector<T = T>>(&self, n: usize, ends: &impl PassEnds<V>) {
        let roots = self.roots;
        match self.radix {
            2 => pass!(self, n, ends, V, 2, x => radix2(x)),
            3 => pass!(self, n, ends, V, 3, x => odd::<V, 3, 1>(x, roots)),
            4 => pass!(self, n, ends, V, 4, x => radix4(x)),
            5 => pass!(self, n, ends, V, 5, x => odd::<V, 5, 2>(x, roots)),
            7 => pass!(self, n, ends, V, 7, x => odd::<V, 7, 3>(x, roots)),
            8 => pass!(self, n, ends, V, 8, x => radix8(x)),
            // SAFETY: the caller upholds the contract of this function.
            _ => unsafe { V::pass_of_any_odd(self, n, ends) },
        }
    }
    /// Runs a pass of any odd radix.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    pub(super) unsafe fn run_any_odd<V: LaneVector<T = T>>(&self, n: usize, ends: &impl PassEnds<V>) {
        let Pass { radix: r, m, .. } = *self;
        // SAFETY: places are below `n` (caller contract).
        unsafe {
            let (mut x, mut y) = ([ends.read(0); MAX_PRIME], [ends.read(0); MAX_PRIME]);
            for block in (0..n).step_by(m * r) {
                let mut twiddles = self.twiddles.chunks_exact(2);
                for j in 0..m {
                    for (i, x) in x[..r].iter_mut().enumerate() {
                        *x = ends.read(block + j + i * m);
                    }
                    if j > 0 {
                        for (x, t) in x[1..r].iter_mut().zip(&mut twiddles) {
                            *x = times::<V>(*x, [t[0], t[1]]);
                        }
                    }
                    any_odd(&mut x[..r], &mut y[..r], self.roots);
                    for (i, y) in y[..r].iter().enumerate() {
                        ends.write(block + j + i * m, *y);
                    }
                }
            }
        }
    }
}

/// Iterates over the passes of a transform.
///
/// Twiddle factors and roots are those of all passes, in the order of their use.
pub(super) fn passes<'a, T: FftFloat>(
    radices: &'a [usize],
    mut twiddles: &'a [T],
    mut roots: &'a [T],
) -> impl Iterator<Item = Pass<'a, T>> {
    let mut m = 1;
    radices.iter().map(move |radix| {
        let pass = Pass { radix: *radix, m, twiddles, roots };
        twiddles = &twiddles[2 * (m - 1) * (radix - 1)..];
        roots = if radix % 2 == 1 { &roots[2 * radix..] } else { roots };
        m *= radix;
        pass
    })
}
