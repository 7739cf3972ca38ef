//! Kernels of windows, for a step of all windows of a line.

use super::cpu::{self, for_each_isa};
use super::float::FloatElement;
use crate::core::DType;

/// A step, or two neighbouring ones, of the windows of a line.
#[derive(Clone, Copy, Debug)]
pub struct WindowLine {
    /// The number of windows.
    pub n: usize,
    /// The elements from the step of one window to that of the next.
    pub stride: usize,
    /// The number of the step.
    pub step: i32,
    /// The number of the step at the next element. `None` if there is one step.
    /// Two steps have a stride of 2.
    pub next: Option<i32>,
    /// True if elements are added to those at their places.
    pub adds: bool,
}

/// Finds or uses a step of `n` windows.
///
/// The first function, [`find_steps`], stores the number of a step at `d` (int32, one for each
/// window) if it is less than the number there, and the element of the window at that step, at `b`,
/// equals that of the window at `a` or is a NaN. The second one, [`place_at_steps`], stores the
/// element of a window, at `b`, plus 0 at its place at `d` if the number at `a` (int32) is that of
/// the step, and otherwise 0; or it adds either to the element there.
///
/// The caller upholds: pointers are to elements or space for all windows, and `d` overlaps no other
/// operand. The elements of the steps are `stride` elements apart, and two of each window are next
/// to one another; others are contiguous.
pub type WindowLineKernel = unsafe fn(line: &WindowLine, d: *mut u8, a: *const u8, b: *const u8);

/// Implements [`find_steps`].
///
/// # Safety
/// The caller upholds the contract of [`WindowLineKernel`].
#[inline(always)]
unsafe fn find<T: FloatElement>(line: &WindowLine, d: *mut i32, y: *const T, x: *const T) {
    #[allow(clippy::eq_op, reason = "a NaN differs from itself")]
    let pick = |x: T, y: T, step: i32| if x == y || x != x { step } else { i32::MAX };
    // SAFETY: there are `n` windows (caller contract).
    unsafe {
        match (line.next, line.stride) {
            (Some(next), _) => {
                for i in 0..line.n {
                    let (a, b, y) = (*x.add(2 * i), *x.add(2 * i + 1), *y.add(i));
                    *d.add(i) = (*d.add(i)).min(pick(a, y, line.step)).min(pick(b, y, next));
                }
            }
            (None, 1) => {
                for i in 0..line.n {
                    *d.add(i) = (*d.add(i)).min(pick(*x.add(i), *y.add(i), line.step));
                }
            }
            (None, stride) => {
                for i in 0..line.n {
                    *d.add(i) = (*d.add(i)).min(pick(*x.add(i * stride), *y.add(i), line.step));
                }
            }
        }
    }
}

/// Implements [`place_at_steps`].
///
/// # Safety
/// The caller upholds the contract of [`WindowLineKernel`].
#[inline(always)]
unsafe fn place<T: FloatElement>(line: &WindowLine, d: *mut T, steps: *const i32, x: *const T) {
    let pick = |x: T, at: i32, step: i32| if at == step { x + T::default() } else { T::default() };
    // SAFETY: there are `n` windows (caller contract).
    unsafe {
        match (line.next, line.stride) {
            (_, stride) if line.adds => {
                for i in 0..line.n {
                    let d = d.add(i * stride);
                    *d = *d + pick(*x.add(i), *steps.add(i), line.step);
                }
            }
            (Some(next), _) => {
                for i in 0..line.n {
                    let (x, at) = (*x.add(i), *steps.add(i));
                    *d.add(2 * i) = pick(x, at, line.step);
                    *d.add(2 * i + 1) = pick(x, at, next);
                }
            }
            (None, 1) => {
                for i in 0..line.n {
                    *d.add(i) = pick(*x.add(i), *steps.add(i), line.step);
                }
            }
            (None, stride) => {
                for i in 0..line.n {
                    *d.add(i * stride) = pick(*x.add(i), *steps.add(i), line.step);
                }
            }
        }
    }
}

for_each_isa! {
    mod find_at<T: FloatElement>(line: &WindowLine, d: *mut u8, a: *const u8, b: *const u8) at L
        => find::<T>(line, d.cast(), a.cast(), b.cast());
    mod place_at<T: FloatElement>(line: &WindowLine, d: *mut u8, a: *const u8, b: *const u8) at L
        => place::<T>(line, d.cast(), a.cast(), b.cast());
}

/// Returns the kernel that finds steps, for float32 and float64.
pub fn find_steps(dtype: DType) -> WindowLineKernel {
    match dtype {
        DType::F64 => find_at::narrow::<f64>(cpu::level()),
        _ => find_at::narrow::<f32>(cpu::level()),
    }
}
/// Returns the kernel that places elements at steps, for float32 and float64.
pub fn place_at_steps(dtype: DType) -> WindowLineKernel {
    match dtype {
        DType::F64 => place_at::narrow::<f64>(cpu::level()),
        _ => place_at::narrow::<f32>(cpu::level()),
    }
}
