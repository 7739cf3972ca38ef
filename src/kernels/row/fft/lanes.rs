//! The operands and results of transforms side by side: exchanges between memory and vectors.

use super::PartsMemory;
use super::butterfly::{add, product, scaled, times};
use super::vector::{ComplexParts, FftFloat, LaneVector};
use crate::kernels::gather::prefetch;

/// The maximum number of lanes of a vector.
const MAX_LANES: usize = 16;

/// The elements `first`, `first + step` and so on: `[first, step, count]`.
pub(super) type ElementRun = [usize; 3];

/// The operand of transforms side by side.
#[derive(Clone, Copy)]
pub(super) struct LaneSource<V: LaneVector> {
    pub(super) memory: PartsMemory<V::T>,
    /// The number of transforms.
    pub(super) width: usize,
    /// True if the parts are swapped.
    pub(super) swap: bool,
    /// The elements as vectors, instead of in memory; null if they are in memory.
    pub(super) vectors: *const ComplexParts<V>,
}

/// The elements of a transform: two vectors each, at equal distances.
pub(super) struct FirstElements<V: LaneVector> {
    /// The address of the first element.
    pub(super) base: *const V::T,
    /// The distance from an element to the next, in floats.
    pub(super) step: isize,
    /// The distance to the elements of the next transforms, in floats; 0 if unknown.
    pub(super) ahead: isize,
    /// True if vectors have pairs of real and imaginary parts.
    pub(super) pairs: bool,
    /// True if the parts are swapped.
    pub(super) swap: bool,
}

impl<V: LaneVector> FirstElements<V> {
    /// Returns elements in vectors.
    pub(super) fn in_vectors(x: *const ComplexParts<V>, step: usize) -> FirstElements<V> {
        let step = (2 * V::LANES * step) as isize;
        FirstElements { base: x.cast(), step, ahead: 0, pairs: false, swap: false }
    }
}

/// The results of transforms side by side.
#[derive(Clone, Copy)]
pub(super) struct LaneTarget<T> {
    pub(super) memory: PartsMemory<T>,
    /// The number of transforms.
    pub(super) width: usize,
    /// The number of results of each transform.
    pub(super) count: usize,
    /// True if the parts are swapped.
    pub(super) swap: bool,
    pub(super) scale: T,
    /// The twiddle factors of the first result and lane; null if there are none.
    pub(super) twiddles: *const T,
    /// The distances to the twiddle factors of the next result, and to their imaginary parts.
    pub(super) twiddle_strides: [usize; 2],
    /// The factors of a real transform of even length, of which `w` has the packed one; else null.
    pub(super) turns: *const [T; 2],
}

#[inline(always)]
pub(super) fn swapped<V: LaneVector>(z: ComplexParts<V>, swap: bool) -> ComplexParts<V> {
    if swap { [z[1], z[0]] } else { z }
}

/// Returns entry `k` of a permutation; the empty one is the identity.
#[inline(always)]
pub(super) fn place(order: &[u32], k: usize) -> usize {
    if order.is_empty() { k } else { order[k] as usize }
}

impl<T: FftFloat> PartsMemory<T> {
    /// Returns the memory of contiguous complex numbers.
    pub(super) fn contiguous(p: *mut [T; 2]) -> PartsMemory<T> {
        PartsMemory { base: p.cast(), element: 2, lane: 0, part: 1, ahead: 0 }
    }
    /// Returns the memory from an element of a transform on.
    pub(super) fn at(self, element: usize, lane: usize) -> PartsMemory<T> {
        let offset = element as isize * self.element + lane as isize * self.lane;
        PartsMemory { base: self.base.wrapping_offset(offset), ..self }
    }
    /// Returns the address of an element.
    #[inline(always)]
    fn element_address(&self, i: usize) -> *mut T {
        self.base.wrapping_offset(i as isize * self.element)
    }
    /// Returns true if each vector is pairs of real and imaginary parts.
    #[inline(always)]
    fn has_pairs<V: LaneVector<T = T>>(&self, width: usize) -> bool {
        self.part == 1 && width == V::LANES && (self.lane == 2 || V::LANES == 1)
    }
    /// Returns true if each vector is contiguous.
    #[inline(always)]
    fn has_vectors<V: LaneVector<T = T>>(&self, width: usize) -> bool {
        width == V::LANES && (self.lane == 1 || V::LANES == 1)
    }
    /// Returns true if `count` elements of each lane are exchanged between registers.
    ///
    /// They are then contiguous, and fill registers, or those of several lanes do together.
    #[inline(always)]
    fn has_tiles<V: LaneVector<T = T>>(&self, width: usize, count: usize) -> bool {
        let fits = 2 * count >= V::LANES || count.is_power_of_two() && self.lane == 2 * count as isize;
        V::LANES > 1 && self.part == 1 && self.element == 2 && width == V::LANES && fits
    }
    /// Returns true if `count` real elements of each lane are exchanged between registers.
    #[inline(always)]
    fn has_real_tiles<V: LaneVector<T = T>>(&self, width: usize, count: usize) -> bool {
        let contiguous = self.part == 0 && self.element == 1;
        V::LANES > 1 && contiguous && width == V::LANES && count >= V::LANES
    }
    /// Returns the address of register `i` of the tile of `size` elements from `first` on.
    #[inline(always)]
    fn tile_part<V: LaneVector<T = T>>(&self, first: usize, size: usize, i: usize) -> *mut T {
        if 2 * size < V::LANES {
            return self.base.wrapping_add(i * V::LANES);
        }
        self.at(first, i).base
    }
}

/// The registers of a tile: `size` elements of all lanes fill the first `2 * size`.
type TileRegisters<V> = [V; MAX_LANES];

/// Joins the registers of a tile whose indices differ in the highest bit, or does the reverse.
///
/// This bit becomes the lowest bit of the position in a register, and the lowest bit of the index
/// was the highest bit of the position.
#[inline(always)]
fn tile_step<V: LaneVector, const JOIN: bool>(a: TileRegisters<V>, size: usize) -> TileRegisters<V> {
    let mut b = a;
    for i in 0..size {
        if JOIN {
            [b[2 * i], b[2 * i + 1]] = V::join([a[i], a[i + size]]);
        } else {
            [b[i], b[i + size]] = V::split([a[2 * i], a[2 * i + 1]]);
        }
    }
    b
}
/// Runs a step as often as a position in a register has bits.
#[inline(always)]
fn tile_steps<V: LaneVector, const JOIN: bool>(mut a: TileRegisters<V>, size: usize) -> TileRegisters<V> {
    // a loop would keep the tile in memory
    if V::LANES > 8 {
        a = tile_step::<V, JOIN>(a, size);
    }
    if V::LANES > 4 {
        a = tile_step::<V, JOIN>(a, size);
    }
    if V::LANES > 2 {
        a = tile_step::<V, JOIN>(a, size);
    }
    tile_step::<V, JOIN>(a, size)
}

impl<V: LaneVector> LaneSource<V> {
    /// Returns the operand in memory.
    pub(super) fn in_memory(memory: PartsMemory<V::T>, width: usize, swap: bool) -> LaneSource<V> {
        LaneSource { memory, width, swap, vectors: std::ptr::null() }
    }
    /// Returns the operand in vectors.
    pub(super) fn in_vectors(vectors: *const ComplexParts<V>) -> LaneSource<V> {
        let memory = PartsMemory::contiguous(std::ptr::null_mut());
        LaneSource { memory, width: V::LANES, swap: false, vectors }
    }
    /// Returns true if elements are vectors.
    pub(super) fn is_in_vectors(&self) -> bool {
        !self.vectors.is_null()
    }
    /// Returns the elements `first`, `first + step` and so on, if each is two vectors in a row.
    #[inline(always)]
    pub(super) fn first_elements(&self, first: usize, step: usize) -> Option<FirstElements<V>> {
        if self.is_in_vectors() {
            return Some(FirstElements::in_vectors(self.vectors.wrapping_add(first), step));
        }
        let PartsMemory { base, element, ahead, .. } = self.memory.at(first, 0);
        let step = element * step as isize;
        let pairs = V::LANES > 1 && self.memory.has_pairs::<V>(self.width);
        pairs.then_some(FirstElements { base, step, ahead, pairs, swap: self.swap })
    }
    /// Loads a run of elements into their places.
    ///
    /// # Safety
    /// The processor has the features of `V`, the elements are readable, and `w` has the places.
    #[inline(always)]
    pub(super) unsafe fn load(
        &self,
        [first, step, count]: ElementRun,
        places: &[u32],
        w: *mut ComplexParts<V>,
    ) {
        let memory = self.memory.at(first, 0);
        let memory = PartsMemory { element: memory.element * step as isize, ..memory };
        let PartsMemory { lane, part, .. } = memory;
        // SAFETY: the elements are readable, and the places exist (caller contract).
        unsafe {
            if !self.vectors.is_null() {
                for i in 0..count {
                    *w.add(place(places, i)) = *self.vectors.add(first + i * step);
                }
            } else if memory.has_pairs::<V>(self.width) {
                for i in 0..count {
                    let p = memory.element_address(i);
                    let z = V::split([V::load(p), V::load(p.add(V::LANES))]);
                    prefetch(p.wrapping_offset(memory.ahead).cast(), 2 * size_of::<V>());
                    *w.add(place(places, i)) = swapped(z, self.swap);
                }
            } else if memory.has_vectors::<V>(self.width) {
                for i in 0..count {
                    let p = memory.element_address(i);
                    let re = V::load(p);
                    let im = if part == 0 { re.all(V::T::default()) } else { V::load(p.offset(part)) };
                    *w.add(place(places, i)) = swapped([re, im], self.swap);
                }
            } else if memory.has_tiles::<V>(self.width, count) {
                // constant sizes let registers hold the tile
                if 2 * count >= V::LANES {
                    self.load_tiles::<false>(memory, count, V::LANES / 2, places, w);
                } else if count == 4 {
                    self.load_tiles::<false>(memory, count, 4, places, w);
                } else if count == 2 {
                    self.load_tiles::<false>(memory, count, 2, places, w);
                } else {
                    self.load_tiles::<false>(memory, count, 1, places, w);
                }
            } else if memory.has_real_tiles::<V>(self.width, count) {
                self.load_tiles::<true>(memory, count, V::LANES / 2, places, w);
            } else {
                for i in 0..count {
                    let mut z = [V::splat(V::T::default()); 2];
                    let parts = z.as_mut_ptr().cast::<V::T>();
                    for l in 0..self.width {
                        let p = memory.element_address(i).offset(l as isize * lane);
                        *parts.add(l) = *p;
                        if part != 0 {
                            *parts.add(V::LANES + l) = *p.offset(part);
                        }
                    }
                    *w.add(place(places, i)) = swapped(z, self.swap);
                }
            }
        }
    }
    /// Loads contiguous elements of all lanes, `size` at a time, or pairs of real elements.
    ///
    /// # Safety
    /// The contract of `load` holds, and the memory has tiles of this size.
    #[inline(always)]
    unsafe fn load_tiles<const REAL: bool>(
        &self,
        memory: PartsMemory<V::T>,
        count: usize,
        size: usize,
        places: &[u32],
        w: *mut ComplexParts<V>,
    ) {
        let elements = if REAL { 2 * size } else { size };
        debug_assert!(elements <= count && 2 * size <= V::LANES);
        let swap = usize::from(self.swap);
        let mut first = 0;
        while first < count {
            // the last tile may overlap the one before
            first = first.min(count - elements);
            // SAFETY: the elements are readable, and the places exist (caller contract).
            unsafe {
                let mut a = [V::splat(V::T::default()); MAX_LANES];
                for (i, a) in a[..2 * size].iter_mut().enumerate() {
                    let p = memory.tile_part::<V>(first, size, i);
                    *a = V::load(p);
                    prefetch(p.wrapping_offset(memory.ahead).cast(), size_of::<V>());
                }
                let a = tile_steps::<V, true>(a, size);
                for (i, re) in a[..elements].iter().enumerate() {
                    let to = w.add(place(places, first + i)).cast::<V>();
                    *to.add(swap) = if REAL { *re } else { a[2 * i] };
                    *to.add(1 - swap) = if REAL { re.all(V::T::default()) } else { a[2 * i + 1] };
                }
            }
            first += elements;
        }
    }
}

/// The results of transforms side by side.
trait LaneResults<V: LaneVector> {
    /// True if there may be fewer results of a lane than a register has elements.
    const SHORT: bool;
    /// Returns result `k` of all lanes.
    ///
    /// # Safety
    /// There is such a result.
    unsafe fn at(&self, k: usize) -> ComplexParts<V>;
}

/// Results times a number.
struct ScaledResults<'a, V> {
    w: *const ComplexParts<V>,
    order: &'a [u32],
    scale: V,
    /// 1 if the parts are swapped; else 0.
    swap: usize,
}
impl<V: LaneVector> LaneResults<V> for ScaledResults<'_, V> {
    const SHORT: bool = true;
    #[inline(always)]
    unsafe fn at(&self, k: usize) -> ComplexParts<V> {
        // SAFETY: `w` has this element (caller contract).
        unsafe {
            let z = self.w.add(place(self.order, k)).cast::<V>();
            [(*z.add(self.swap)).mul(self.scale), (*z.add(1 - self.swap)).mul(self.scale)]
        }
    }
}

/// Results times twiddle factors.
struct TwiddledResults<'a, V: LaneVector> {
    w: *const ComplexParts<V>,
    order: &'a [u32],
    twiddles: *const V::T,
    strides: [usize; 2],
}
impl<V: LaneVector> LaneResults<V> for TwiddledResults<'_, V> {
    const SHORT: bool = false;
    #[inline(always)]
    unsafe fn at(&self, k: usize) -> ComplexParts<V> {
        let [row, imaginary] = self.strides;
        // SAFETY: `w` has this element, and there are twiddle factors of it (caller contract).
        unsafe {
            let t = self.twiddles.add(k * row);
            product(*self.w.add(place(self.order, k)), [V::load(t), V::load(t.add(imaginary))])
        }
    }
}

/// Results of real transforms of even length: sums of the transforms of the even and of the odd
/// elements, which are the parts of the packed transform.
struct UnpackedResults<'a, V: LaneVector> {
    w: *const ComplexParts<V>,
    order: &'a [u32],
    /// Half the length.
    m: usize,
    turns: *const [V::T; 2],
}
impl<V: LaneVector> LaneResults<V> for UnpackedResults<'_, V> {
    const SHORT: bool = true;
    #[inline(always)]
    unsafe fn at(&self, k: usize) -> ComplexParts<V> {
        let m = self.m;
        // SAFETY: `w` has all elements of the packed transform, and there are factors (caller
        // contract).
        let (z, w, turn) = unsafe {
            let z = *self.w.add(place(self.order, if k == m { 0 } else { k }));
            let w = *self.w.add(place(self.order, if k == 0 { 0 } else { m - k }));
            (z, w, *self.turns.add(k))
        };
        let (zero, half) = (z[0].all(V::T::default()), V::T::nearest(0.5));
        let even = scaled([z[0].add(w[0]), z[1].sub(w[1])], half);
        let odd = scaled([z[0].sub(w[0]), z[1].add(w[1])], half);
        add(even, times([odd[1], zero.sub(odd[0])], turn))
    }
}

impl<T: FftFloat> LaneTarget<T> {
    /// Stores the results, which are in `w` in this order.
    ///
    /// # Safety
    /// The processor has the features of `V`, the memory of the results is writable, `w` has the
    /// places of the order, and there are the factors of all results and lanes.
    #[inline(always)]
    pub(super) unsafe fn store<V: LaneVector<T = T>>(&self, w: *const ComplexParts<V>, order: &[u32]) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            if !self.turns.is_null() {
                self.store_each(UnpackedResults { w, order, m: self.count - 1, turns: self.turns });
            } else if !self.twiddles.is_null() {
                let (twiddles, strides) = (self.twiddles, self.twiddle_strides);
                self.store_each(TwiddledResults { w, order, twiddles, strides });
            } else {
                let (scale, swap) = (V::splat(self.scale), usize::from(self.swap));
                self.store_each(ScaledResults { w, order, scale, swap });
            }
        }
    }
    /// Stores results.
    ///
    /// # Safety
    /// The processor has the features of `V`, and the memory of the results is writable.
    #[inline(always)]
    unsafe fn store_each<V: LaneVector<T = T>, R: LaneResults<V>>(&self, results: R) {
        let (memory, count, width) = (self.memory, self.count, self.width);
        let PartsMemory { lane, part, .. } = memory;
        // SAFETY: the memory is writable (caller contract).
        unsafe {
            if memory.has_pairs::<V>(width) {
                for i in 0..count {
                    let (p, [low, high]) = (memory.element_address(i), V::join(results.at(i)));
                    low.store(p);
                    high.store(p.add(V::LANES));
                    prefetch(p.wrapping_offset(memory.ahead).cast(), 2 * size_of::<V>());
                }
            } else if memory.has_vectors::<V>(width) {
                for i in 0..count {
                    let (p, [re, im]) = (memory.element_address(i), results.at(i));
                    re.store(p);
                    if part != 0 {
                        im.store(p.offset(part));
                    }
                }
            } else if memory.has_tiles::<V>(width, count) && (R::SHORT || 2 * count >= V::LANES) {
                if 2 * count >= V::LANES {
                    self.store_tiles(V::LANES / 2, results);
                } else if !R::SHORT {
                    // there are no such tiles
                } else if count == 4 {
                    self.store_tiles(4, results);
                } else if count == 2 {
                    self.store_tiles(2, results);
                } else {
                    self.store_tiles(1, results);
                }
            } else {
                for i in 0..count {
                    let z: ComplexParts<V> = results.at(i);
                    let parts = z.as_ptr().cast::<T>();
                    for l in 0..width {
                        let p = memory.element_address(i).offset(l as isize * lane);
                        *p = *parts.add(l);
                        if part != 0 {
                            *p.offset(part) = *parts.add(V::LANES + l);
                        }
                    }
                }
            }
        }
    }
    /// Stores contiguous results of all lanes, `size` at a time, by the steps of
    /// [`LaneSource::load_tiles`] in reverse.
    ///
    /// # Safety
    /// The contract of `store_each` holds, and the memory has tiles of this size.
    #[inline(always)]
    unsafe fn store_tiles<V: LaneVector<T = T>>(&self, size: usize, results: impl LaneResults<V>) {
        debug_assert!(size <= self.count && 2 * size <= V::LANES);
        let mut first = 0;
        while first < self.count {
            first = first.min(self.count - size);
            // two tiles at once complete most lines of the cache, even if rows are not aligned
            let both = 2 * size == V::LANES && first + 2 * size <= self.count;
            // SAFETY: the memory is writable (caller contract).
            unsafe {
                let a = Self::tile(first, size, &results);
                let b = if both { Self::tile(first + size, size, &results) } else { a };
                for i in 0..2 * size {
                    let p = self.memory.tile_part::<V>(first, size, i);
                    let ahead = p.wrapping_offset(self.memory.ahead).cast();
                    a[i].store(p);
                    if both {
                        b[i].store(p.add(V::LANES));
                        prefetch(ahead, 2 * size_of::<V>());
                    } else {
                        prefetch(ahead, size_of::<V>());
                    }
                }
            }
            first += if both { 2 * size } else { size };
        }
    }
    /// Returns the registers of the tile of `size` results from `first` on.
    ///
    /// # Safety
    /// There are such results.
    #[inline(always)]
    unsafe fn tile<V: LaneVector<T = T>>(
        first: usize,
        size: usize,
        results: &impl LaneResults<V>,
    ) -> TileRegisters<V> {
        // SAFETY: the results exist (caller contract).
        unsafe {
            let mut a = [results.at(first)[0]; MAX_LANES];
            for i in 0..size {
                [a[2 * i], a[2 * i + 1]] = results.at(first + i);
            }
            tile_steps::<V, false>(a, size)
        }
    }
}
