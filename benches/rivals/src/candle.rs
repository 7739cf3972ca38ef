//! The candle implementations: fused operations where candle has them, and candle's gradients.

use crate::bench::{
    ATTENTION, Case, HOST, MLP, ROWS, Sizes, TRANSFORMER, case, data, many, mean, size, unchecked, weights,
};
use candle_core::{D, DType, Device, IndexOp, Result, Tensor, Var};
use candle_nn::ops;

const CPU: &Device = &Device::Cpu;

fn array(seed: u32, shape: &[usize], by: f32) -> Result<Tensor> {
    Tensor::from_vec(data(seed, shape.iter().product(), by), shape, CPU)
}

fn var(seed: u32, shape: &[usize], by: f32) -> Result<Var> {
    Var::from_tensor(&array(seed, shape, by)?)
}

fn check(x: &Result<Tensor>) -> f64 {
    mean(&x.as_ref().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap())
}

fn first(x: &Result<Vec<Tensor>>) -> f64 {
    mean(&x.as_ref().unwrap()[0].flatten_all().unwrap().to_vec1::<f32>().unwrap())
}

fn norm(x: &Tensor) -> Result<Tensor> {
    let y = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let v = y.sqr()?.mean_keepdim(D::Minus1)?;
    y.broadcast_div(&(v + 1e-5)?.sqrt()?)
}

/// Computes attention. If `fused`, it uses the softmax that has no gradient.
fn attention(x: &Tensor, w: &[Var], o: Sizes, fused: bool) -> Result<Tensor> {
    let (b, n, d) = (o.batch, o.places, o.features);
    let k = d / o.heads;
    let flat = x.reshape((b * n, d))?;
    let head = |w: &Var| flat.matmul(w)?.reshape((b, n, o.heads, k))?.transpose(1, 2)?.contiguous();
    let (q, ke, v) = (head(&w[0])?, head(&w[1])?, head(&w[2])?);
    let a = (q.matmul(&ke.t()?)? / (k as f64).sqrt())?;
    let a = if fused { ops::softmax_last_dim(&a)? } else { ops::softmax(&a, D::Minus1)? };
    let y = a.matmul(&v)?.transpose(1, 2)?.reshape((b * n, d))?;
    y.matmul(&w[3])?.reshape((b, n, d))
}

fn layer(x: &Tensor, w: &[Var]) -> Result<Tensor> {
    let o = TRANSFORMER;
    let x = (x + attention(&norm(x)?, w, o, false)?)?;
    let m = norm(&x)?.reshape((o.batch * o.places, o.features))?.matmul(&w[4])?.relu()?.matmul(&w[5])?;
    &x + m.reshape((o.batch, o.places, o.features))?
}

fn step(ps: &[Var], loss: &Tensor) -> Result<Vec<Tensor>> {
    let g = loss.backward()?;
    ps.iter().map(|p| p.as_tensor() - (g.get(p).unwrap() * 0.01)?).collect()
}

pub fn line(line: &str) -> Option<Case> {
    program(line).unwrap()
}

fn program(line: &str) -> Result<Option<Case>> {
    let n = size(line);
    let square = |seed| array(seed, &[n, n], 1.0);
    let table = |seed| array(seed, &[ROWS.0, ROWS.1], 1.0);
    Ok(match line.split('/').next().unwrap_or(line) {
        "affine" => {
            let x = square(1)?;
            case(check, move || x.affine(2.0, 1.0))
        }
        "sin" => {
            let x = square(1)?;
            case(check, move || x.sin()?.affine(2.0, 1.0))
        }
        "sum" => {
            let x = square(1)?;
            case(check, move || x.sum(0))
        }
        "matmul" => {
            let (x, y) = (square(1)?, square(2)?);
            case(check, move || x.matmul(&y))
        }
        "matvec" => {
            let (x, y) = (square(1)?, array(2, &[n, 1], 1.0)?);
            case(check, move || x.matmul(&y))
        }
        "logistic" => {
            let x = array(1, &[1024, 32], 1.0)?;
            let y = x.matmul(&array(2, &[32, 1], 1.0)?)?.gt(0.0)?.to_dtype(DType::F32)?;
            let zeros = |n: &[usize]| Var::from_tensor(&Tensor::zeros(n, DType::F32, CPU)?);
            let ps = vec![zeros(&[32, 1])?, zeros(&[1])?];
            case(first, move || {
                let p = ops::sigmoid(&x.matmul(&ps[0])?.broadcast_add(&ps[1])?)?;
                step(&ps, &(p - &y)?.sqr()?.mean_all()?)
            })
        }
        "mlp" => {
            let (b, d, h) = MLP;
            let ps = vec![var(1, &[d, h], 0.04)?, var(2, &[h, d], 0.03)?];
            let (x, y) = (array(3, &[b, d], 1.0)?, array(4, &[b, d], 1.0)?);
            case(first, move || {
                let p = x.matmul(&ps[0])?.relu()?.matmul(&ps[1])?;
                step(&ps, &(p - &y)?.sqr()?.mean_all()?)
            })
        }
        "heat1d" => {
            let n = 1 << 20;
            let x = array(1, &[n], 1.0)?;
            case(check, move || {
                let mut x = x.clone();
                for _ in 0..100 {
                    let inner = ((x.i(1..n - 1)? * 0.5)? + (x.i(..n - 2)? * 0.25)? + (x.i(2..)? * 0.25)?)?;
                    x = Tensor::cat(&[&x.i(..1)?, &inner, &x.i(n - 1..)?], 0)?;
                }
                Ok(x)
            })
        }
        "stencil2d" => {
            let n = 2048;
            let x = array(1, &[n, n], 1.0)?;
            case(check, move || {
                let mut x = x.clone();
                for _ in 0..20 {
                    let c = x.i((1..n - 1, 1..n - 1))?;
                    let around = (x.i((..n - 2, 1..n - 1))? + x.i((2.., 1..n - 1))?)?;
                    let around = ((around + x.i((1..n - 1, ..n - 2))?)? + x.i((1..n - 1, 2..))?)?;
                    let inner = (&c + ((around - (&c * 4.0)?)? * 0.1)?)?;
                    let mid = Tensor::cat(&[&x.i((1..n - 1, ..1))?, &inner, &x.i((1..n - 1, n - 1..))?], 1)?;
                    x = Tensor::cat(&[&x.i(..1)?, &mid, &x.i(n - 1..)?], 0)?;
                }
                Ok(x)
            })
        }
        "softmax" => {
            let x = table(1)?;
            case(check, move || ops::softmax_last_dim(&x))
        }
        "layernorm" => {
            let x = table(1)?;
            let (one, zero) =
                (Tensor::ones(ROWS.1, DType::F32, CPU)?, Tensor::zeros(ROWS.1, DType::F32, CPU)?);
            case(check, move || ops::layer_norm(&x, &one, &zero, 1e-5))
        }
        "softmax_grad" | "layernorm_grad" => {
            let (x, y) = (Var::from_tensor(&table(1)?)?, table(2)?);
            let f = if line == "softmax_grad" { |x: &Tensor| ops::softmax(x, D::Minus1) } else { norm };
            case(check, move || {
                let g = (f(&x)? * &y)?.sum_all()?.backward()?;
                Ok(g.get(&x).unwrap().clone())
            })
        }
        "attention" | "attention_grad" => {
            let o = ATTENTION;
            let x = Var::from_tensor(&array(1, &[o.batch, o.places, o.features], 1.0)?)?;
            let w: Vec<Var> =
                (0..4).map(|i| var(2 + i, &[o.features, o.features], 0.04)).collect::<Result<_>>()?;
            if line == "attention" {
                let x = x.as_detached_tensor();
                case(check, move || attention(&x, &w, o, true))
            } else {
                case(first, move || {
                    let g = attention(&x, &w, o, false)?.sqr()?.mean_all()?.backward()?;
                    Ok([&x].into_iter().chain(&w).map(|v| g.get(v).unwrap().clone()).collect())
                })
            }
        }
        "transformer" => {
            let o = TRANSFORMER;
            let shape = [o.batch, o.places, o.features];
            let (x, y) = (array(100, &shape, 1.0)?, array(101, &shape, 1.0)?);
            let layers = (0..o.layers as u32).flat_map(|l| {
                (0u32..).zip(weights(o.features)).map(move |(j, (n, m, by))| var(10 * l + j, &[n, m], by))
            });
            let ps: Vec<Var> = layers.collect::<Result<_>>()?;
            case(first, move || {
                let out = ps.chunks(6).try_fold(x.clone(), |x, w| layer(&x, w))?;
                step(&ps, &(out - &y)?.sqr()?.mean_all()?)
            })
        }
        "from_vec" => {
            let v = data(1, HOST, 1.0);
            case(unchecked, move || Tensor::from_slice(&v, HOST, CPU))
        }
        "to_vec" => {
            let x = array(1, &[HOST], 1.0)?;
            case(unchecked, move || x.to_vec1::<f32>())
        }
        "add" | "chain" => {
            let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], 4, CPU)?;
            let y = x.copy()?;
            if line == "add" {
                many(1000, check, move || &x + &y)
            } else {
                many(200, check, move || ((&x + &y)? * 2.0)?.sin()?.sum_all())
            }
        }
        _ => None,
    })
}
