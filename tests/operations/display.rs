//! Arrays print as in numpy: `golden/display.txt` was written by numpy (`golden/display.py`).

use atmesh::{Array, DType, Element, Shape};
use half::f16;

/// Parses the values of a case.
fn values(shape: &Shape, words: &[&str]) -> Vec<f64> {
    if words[0] == "list" {
        return words[1..].iter().map(|w| w.parse().unwrap()).collect();
    }
    let (seed, scale): (u64, f64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let hash = |i: u64| ((i * 2654435761 + seed) % (1 << 32)) as f64 / 4294967296.0 - 0.5;
    (0..shape.num_elements() as u64).map(|i| hash(i) * scale).collect()
}

/// Parses the integers of a case, which need full precision.
fn whole(shape: &Shape, words: &[&str]) -> Vec<i128> {
    if words[0] == "list" {
        return words[1..].iter().map(|w| w.parse().unwrap()).collect();
    }
    values(shape, words).iter().map(|x| *x as i128).collect()
}

fn array(dtype: DType, shape: &Shape, words: &[&str]) -> Array {
    fn reshaped<T: Element>(shape: &Shape, data: Vec<T>) -> Array {
        Array::from(data).reshape(shape)
    }
    let floats = || values(shape, words);
    let ints = || whole(shape, words);
    match dtype {
        DType::F64 => reshaped(shape, floats()),
        DType::F32 => reshaped(shape, floats().iter().map(|x| *x as f32).collect()),
        DType::F16 => reshaped(shape, floats().iter().map(|x| f16::from_f64(*x)).collect()),
        DType::Bool => reshaped(shape, ints().iter().map(|x| *x != 0).collect::<Vec<bool>>()),
        DType::I8 => reshaped(shape, ints().iter().map(|x| *x as i8).collect()),
        DType::I32 => reshaped(shape, ints().iter().map(|x| *x as i32).collect()),
        DType::I64 => reshaped(shape, ints().iter().map(|x| *x as i64).collect()),
        DType::U8 => reshaped(shape, ints().iter().map(|x| *x as u8).collect()),
        DType::U64 => reshaped(shape, ints().iter().map(|x| *x as u64).collect()),
        other => panic!("no case is {other}"),
    }
}

#[test]
fn as_numpy_prints() {
    let text = include_str!("../golden/display.txt");
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in text.split("\ncase ").skip(1) {
        let (head, rest) = case.split_once('\n').unwrap();
        let want = rest.strip_suffix('\n').unwrap_or(rest).strip_suffix("end").unwrap();
        let want = want.strip_suffix('\n').unwrap();
        let words: Vec<&str> = head.split_whitespace().collect();
        let dtype = DType::from_name(words[0]).unwrap();
        let sizes = words[1].trim_matches(['[', ']']);
        let shape: Shape =
            sizes.split(',').filter(|s| !s.is_empty()).map(|s| s.parse::<usize>().unwrap()).collect();
        let got = array(dtype, &shape, &words[2..]).to_string();
        count += 1;
        if got != want {
            wrong.push(format!(
                "{}\ngot:\n{got}\nwanted:\n{want}\n",
                head.chars().take(60).collect::<String>()
            ));
        }
    }
    assert!(count > 80, "only {count} cases were read");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
