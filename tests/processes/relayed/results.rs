//! Comparison of results on the devices of several processes with those of one process.

use atmesh::prelude::*;
use atmesh::{Complex, Error};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

/// The digests of blocks: the name of the array and the index range of the block.
pub(crate) type Digests = BTreeMap<String, u64>;

/// Returns the tolerance for results of this type, relative to the maximum absolute value.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        F16 => 3e-3,
        BF16 => 2e-2,
        d if d.is_inexact() => 2e-6,
        _ => 0.0,
    }
}

/// Returns the words of keys, and other elements as complex numbers.
fn elements(x: &Array) -> Result<Vec<Complex<f64>>> {
    Ok(match x.dtype()? {
        // complex numbers have 53 bits
        I64 => x
            .to_vec::<i64>()?
            .iter()
            .map(|n| Complex::new((n >> 32) as f64, (n & 0xffff_ffff) as f64))
            .collect(),
        U64 => x
            .to_vec::<u64>()?
            .iter()
            .map(|n| Complex::new((n >> 32) as f64, (n & 0xffff_ffff) as f64))
            .collect(),
        _ => x.astype(C128).to_vec()?,
    })
}

/// Returns the elements of a block of an array of this shape.
fn block<T: Copy>(all: &[T], shape: &[usize], index: &[Range<usize>]) -> Vec<T> {
    let mut places = vec![0];
    for (range, size) in index.iter().zip(shape) {
        places = places.iter().flat_map(|place| range.clone().map(move |i| place * size + i)).collect();
    }
    places.into_iter().map(|place| all[place]).collect()
}

/// Compares the blocks of this process with an array that is on no mesh, and adds their digests.
///
/// It sends no messages. The error says which elements differ.
pub(crate) fn compare(name: &str, many: &Array, one: &Array, digests: &mut Digests) -> Result<()> {
    compare_with(name, many, one, &[], digests)
}

/// Returns the maximum absolute value of finite elements.
fn maximum(elements: &[Complex<f64>]) -> f64 {
    elements.iter().map(|x| x.norm()).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// Compares the blocks as [`compare`] does, for a result that is computed from these values.
///
/// XLA adds in another order, so a sum that is small because its terms cancel differs by the rounding
/// of its terms. The tolerance is therefore relative to the elements of `sources`, too, but to at
/// most 1, so that large intermediate values do not hide differences.
pub(crate) fn compare_with(
    name: &str,
    many: &Array,
    one: &Array,
    sources: &[Array],
    digests: &mut Digests,
) -> Result<()> {
    let fail = |why: String| Err(Error::other(format!("{name}: {why}")));
    let (dtype, shape) = (one.dtype()?, one.shape()?.to_vec());
    if (many.dtype()?, &many.shape()?.to_vec()) != (dtype, &shape) {
        return fail(format!("{} instead of {}", type_of(many), type_of(one)));
    }
    let all = elements(one)?;
    let mut largest = maximum(&all);
    for source in sources {
        largest = largest.max(maximum(&elements(source)?).min(1.0));
    }
    let near = tolerance(dtype) * if largest == 0.0 { 1.0 } else { largest };
    for shard in many.shards()? {
        let (theirs, ours) = (elements(&shard.data)?, block(&all, &shape, &shard.index));
        let mut hasher = DefaultHasher::new();
        theirs.iter().for_each(|x| (x.re.to_bits(), x.im.to_bits()).hash(&mut hasher));
        digests.insert(format!("{name} {:?}", shard.index), hasher.finish());
        for (a, b) in theirs.iter().zip(&ours) {
            let is_near = a == b || a.is_nan() && b.is_nan() || (a - b).norm() <= near;
            if !is_near || theirs.len() != ours.len() {
                return fail(format!("{a} instead of {b}, of at most {largest}, in {:?}", shard.index));
            }
        }
    }
    Ok(())
}

/// Prints digests, which [`same_digests`] compares.
pub(crate) fn print_digests(digests: &Digests) {
    println!();
    digests.iter().for_each(|(name, digest)| println!("digest {name}: {digest:x}"));
}

/// Checks that processes have the same bits of the same block. Returns the number of blocks.
pub(crate) fn same_digests<'a>(outputs: impl IntoIterator<Item = &'a str>) -> usize {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for line in outputs.into_iter().flat_map(str::lines) {
        let Some((name, digest)) = line.strip_prefix("digest ").and_then(|line| line.rsplit_once(": "))
        else {
            continue;
        };
        assert_eq!(*known.entry(name).or_insert(digest), digest, "bits of {name} differ between processes");
    }
    known.len()
}
