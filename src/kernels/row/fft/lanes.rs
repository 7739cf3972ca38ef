//! The operands and results of transforms side by side: exchanges between memory and vectors.

use super::PartsMemory;
use super::butterfly::{add, product, scaled, times};
use super::vector::{ComplexParts, FftFloat, LaneVector};
use std::mem::MaybeUninit;

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
        PartsMemory { base: p.cast(), element: 2, lane: 0, part: 1 }
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
    /// They are then contiguous, and fill the registers, or all lanes do together.
    #[inline(always)]
    fn has_tiles<V: LaneVector<T = T>>(&self, width: usize, count: usize) -> bool {
        let fits = count >= V::LANES || count.is_power_of_two() && self.lane == 2 * count as isize;
        V::LANES > 1 && self.part == 1 && self.element == 2 && width == V::LANES && fits
    }
    /// Returns the address of register `i` of the tile of `size` elements from `first` on.
    #[inline(always)]
    fn tile_part<V: LaneVector<T = T>>(&self, first: usize, size: usize, i: usize) -> *mut T {
        if size < V::LANES {
            return self.base.wrapping_add(i * V::LANES);
        }
        self.at(first, i / 2).base.wrapping_add(i % 2 * V::LANES)
    }
}

/// The registers of a tile, before and after a step.
type TileBuffers<V> = MaybeUninit<[[V; 2 * MAX_LANES]; 2]>;

/// Stores both vectors.
///
/// # Safety
/// There is space for them.
#[inline(always)]
unsafe fn put<V: LaneVector>(to: *mut V, at: [usize; 2], z: ComplexParts<V>) {
    // SAFETY: there is space for both (caller contract).
    unsafe {
        *to.add(at[0]) = z[0];
        *to.add(at[1]) = z[1];
    }
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
                // the constant size lets registers hold the tile
                if count >= V::LANES {
                    self.load_tiles(memory, count, V::LANES, places, w);
                } else {
                    self.load_tiles(memory, count, count, places, w);
                }
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
    /// Loads contiguous elements of all lanes, `size` at a time.
    ///
    /// Each step joins registers whose indices differ in the highest bit, which becomes the lowest
    /// bit of the position in a register.
    ///
    /// # Safety
    /// The contract of `load` holds, and the memory has tiles of this size.
    #[inline(always)]
    unsafe fn load_tiles(
        &self,
        memory: PartsMemory<V::T>,
        count: usize,
        size: usize,
        places: &[u32],
        w: *mut ComplexParts<V>,
    ) {
        let steps = V::LANES.ilog2();
        let mut buffers: TileBuffers<V> = MaybeUninit::uninit();
        let mut a = buffers.as_mut_ptr().cast::<V>();
        let mut b = a.wrapping_add(2 * MAX_LANES);
        let mut first = 0;
        while first < count {
            // the last tile may overlap the one before
            first = first.min(count - size);
            // SAFETY: the elements are readable, and the places exist (caller contract). A buffer
            // has space for `2 * size` registers, which the first step writes.
            unsafe {
                for i in 0..size {
                    let p = memory.tile_part::<V>(first, size, i);
                    let q = memory.tile_part::<V>(first, size, i + size);
                    put(a, [2 * i, 2 * i + 1], V::join([V::load(p), V::load(q)]));
                }
                for _ in 1..steps {
                    for i in 0..size {
                        put(b, [2 * i, 2 * i + 1], V::join([*a.add(i), *a.add(i + size)]));
                    }
                    (a, b) = (b, a);
                }
                for i in 0..size {
                    let z = [*a.add(2 * i), *a.add(2 * i + 1)];
                    *w.add(place(places, first + i)) = swapped(z, self.swap);
                }
            }
            first += size;
        }
    }
}

impl<T: FftFloat> LaneTarget<T> {
    /// Returns result `k` of all lanes.
    ///
    /// # Safety
    /// The contract of `store` holds.
    #[inline(always)]
    unsafe fn result<V: LaneVector<T = T>>(
        &self,
        w: *const ComplexParts<V>,
        order: &[u32],
        k: usize,
    ) -> ComplexParts<V> {
        // SAFETY: `w` has all results, and there are twiddle factors of each (caller contract).
        unsafe {
            if !self.turns.is_null() {
                return self.unpacked(w, order, k);
            }
            let mut z = *w.add(place(order, k));
            if !self.twiddles.is_null() {
                let [row, imaginary] = self.twiddle_strides;
                let t = self.twiddles.add(k * row);
                z = product(z, [V::load(t), V::load(t.add(imaginary))]);
            }
            if self.scale != T::nearest(1.0) {
                z = scaled(z, self.scale);
            }
            swapped(z, self.swap)
        }
    }
    /// Returns result `k` of a real transform of even length: a sum of the transforms of the even
    /// and of the odd elements, which are the parts of the packed transform.
    ///
    /// # Safety
    /// The contract of `store` holds, and there are factors.
    #[inline(always)]
    unsafe fn unpacked<V: LaneVector<T = T>>(
        &self,
        w: *const ComplexParts<V>,
        order: &[u32],
        k: usize,
    ) -> ComplexParts<V> {
        let m = self.count - 1;
        // SAFETY: `w` has all elements of the packed transform, and there are factors (caller
        // contract).
        let (z, w, turn) = unsafe {
            let z = *w.add(place(order, if k == m { 0 } else { k }));
            let w = *w.add(place(order, if k == 0 { 0 } else { m - k }));
            (z, w, *self.turns.add(k))
        };
        let (zero, half) = (z[0].all(T::default()), T::nearest(0.5));
        let even = scaled([z[0].add(w[0]), z[1].sub(w[1])], half);
        let odd = scaled([z[0].sub(w[0]), z[1].add(w[1])], half);
        add(even, times([odd[1], zero.sub(odd[0])], turn))
    }
    /// Stores the results, which are in `w` in this order.
    ///
    /// # Safety
    /// The processor has the features of `V`, the memory of the results is writable, `w` has the
    /// places of the order, and there are the factors of all results and lanes.
    #[inline(always)]
    pub(super) unsafe fn store<V: LaneVector<T = T>>(&self, w: *const ComplexParts<V>, order: &[u32]) {
        let (memory, count, width) = (self.memory, self.count, self.width);
        let PartsMemory { lane, part, .. } = memory;
        // SAFETY: the memory is writable, and the other arguments are as `result` needs them
        // (caller contract).
        unsafe {
            if memory.has_pairs::<V>(width) {
                for i in 0..count {
                    let (p, [low, high]) = (memory.element_address(i), V::join(self.result(w, order, i)));
                    low.store(p);
                    high.store(p.add(V::LANES));
                }
            } else if memory.has_vectors::<V>(width) {
                for i in 0..count {
                    let (p, [re, im]) = (memory.element_address(i), self.result(w, order, i));
                    re.store(p);
                    if part != 0 {
                        im.store(p.offset(part));
                    }
                }
            } else if memory.has_tiles::<V>(width, count) {
                if count >= V::LANES {
                    self.store_tiles(V::LANES, w, order);
                } else {
                    self.store_tiles(count, w, order);
                }
            } else {
                for i in 0..count {
                    let z: ComplexParts<V> = self.result(w, order, i);
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
    /// The contract of `store` holds, and the memory has tiles of this size.
    #[inline(always)]
    unsafe fn store_tiles<V: LaneVector<T = T>>(
        &self,
        size: usize,
        w: *const ComplexParts<V>,
        order: &[u32],
    ) {
        let steps = V::LANES.ilog2();
        let mut buffers: TileBuffers<V> = MaybeUninit::uninit();
        let mut a = buffers.as_mut_ptr().cast::<V>();
        let mut b = a.wrapping_add(2 * MAX_LANES);
        let mut first = 0;
        while first < self.count {
            first = first.min(self.count - size);
            // SAFETY: as in `store`. A buffer has space for `2 * size` registers, which the first
            // step writes.
            unsafe {
                for i in 0..size {
                    put(a, [i, i + size], V::split(self.result(w, order, first + i)));
                }
                for _ in 1..steps {
                    for i in 0..size {
                        put(b, [i, i + size], V::split([*a.add(2 * i), *a.add(2 * i + 1)]));
                    }
                    (a, b) = (b, a);
                }
                for i in 0..2 * size {
                    (*a.add(i)).store(self.memory.tile_part::<V>(first, size, i));
                }
            }
            first += size;
        }
    }
}
