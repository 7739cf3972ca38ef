//! The sides and the terms of a product whose rows are anywhere in memory.

use smallvec::SmallVec;

/// The rows of one side of a product.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only x86-64 has the kernel that reads them")
)]
pub(crate) struct ProductSide<'a> {
    /// The first element.
    pub(crate) base: *const u8,
    /// The offset of each row from `base`, in elements.
    pub(crate) offsets: &'a [isize],
    /// The offset of each row in the result, in elements.
    pub(crate) result_offsets: &'a [isize],
}

/// The terms of an element, as loops. The last loop has the terms of a turn.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only x86-64 has the kernel that reads them")
)]
pub(crate) struct ProductTerms {
    /// The offset of the first term in each side, in elements.
    pub(crate) offsets: [isize; 2],
    /// The loops before the last: the size, and the stride in each side.
    pub(crate) outer: SmallVec<[(usize, [isize; 2]); 2]>,
    /// The size of the last loop.
    pub(crate) size: usize,
    /// The stride of the last loop in each side.
    pub(crate) strides: [isize; 2],
}
