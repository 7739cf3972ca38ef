//! Programs element by element: each sentence read as it is written, in plain loops over 64-bit numbers.

use atmesh::program::sentence::{Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source};
use atmesh::program::{Input, Op, Program};
use atmesh::types::{DType, Scalar};

/// A value: its elements in row-major order, each as its element type holds it.
pub(crate) type Data = Vec<Scalar>;

/// A number as an element type holds it.
pub(crate) fn cast(x: Scalar, to: DType) -> Scalar {
    let float = |x: f64| match to {
        DType::F16 => half::f16::from_f64(x).to_f64(),
        DType::BF16 => half::bf16::from_f64(x).to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    };
    if to.is_float() {
        return Scalar::Float(float(x.to_f64()));
    }
    let bits = 8 * to.storage().size() as u32;
    if to == DType::Bool {
        return Scalar::Bool(x.to_f64() != 0.0);
    }
    let range = 1i128 << bits;
    let whole = match x {
        // floats are cut to the range, integers wrap
        Scalar::Float(f) if to.is_signed() => (f as i128).clamp(-(range / 2), range / 2 - 1),
        Scalar::Float(f) => (f as i128).clamp(0, range - 1),
        x => x.to_i128(),
    };
    let wrapped = whole.rem_euclid(range);
    Scalar::Int(if to.is_signed() && wrapped >= range / 2 { wrapped - range } else { wrapped })
}

/// The results of a program of primitives.
pub(crate) fn evaluate(program: &Program, inputs: &[Data]) -> Vec<Data> {
    let mut values: Vec<Option<Data>> = vec![None; program.vars.len()];
    for (var, data) in program.inputs.iter().zip(inputs) {
        values[var.index()] = Some(data.clone());
    }
    let get = |values: &[Option<Data>], input: &Input| match input {
        Input::Var(v) => values[v.index()].clone().unwrap(),
        Input::Lit(l) => vec![cast(l.value, l.dtype)],
    };
    for e in &program.equations {
        let Op::Prim(prim) = &e.op else { panic!("{e:?}") };
        let operands: Vec<_> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<_> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        let data: Vec<Data> = e.inputs.iter().map(|i| get(&values, i)).collect();
        let shapes: Vec<Vec<usize>> = operands.iter().map(|t| t.shape.to_vec()).collect();
        for (sentence, var) in prim.sentences(&operands, &results).iter().zip(&e.outputs) {
            values[var.index()] = Some(run(sentence, &data, &shapes));
        }
    }
    program.outputs.iter().map(|o| get(&values, o)).collect()
}

pub(crate) fn run(s: &Sentence, data: &[Data], shapes: &[Vec<usize>]) -> Data {
    let out: usize = s.extents[..s.rank].iter().product();
    let inner: usize = s.extents[s.rank..].iter().product();
    if s.body == Body::Reshape {
        let Source::Value(k) = s.reads[0].parts[0].from else { panic!("reshape of a constant") };
        return data[k].clone();
    }
    let element = |o: usize| {
        let mut total: Option<Scalar> = None;
        for i in 0..inner {
            let index = unflatten(o * inner + i, &s.extents);
            let reads: Vec<Scalar> = s.reads.iter().map(|r| read(r, &index, data, shapes)).collect();
            let (value, combine, dtype) = match &s.body {
                Body::Map(code) => return cast(compute(code, &reads, &index), s.dtype),
                Body::Fold { combine, code } => (compute(code, &reads, &index), *combine, s.dtype),
                Body::Product { accumulate } => {
                    let product = function(
                        Fun::Mul,
                        *accumulate,
                        *accumulate,
                        &[cast(reads[0], *accumulate), cast(reads[1], *accumulate)],
                    );
                    (product, Combine::Add, *accumulate)
                }
                Body::Reshape => unreachable!(),
            };
            // sums in double precision, rounded at the end: the order of addition is not this test's
            let dtype = if dtype.is_float() { DType::F64 } else { dtype };
            let fun = match combine {
                Combine::Add => Fun::Add,
                Combine::Mul => Fun::Mul,
                Combine::Max => Fun::Max,
                Combine::Min => Fun::Min,
                Combine::And => Fun::And,
                Combine::Or => Fun::Or,
            };
            total = Some(total.map_or(value, |t| function(fun, dtype, dtype, &[t, value])));
        }
        cast(total.unwrap_or(Scalar::zero(s.dtype)), s.dtype)
    };
    (0..out).map(element).collect()
}

fn unflatten(mut i: usize, extents: &[usize]) -> Vec<i64> {
    let mut index: Vec<i64> = extents.iter().rev().map(|n| ((i % n) as i64, i /= n).0).collect();
    index.reverse();
    index
}

fn read(r: &Read, index: &[i64], data: &[Data], shapes: &[Vec<usize>]) -> Scalar {
    let covers = |p: &&Part| {
        p.span.iter().zip(index).all(|(s, i)| (s.lo..s.hi).contains(i) && (i - s.lo) % s.step == 0)
    };
    let mut parts = r.parts.iter().filter(covers);
    let Some(part) = parts.next() else { return r.fill };
    assert!(parts.next().is_none(), "parts overlap");
    match part.from {
        Source::Const(c) => c,
        Source::Value(k) => {
            assert_eq!(part.map.len(), shapes[k].len());
            let at = part.map.iter().zip(&shapes[k]).fold(0, |at, (a, n)| {
                let k = |l: usize| (index[l] - part.span[l].lo) / part.span[l].step;
                let p = a.at + a.terms.iter().map(|(l, c)| c * k(*l)).sum::<i64>();
                assert!((0..*n as i64).contains(&p), "position {p} of a dimension of size {n}");
                at * *n + p as usize
            });
            data[k][at]
        }
    }
}

fn compute(code: &Code, reads: &[Scalar], index: &[i64]) -> Scalar {
    let mut made: Vec<Scalar> = Vec::new();
    for inst in &code.insts {
        let args: Vec<Scalar> = inst
            .args
            .iter()
            .map(|a| match a {
                Arg::Read(r) => reads[*r],
                Arg::Inst(i) => made[*i],
                Arg::Const(c) => *c,
                Arg::Index(d) => Scalar::Int(i128::from(index[*d])),
            })
            .collect();
        made.push(function(inst.fun, inst.from, inst.dtype, &args));
    }
    *made.last().unwrap()
}

fn function(fun: Fun, from: DType, to: DType, args: &[Scalar]) -> Scalar {
    use Scalar::{Bool, Float, Int};
    let x = args[0];
    match fun {
        Fun::Copy | Fun::Convert => return cast(x, to),
        Fun::Select => return if x == Bool(true) { args[1] } else { args[2] },
        Fun::Bitcast => return bitcast(x, from, to),
        Fun::Threefry => {
            let (key, counter) = (x.to_i128() as u64, args[1].to_i128() as u64);
            let word = |x: u64| (x as u32, (x >> 32) as u32);
            let ((k0, k1), (low, high)) = (word(key), word(counter));
            let (a, b) = threefry([k0, k1], [high, low]);
            return Int(i128::from(a) | i128::from(b) << 32);
        }
        _ => {}
    }
    let y = args.get(1).copied().unwrap_or(x);
    let compared = |o: Option<std::cmp::Ordering>| match fun {
        Fun::Eq => Some(o == Some(std::cmp::Ordering::Equal)),
        Fun::Ne => Some(o != Some(std::cmp::Ordering::Equal)),
        Fun::Lt => Some(o.is_some_and(|o| o.is_lt())),
        Fun::Le => Some(o.is_some_and(|o| o.is_le())),
        Fun::Gt => Some(o.is_some_and(|o| o.is_gt())),
        Fun::Ge => Some(o.is_some_and(|o| o.is_ge())),
        _ => None,
    };
    if from.is_float() {
        let (a, b) = (x.to_f64(), y.to_f64());
        if let Some(c) = compared(a.partial_cmp(&b)) {
            return Bool(c);
        }
        if fun == Fun::IsFinite {
            return Bool(a.is_finite());
        }
        return cast(Float(on_floats(fun, from, a, b)), to);
    }
    let (a, b) = (x.to_i128(), y.to_i128());
    if let Some(c) = compared(Some(a.cmp(&b))) {
        return Bool(c);
    }
    if from == DType::Bool {
        return Bool(match fun {
            Fun::And | Fun::Min | Fun::Mul => a & b != 0,
            Fun::Or | Fun::Max => a | b != 0,
            Fun::Xor => a != b,
            Fun::Not => a == 0,
            _ => panic!("{fun:?} of bool"),
        });
    }
    let bits = 8 * from.size() as i128;
    let unsigned = a & ((1i128 << bits) - 1);
    let whole = match fun {
        Fun::Neg => -a,
        Fun::Sign => a.signum(),
        Fun::Abs => a.abs(),
        Fun::Not => !a,
        Fun::Add => a + b,
        Fun::Sub => a - b,
        Fun::Mul => a.wrapping_mul(b),
        Fun::Div => a.checked_div(b).unwrap_or(-1),
        Fun::Rem => a.checked_rem(b).unwrap_or(a),
        Fun::Max => a.max(b),
        Fun::Min => a.min(b),
        Fun::Pow => (0..b).fold(1i128, |p, _| cast(Int(p.wrapping_mul(a)), from).to_i128()),
        Fun::And => a & b,
        Fun::Or => a | b,
        Fun::Xor => a ^ b,
        Fun::ShiftLeft => {
            if (0..bits).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Fun::ShiftRightLogical => {
            if (0..bits).contains(&b) {
                unsigned >> b
            } else {
                0
            }
        }
        Fun::ShiftRightArithmetic => {
            let signed = if unsigned >> (bits - 1) == 1 { unsigned - (1 << bits) } else { unsigned };
            signed >> b.clamp(0, bits - 1)
        }
        _ => panic!("{fun:?} of integers"),
    };
    cast(Int(whole), to)
}

fn on_floats(fun: Fun, dtype: DType, a: f64, b: f64) -> f64 {
    match fun {
        Fun::Neg => -a,
        Fun::Sign => {
            if a == 0.0 || a.is_nan() {
                a
            } else {
                a.signum()
            }
        }
        Fun::Abs => a.abs(),
        Fun::Floor => a.floor(),
        Fun::Ceil => a.ceil(),
        Fun::Round => a.round(),
        Fun::Exp => a.exp(),
        Fun::Exp2 => a.exp2(),
        Fun::Expm1 => a.exp_m1(),
        Fun::Log => a.ln(),
        Fun::Log1p => a.ln_1p(),
        Fun::Sin => a.sin(),
        Fun::Cos => a.cos(),
        Fun::Tan => a.tan(),
        Fun::Asin => a.asin(),
        Fun::Acos => a.acos(),
        Fun::Atan => a.atan(),
        Fun::Sinh => a.sinh(),
        Fun::Cosh => a.cosh(),
        Fun::Tanh => a.tanh(),
        Fun::Asinh => libm::asinh(a),
        Fun::Acosh => libm::acosh(a),
        Fun::Atanh => libm::atanh(a),
        Fun::Sqrt => a.sqrt(),
        Fun::Rsqrt => 1.0 / a.sqrt(),
        Fun::Cbrt => a.cbrt(),
        Fun::Logistic => 1.0 / (1.0 + (-a).exp()),
        Fun::Erf => libm::erf(a),
        Fun::ErfInv => erf_inv(a),
        Fun::Add => a + b,
        Fun::Sub => a - b,
        Fun::Mul => a * b,
        Fun::Div => a / b,
        Fun::Rem => a % b,
        Fun::Max => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(b)
            }
        }
        Fun::Min => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.min(b)
            }
        }
        Fun::Pow => a.powf(b),
        Fun::Atan2 => a.atan2(b),
        Fun::NextAfter if dtype == DType::F32 => f64::from(libm::nextafterf(a as f32, b as f32)),
        Fun::NextAfter => libm::nextafter(a, b),
        _ => panic!("{fun:?} of floats"),
    }
}

/// By Newton's method on erf.
fn erf_inv(y: f64) -> f64 {
    if y.abs() >= 1.0 {
        return if y.abs() == 1.0 { f64::INFINITY.copysign(y) } else { f64::NAN };
    }
    let l = (-y * y).ln_1p();
    let (a, half) = (0.147, 2.0 / (std::f64::consts::PI * 0.147) + l / 2.0);
    let mut x = ((half * half - l / a).sqrt() - half).sqrt().copysign(y);
    for _ in 0..8 {
        x -= (libm::erf(x) - y) * std::f64::consts::PI.sqrt() / 2.0 * (x * x).exp();
    }
    x
}

fn bitcast(x: Scalar, from: DType, to: DType) -> Scalar {
    let bits: u64 = match (x, from) {
        (Scalar::Float(f), DType::F16) => half::f16::from_f64(f).to_bits().into(),
        (Scalar::Float(f), DType::BF16) => half::bf16::from_f64(f).to_bits().into(),
        (Scalar::Float(f), DType::F32) => (f as f32).to_bits().into(),
        (Scalar::Float(f), _) => f.to_bits(),
        (x, _) => x.to_i128() as u64,
    };
    match to {
        DType::F16 => Scalar::Float(half::f16::from_bits(bits as u16).to_f64()),
        DType::BF16 => Scalar::Float(half::bf16::from_bits(bits as u16).to_f64()),
        DType::F32 => Scalar::Float(f32::from_bits(bits as u32).into()),
        DType::F64 => Scalar::Float(f64::from_bits(bits)),
        to => cast(Scalar::Int(bits.into()), to),
    }
}

/// The 20 rounds of threefry on two words.
fn threefry(key: [u32; 2], [mut a, mut b]: [u32; 2]) -> (u32, u32) {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let rotations = [[13, 15, 26, 6], [17, 29, 16, 24]];
    (a, b) = (a.wrapping_add(keys[0]), b.wrapping_add(keys[1]));
    for group in 0..5u32 {
        for r in rotations[group as usize % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(r) ^ a;
        }
        let g = group as usize;
        a = a.wrapping_add(keys[(g + 1) % 3]);
        b = b.wrapping_add(keys[(g + 2) % 3]).wrapping_add(group + 1);
    }
    (a, b)
}
