//! The mode of the processor in which subnormal numbers are zeros.
//!
//! In this mode the instructions for float32 and float64 read subnormal operands as zeros, and
//! write zeros instead of subnormal results, each with the sign of the number that it replaces. The
//! mode belongs to a thread. A [`FlushMode`] changes it around the kernels of one program.

use std::marker::PhantomData;

/// True if this build can change the mode: on x86-64 and AArch64, but not under Miri.
pub(crate) const IS_SUPPORTED: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));

/// The mode of this thread, until it is dropped; then the thread has its earlier mode again.
#[derive(Debug)]
#[must_use = "the earlier mode returns when it is dropped"]
pub(crate) struct FlushMode {
    /// The control register to restore; `None` if it was not changed.
    before: Option<u64>,
    /// The register belongs to this thread, so the value must not be sent to another one.
    not_send: PhantomData<*const ()>,
}

impl FlushMode {
    /// Flushes subnormal numbers. Has no effect where [`IS_SUPPORTED`] is false.
    pub(crate) fn on() -> FlushMode {
        FlushMode::change(|register| register | control::FLUSH_BITS)
    }
    /// Computes with subnormal numbers, as Rust code expects.
    pub(crate) fn off() -> FlushMode {
        FlushMode::change(|register| register & !control::FLUSH_BITS)
    }
    /// Changes the control register.
    // Never inlined: no float instruction of the caller is then scheduled across the change, apart
    // from those that the SAFETY comments of `control` allow for.
    #[inline(never)]
    fn change(to: impl Fn(u64) -> u64) -> FlushMode {
        let old = control::read();
        let before = (to(old) != old).then(|| {
            control::write(to(old));
            old
        });
        FlushMode { before, not_send: PhantomData }
    }
    /// Returns true if this thread flushes subnormal numbers.
    #[cfg(test)]
    pub(crate) fn is_on() -> bool {
        control::read() & control::FLUSH_BITS != 0
    }
}

impl Drop for FlushMode {
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(before) = self.before {
            control::write(before);
        }
    }
}

// The compiler assumes that the flush bits are 0: it may evaluate operations on constants, and move
// float instructions past others. Neither changes a result of the kernels. Their operands are data
// of the run, which they load from memory and store to memory, and the assembly blocks below are
// barriers for memory (they do not have the option `nomem`). So an instruction of a kernel is
// between the change that precedes its loads and the one that follows its stores. Code outside of
// the kernels that runs in between, in the engine, computes with integers only.

/// The register MXCSR.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod control {
    use std::arch::asm;

    /// Flush to zero (results) and denormals are zeros (operands).
    pub(super) const FLUSH_BITS: u64 = 1 << 15 | 1 << 6;

    pub(super) fn read() -> u64 {
        let mut register = 0u32;
        // SAFETY: every x86-64 processor has SSE2; the instruction writes 4 bytes to a local
        // variable and changes nothing else.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags)) }
        register.into()
    }
    pub(super) fn write(register: u64) {
        let register = register as u32;
        // SAFETY: the instruction reads 4 bytes of a local variable. The value comes from `read`
        // and differs in `FLUSH_BITS` only, so that no exception is unmasked and rounding stays the
        // same. `FlushMode` restores the bits before code outside of the engine runs, also if a
        // kernel panics; the comment above says why kernels are compiled correctly for both values.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const register, options(nostack)) }
    }
}

/// The register FPCR.
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod control {
    use std::arch::asm;

    /// Flush to zero: operands and results of float32 and float64, not of float16.
    pub(super) const FLUSH_BITS: u64 = 1 << 24;

    pub(super) fn read() -> u64 {
        let register: u64;
        // SAFETY: every AArch64 processor has the register, and reading it changes nothing.
        unsafe { asm!("mrs {}, fpcr", out(reg) register, options(nostack, preserves_flags)) }
        register
    }
    pub(super) fn write(register: u64) {
        // SAFETY: the value comes from `read` and differs in `FLUSH_BITS` only. `FlushMode` restores
        // the bits before code outside of the engine runs, also if a kernel panics; the comment
        // above says why kernels are compiled correctly for both values.
        unsafe { asm!("msr fpcr, {}", in(reg) register, options(nostack)) }
    }
}

/// A processor without the mode.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod control {
    pub(super) const FLUSH_BITS: u64 = 0;

    pub(super) fn read() -> u64 {
        0
    }
    pub(super) fn write(_: u64) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[inline(never)]
    fn half(x: f32) -> f32 {
        black_box(x) * black_box(0.5)
    }

    #[test]
    fn modes_nest_and_return() {
        let least = f32::MIN_POSITIVE;
        assert!(half(least) > 0.0 && !FlushMode::is_on());
        {
            let _on = FlushMode::on();
            assert!(FlushMode::is_on());
            assert_eq!(half(least).to_bits(), 0);
            assert_eq!(half(-least).to_bits(), (-0f32).to_bits());
            {
                let _off = FlushMode::off();
                assert_eq!(half(least).to_bits(), 1 << 22);
            }
            assert_eq!(half(least).to_bits(), 0);
        }
        assert!(half(least) > 0.0 && !FlushMode::is_on());
    }

    #[test]
    fn a_panic_restores_the_mode() {
        let unwound = std::panic::catch_unwind(|| {
            let _on = FlushMode::on();
            std::panic::resume_unwind(Box::new("a kernel"));
        });
        assert!(unwound.is_err() && !FlushMode::is_on());
    }
}
