//! Functions of complex numbers, by Annex G of the C standard at infinities and NaNs.

use num_complex::Complex;

type C = Complex<f64>;

/// Returns a product in which a factor of 0 wins over NaN and ∞, which stand for limits.
fn times(a: f64, b: f64) -> f64 {
    match (a == 0.0 || b == 0.0) && (a * b).is_nan() {
        true if a == 0.0 => a,
        true => b * 1f64.copysign(a),
        false => a * b,
    }
}

/// Returns the number with parts `re · cos(z.im)` and `im · sin(z.im)`.
///
/// If `z.re` is infinite and the direction is unknown, the real part is infinite.
fn at_angle(re: f64, im: f64, z: C) -> C {
    let real = if z.re.is_infinite() && !z.im.is_finite() { re } else { times(re, z.im.cos()) };
    C::new(real, times(im, z.im.sin()))
}

pub(super) fn exp(z: C) -> C {
    let size = z.re.exp();
    match (z.re, z.im.is_finite()) {
        (f64::NEG_INFINITY, false) => C::ZERO,
        (x, false) if x.is_finite() => C::new(f64::NAN, f64::NAN),
        _ => at_angle(size, size, z),
    }
}

pub(super) fn log(z: C) -> C {
    let huge = z.is_finite() && z.norm().is_infinite();
    let size = if huge { (z * 0.125).norm().ln() + 8f64.ln() } else { z.norm().ln() };
    C::new(size, z.im.atan2(z.re))
}

pub(super) fn sqrt(z: C) -> C {
    let zero = |y: f64| if y.is_nan() { y } else { 0f64.copysign(y) };
    match (z.re, z.im) {
        (_, y) if y.is_infinite() => C::new(f64::INFINITY, y),
        (f64::INFINITY, y) => C::new(f64::INFINITY, zero(y)),
        (f64::NEG_INFINITY, y) => C::new(zero(y).abs(), f64::INFINITY.copysign(y)),
        _ if z.is_nan() => C::new(f64::NAN, f64::NAN),
        _ if z.norm().is_infinite() => (z * 0.0625).sqrt() * 4.0,
        _ if z != C::ZERO && z.norm() < 1e-290 => (z * 2f64.powi(200)).sqrt() * 2f64.powi(-100),
        _ => z.sqrt(),
    }
}

pub(super) fn sinh(z: C) -> C {
    at_angle(z.re.sinh(), z.re.cosh(), z)
}

pub(super) fn cosh(z: C) -> C {
    at_angle(z.re.cosh(), z.re.sinh(), z)
}

pub(super) fn tanh(z: C) -> C {
    match (z.re, z.im) {
        (x, y) if y == 0.0 => C::new(x.tanh(), y),
        (x, y) if x == 0.0 => C::new(x, y.tan()),
        (x, y) if x.is_infinite() => {
            C::new(x.signum(), if y.is_finite() { times(0.0, y.sin() * y.cos()) } else { 0.0 })
        }
        (x, y) if x.abs() > 20.0 && y.is_finite() => {
            C::new(x.signum(), 4.0 * y.sin() * y.cos() * (-2.0 * x.abs()).exp())
        }
        (x, y) => {
            let below = x.sinh().powi(2) + y.cos().powi(2);
            C::new(x.sinh() * x.cosh() / below, y.sin() * y.cos() / below)
        }
    }
}

/// Returns `f(iz) / i`, which is the sine or the tangent of `z` for the hyperbolic `f`.
pub(super) fn turned(f: fn(C) -> C, z: C) -> C {
    let y = f(C::new(-z.im, z.re));
    C::new(y.im, -y.re)
}

pub(super) fn div(a: C, b: C) -> C {
    let infinite = |z: C| z.re.is_infinite() || z.im.is_infinite();
    // 1, or 0 for a part that is not infinite, with the sign of the part
    let direction = |z: C| {
        let of = |x: f64| if x.is_infinite() { 1f64.copysign(x) } else { 0f64.copysign(x) };
        C::new(of(z.re), of(z.im))
    };
    if b == C::ZERO {
        // a quotient of parts: 0 / 0 is NaN
        return C::new(a.re / b.re.abs(), a.im / b.re.abs());
    }
    match (infinite(a), infinite(b)) {
        (false, true) if !a.is_nan() => a * direction(b).conj() * 0.0,
        (true, false) if !b.is_nan() => {
            let q = direction(a) * b.conj();
            C::new(q.re * f64::INFINITY, q.im * f64::INFINITY)
        }
        _ => {
            // scaled by a power of two, so that nothing overflows
            let most = b.re.abs().max(b.im.abs());
            let scale = if most.is_normal() {
                2f64.powi(-(most.log2().floor() as i32).clamp(-1000, 1000))
            } else {
                1.0
            };
            let (a, b) = (a * scale, b * scale);
            let q = a * b.conj();
            let size = b.norm_sqr();
            C::new(q.re / size, q.im / size)
        }
    }
}

pub(super) fn pow(z: C, w: C) -> C {
    let log = log(z);
    match w {
        w if w == C::ZERO => C::ONE,
        w if z == C::ZERO && w.re > 0.0 => C::ZERO,
        w if w.im == 0.0 => exp(C::new(w.re * log.re, w.re * log.im)),
        w => exp(C::new(w.re * log.re - w.im * log.im, w.re * log.im + w.im * log.re)),
    }
}

pub(super) fn sign(z: C) -> C {
    match (z.re.is_infinite(), z.im.is_infinite()) {
        _ if z == C::ZERO => z,
        (true, false) if !z.im.is_nan() => C::new(z.re.signum(), 0.0),
        (false, true) if !z.re.is_nan() => C::new(0.0, z.im.signum()),
        _ => C::new(z.re / z.norm(), z.im / z.norm()),
    }
}
