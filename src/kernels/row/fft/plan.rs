//! The plans of transforms: factors, permutations and twiddle factors of a length.
//!
//! All plans are of forward transforms. An inverse one is a forward one whose real and imaginary
//! parts are swapped before and after.

use super::butterfly::{self, MAX_PRIME, PassEnds, times};
use super::lanes::{FirstElements, LaneSource, swapped};
use super::vector::{ComplexParts, FftFloat, LaneVector};
use crate::kernels::gather::prefetch;

/// The minimum length that is split into the columns and the rows of a grid.
const MIN_GRID_ELEMENTS: usize = 256;

/// The maximum length of which no side is split again.
const MAX_FLAT_GRID_ELEMENTS: usize = 4096;

/// The maximum depth of grids in grids.
const GRID_DEPTH: usize = 2;

/// The multiple to which rows of twiddle factors are filled: the maximum number of lanes.
pub(super) const TWIDDLE_ALIGNMENT: usize = 16;

/// Returns the cosine and the sine of −2πk/n.
///
/// Multiples of a quarter turn are exact, so that real results are exactly real.
pub(super) fn turn(k: usize, n: usize) -> [f64; 2] {
    let k = k % n;
    match (4 * k).is_multiple_of(n).then(|| 4 * k / n) {
        Some(0) => [1.0, 0.0],
        Some(1) => [0.0, -1.0],
        Some(2) => [-1.0, 0.0],
        Some(_) => [0.0, 1.0],
        None => {
            let (sin, cos) = libm::sincos(std::f64::consts::TAU * k as f64 / n as f64);
            [cos, -sin]
        }
    }
}

/// Returns [`turn`], rounded.
pub(super) fn turn_of<T: FftFloat>(k: usize, n: usize) -> [T; 2] {
    turn(k, n).map(T::nearest)
}

/// A mixed-radix transform by decimation in time.
pub(super) struct MixedRadix<T> {
    /// The length.
    pub(super) n: usize,
    /// The radix of each pass, in the order of passes.
    pub(super) radices: Vec<usize>,
    /// The position of each element before the first pass.
    pub(super) places: Vec<u32>,
    /// The element in each position before the first pass.
    pub(super) sources: Vec<u32>,
    /// The twiddle factors of all passes, in the order of their use.
    pub(super) twiddles: Vec<T>,
    /// The cosines and sines of multiples of 1/r turns of each odd radix r.
    pub(super) roots: Vec<T>,
}

/// Returns the radices of a length; `None` if it has a prime factor above `MAX_PRIME`.
fn radices(mut n: usize) -> Option<Vec<usize>> {
    let mut odd = Vec::new();
    for p in (3..=MAX_PRIME).step_by(2) {
        while n.is_multiple_of(p) {
            odd.push(p);
            n /= p;
        }
    }
    if !n.is_power_of_two() {
        return None;
    }
    let mut bits = n.ilog2();
    while bits > 0 {
        let some = match bits {
            1 => 1,
            2 | 4 => 2,
            _ => 3,
        };
        odd.push(1 << some);
        bits -= some;
    }
    odd.reverse();
    Some(odd)
}

/// Returns the lengths of a column and of a row of the grid of a length without great factors.
/// Returns `None` if it is not transformed as a grid.
fn sides(n: usize) -> Option<[usize; 2]> {
    let divisor = (8..=n.isqrt()).rev().find(|d| n.is_multiple_of(*d));
    divisor.filter(|_| n >= MIN_GRID_ELEMENTS).map(|rows| [rows, n / rows])
}

/// Returns the lengths of a column and of a row of the grid of a length.
/// Returns `None` if it is not transformed as a grid.
pub(super) fn grid_sides(n: usize) -> Option<[usize; 2]> {
    radices(n).and_then(|_| sides(n))
}

impl<T: FftFloat> MixedRadix<T> {
    fn new(n: usize, radices: Vec<usize>) -> MixedRadix<T> {
        let place = |mut k: usize| {
            let (mut size, mut at) = (n, 0);
            for r in radices.iter().rev() {
                size /= r;
                at += k % r * size;
                k /= r;
            }
            at as u32
        };
        let places: Vec<u32> = (0..n).map(place).collect();
        let mut sources = vec![0; n];
        (0..n).for_each(|k| sources[places[k] as usize] = k as u32);
        let (mut twiddles, mut roots, mut m) = (Vec::new(), Vec::new(), 1);
        for r in &radices {
            let factors = (1..m).flat_map(|j| (1..*r).map(move |i| i * j));
            twiddles.extend(factors.flat_map(|k| turn_of::<T>(k, m * r)));
            if r % 2 == 1 {
                roots.extend((0..*r).flat_map(|k| turn(k, *r)).map(T::nearest));
            }
            m *= r;
        }
        MixedRadix { n, radices, places, sources, twiddles, roots }
    }
    /// Transforms elements in place, which begin in their places and end in order.
    ///
    /// # Safety
    /// The processor has the features of `V`; `w` points to `n` elements.
    #[inline(always)]
    pub(super) unsafe fn passes<V: LaneVector<T = T>>(&self, w: *mut ComplexParts<V>) {
        for pass in butterfly::passes(&self.radices, &self.twiddles, &self.roots) {
            // SAFETY: there are `n` elements, and the processor has the features (caller contract).
            unsafe { V::pass(&pass, self.n, w) }
        }
    }
    /// Transforms elements that the first pass reads and the last pass writes.
    ///
    /// Without `last`, results are in `w`.
    ///
    /// # Safety
    /// The processor has the features of `V`; `first` has `n` elements, and `w` points to as many.
    #[inline(always)]
    pub(super) unsafe fn passes_between<V: LaneVector<T = T>>(
        &self,
        first: &FirstElements<V>,
        w: *mut ComplexParts<V>,
        last: Option<&TwiddledGrid<'_, V>>,
    ) {
        let end = self.radices.len() - 1;
        // SAFETY: there are `n` elements and places, and the processor has the features (caller
        // contract).
        unsafe {
            if V::LANES == 1 {
                // fewer kinds of passes, for small modules of WebAssembly
                for (k, place) in self.places.iter().enumerate() {
                    let p = first.base.offset(k as isize * first.step);
                    *w.add(*place as usize) = [V::load(p), V::load(p.add(1))];
                }
                V::passes(self, w);
                if let Some(to) = last {
                    (0..self.n).for_each(|k| to.write(k, *w.add(k)));
                }
                return;
            }
            for (k, pass) in butterfly::passes(&self.radices, &self.twiddles, &self.roots).enumerate() {
                match last {
                    _ if k == 0 => pass.run::<V>(self.n, &FirstPass { first, sources: &self.sources, w }),
                    Some(to) if k == end => pass.run::<V>(self.n, &LastPass { w, to }),
                    _ => V::pass(&pass, self.n, w),
                }
            }
            if let (0, Some(to)) = (end, last) {
                (0..self.n).for_each(|k| to.write(k, *w.add(k)));
            }
        }
    }
}

/// The ends of a first pass, which puts elements into their places.
struct FirstPass<'a, V: LaneVector> {
    first: &'a FirstElements<V>,
    /// The element of each place.
    sources: &'a [u32],
    w: *mut ComplexParts<V>,
}
impl<V: LaneVector> PassEnds<V> for FirstPass<'_, V> {
    #[inline(always)]
    unsafe fn read(&self, at: usize) -> ComplexParts<V> {
        let FirstElements { base, step, ahead, pairs, swap } = *self.first;
        debug_assert!(at < self.sources.len());
        // SAFETY: the place exists (caller contract), and its element does.
        unsafe {
            let p = base.offset(*self.sources.get_unchecked(at) as isize * step);
            let z = [V::load(p), V::load(p.add(V::LANES))];
            if !pairs {
                return z;
            }
            prefetch(p.wrapping_offset(ahead).cast(), 2 * size_of::<V>());
            swapped(V::split(z), swap)
        }
    }
    #[inline(always)]
    unsafe fn write(&self, at: usize, z: ComplexParts<V>) {
        // SAFETY: the place exists (caller contract).
        unsafe { *self.w.add(at) = z }
    }
}

/// Where a column of a grid goes, times its twiddle factors.
pub(super) struct TwiddledGrid<'a, V: LaneVector> {
    grid: &'a GridPlan<V::T>,
    /// The index of the column.
    column: usize,
    /// The address of the first element.
    to: *mut ComplexParts<V>,
}
impl<V: LaneVector> TwiddledGrid<'_, V> {
    /// Writes element `at` of the column.
    ///
    /// # Safety
    /// There is such an element.
    #[inline(always)]
    unsafe fn write(&self, at: usize, z: ComplexParts<V>) {
        let (grid, stride) = (self.grid, self.grid.stride());
        // SAFETY: the element exists (caller contract), and each has a twiddle factor.
        unsafe {
            debug_assert!(at < grid.column.n && self.column < grid.row.n);
            let t = grid.twiddles.as_ptr().add(at * grid.twiddle_stride + self.column);
            *self.to.add(at * stride) = times(z, [*t, *t.add(grid.imaginary())]);
        }
    }
}

/// The ends of the last pass of a column of a grid.
struct LastPass<'a, V: LaneVector> {
    w: *const ComplexParts<V>,
    to: &'a TwiddledGrid<'a, V>,
}
impl<V: LaneVector> PassEnds<V> for LastPass<'_, V> {
    #[inline(always)]
    unsafe fn read(&self, at: usize) -> ComplexParts<V> {
        // SAFETY: the place exists (caller contract).
        unsafe { *self.w.add(at) }
    }
    #[inline(always)]
    unsafe fn write(&self, at: usize, z: ComplexParts<V>) {
        // SAFETY: the element exists (caller contract).
        unsafe { self.to.write(at, z) }
    }
}

/// The transform of one length.
pub(super) struct FftPlan<T> {
    /// The length.
    pub(super) n: usize,
    /// The algorithm.
    pub(super) method: FftMethod<T>,
    /// Where each operand is in vectors of transforms side by side; empty if they are in order.
    pub(super) spread: Vec<u32>,
    /// Where each result is when transforms end that run side by side; empty if they are in order.
    pub(super) order: Vec<u32>,
}

/// The algorithm of a length.
pub(super) enum FftMethod<T> {
    /// Pass after pass over all elements.
    Direct(MixedRadix<T>),
    /// The columns and then the rows of a grid.
    Grid(Box<GridPlan<T>>),
    /// Bluestein's algorithm.
    Chirp(Box<ChirpPlan<T>>),
}

/// The four-step algorithm: a row-major grid whose columns are transformed, then its rows.
///
/// Each element is multiplied by a twiddle factor in between. The transformed rows are the columns
/// of the result.
pub(super) struct GridPlan<T> {
    /// The transform of a column.
    pub(super) column: FftPlan<T>,
    /// The transform of a row.
    pub(super) row: FftPlan<T>,
    /// The twiddle factors, row by row: the real parts, then the imaginary parts.
    pub(super) twiddles: Vec<T>,
    /// The distance from a row of twiddle factors to the next.
    pub(super) twiddle_stride: usize,
}

impl<T> GridPlan<T> {
    /// Returns the distance from a row of vectors to the next.
    ///
    /// It is odd: at even distances, too many elements of a column share the sets of a cache.
    pub(super) fn stride(&self) -> usize {
        self.row.n | 1
    }
    /// Returns the distance from the real parts of twiddle factors to the imaginary parts.
    pub(super) fn imaginary(&self) -> usize {
        self.column.n * self.twiddle_stride
    }
}

/// Bluestein's algorithm: a transform as a convolution, by transforms of a greater length.
pub(super) struct ChirpPlan<T> {
    /// The transform of the greater length.
    pub(super) plan: FftPlan<T>,
    /// The factors e^(−πi·k²/n) of operands and results.
    pub(super) chirp: Vec<[T; 2]>,
    /// The transform of the conjugate factors, divided by the greater length.
    pub(super) filter: Vec<[T; 2]>,
}

impl<T: FftFloat> FftPlan<T> {
    /// Creates the plan; `transform` computes transforms of other lengths in float64.
    pub(super) fn new(n: usize, transform: fn(Vec<[f64; 2]>) -> Vec<[f64; 2]>) -> FftPlan<T> {
        match radices(n) {
            Some(factors) => FftPlan::of_factors(n, factors, 0),
            None => FftPlan::chirp(n, transform),
        }
    }
    fn in_order(n: usize, method: FftMethod<T>) -> FftPlan<T> {
        FftPlan { n, method, spread: Vec::new(), order: Vec::new() }
    }
    fn of_factors(n: usize, factors: Vec<usize>, depth: usize) -> FftPlan<T> {
        let sides = sides(n).filter(|_| depth < GRID_DEPTH);
        let Some([rows, columns]) = sides else {
            return FftPlan::in_order(n, FftMethod::Direct(MixedRadix::new(n, factors)));
        };
        let twiddle_stride = columns.next_multiple_of(TWIDDLE_ALIGNMENT);
        let mut twiddles = vec![T::default(); 2 * rows * twiddle_stride];
        let (re, im) = twiddles.split_at_mut(rows * twiddle_stride);
        for k in 0..rows {
            for j in 0..columns {
                let at = k * twiddle_stride + j;
                [re[at], im[at]] = turn_of(k * j, n);
            }
        }
        let depth = if n <= MAX_FLAT_GRID_ELEMENTS { GRID_DEPTH } else { depth + 1 };
        let side = |n| FftPlan::of_factors(n, radices(n).unwrap_or_default(), depth);
        let grid = GridPlan { column: side(rows), row: side(columns), twiddles, twiddle_stride };
        let stride = grid.stride();
        let mut plan = FftPlan::in_order(n, FftMethod::Grid(Box::new(grid)));
        if plan.runs_side_by_side() {
            plan.spread = (0..n).map(|k| (k / columns * stride + k % columns) as u32).collect();
            plan.order = (0..n).map(|k| (k % rows * stride + k / rows) as u32).collect();
        }
        plan
    }
    fn chirp(n: usize, transform: fn(Vec<[f64; 2]>) -> Vec<[f64; 2]>) -> FftPlan<T> {
        let enough = |k: usize| k * (2 * n - 1).div_ceil(k).next_power_of_two();
        let m = [1, 3, 5, 9, 15].map(enough).into_iter().min().unwrap_or(n);
        let square = |k: usize| (k as u128 * k as u128 % (2 * n as u128)) as usize;
        let chirp: Vec<[f64; 2]> = (0..n).map(|k| turn(square(k), 2 * n)).collect();
        let mut filter = vec![[0.0; 2]; m];
        for (k, [re, im]) in chirp.iter().enumerate() {
            filter[k] = [re / m as f64, -im / m as f64];
            filter[(m - k) % m] = filter[k];
        }
        let rounded = |list: Vec<[f64; 2]>| list.iter().map(|z| z.map(T::nearest)).collect();
        let plan = FftPlan::of_factors(m, radices(m).unwrap_or_default(), 0);
        let chirp = ChirpPlan { plan, chirp: rounded(chirp), filter: rounded(transform(filter)) };
        FftPlan::in_order(n, FftMethod::Chirp(Box::new(chirp)))
    }
    /// Returns Bluestein's algorithm, if that is the algorithm.
    pub(super) fn as_chirp(&self) -> Option<&ChirpPlan<T>> {
        match &self.method {
            FftMethod::Chirp(chirp) => Some(chirp),
            _ => None,
        }
    }
    /// Returns the grid, if the algorithm has one.
    pub(super) fn grid(&self) -> Option<&GridPlan<T>> {
        match &self.method {
            FftMethod::Grid(grid) => Some(grid),
            FftMethod::Chirp(chirp) => chirp.plan.grid(),
            FftMethod::Direct(_) => None,
        }
    }
    /// Returns the number of vectors of transforms side by side.
    pub(super) fn num_vectors(&self) -> usize {
        match &self.method {
            FftMethod::Direct(_) => self.n,
            FftMethod::Grid(grid) => grid.column.n * grid.stride(),
            FftMethod::Chirp(chirp) => chirp.plan.num_vectors(),
        }
    }
    /// Returns the number of vectors of two columns, or rows, of the grid.
    pub(super) fn column_vectors(&self) -> usize {
        self.grid().map_or(0, |grid| 2 * grid.column.n.max(grid.row.n))
    }
    /// Returns true if transforms can run side by side, that is if no side of a grid is a grid.
    pub(super) fn runs_side_by_side(&self) -> bool {
        let direct = |plan: &FftPlan<T>| matches!(plan.method, FftMethod::Direct(_));
        self.grid().is_none_or(|grid| direct(&grid.column) && direct(&grid.row))
    }
    /// Runs a transform in each lane. The results are in `w` in the order of the plan.
    ///
    /// # Safety
    /// The processor has the features of `V`. `w` has space for the vectors of the grid, or for `n`
    /// elements, `column` has space for two columns of the grid, and `x` has `n` elements.
    #[inline(always)]
    pub(super) unsafe fn side_by_side<V: LaneVector<T = T>>(
        &self,
        x: &LaneSource<V>,
        w: *mut ComplexParts<V>,
        column: *mut ComplexParts<V>,
    ) {
        // SAFETY: elements and places are below `n` (invariants of the plans and of the caller).
        unsafe {
            match &self.method {
                FftMethod::Direct(direct) => match x.first_elements(0, 1) {
                    Some(first) if direct.n > 1 => V::passes_between(direct, &first, w, None),
                    _ => {
                        V::load_elements(x, [0, 1, direct.n], &direct.places, w);
                        V::passes(direct, w);
                    }
                },
                FftMethod::Grid(grid) => {
                    let (FftMethod::Direct(a), FftMethod::Direct(b)) =
                        (&grid.column.method, &grid.row.method)
                    else {
                        return;
                    };
                    let step = if x.is_in_vectors() { grid.stride() } else { b.n };
                    for j in 0..b.n {
                        let first = x.first_elements(j, step).unwrap_or_else(|| {
                            let elements = column.add(a.n);
                            V::load_elements(x, [j, b.n, a.n], &[], elements);
                            FirstElements::in_vectors(elements, 1)
                        });
                        let to = TwiddledGrid { grid, column: j, to: w.add(b.places[j] as usize) };
                        V::passes_between(a, &first, column, Some(&to));
                    }
                    for k in 0..a.n {
                        V::passes(b, w.add(k * grid.stride()));
                    }
                }
                FftMethod::Chirp(_) => {}
            }
        }
    }
}
