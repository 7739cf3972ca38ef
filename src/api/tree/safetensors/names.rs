//! The rules by which tensors of files become arrays of a tree: other names, and parts of tensors.

use super::files::TensorFiles;
use crate::api::array::Array;
use crate::core::{ArrayType, Error, Fault, types::with_dtype};
use std::collections::BTreeMap;
use std::ops::Range;

/// A rule for the tensors whose names match a pattern, in which `*` stands for any text.
#[derive(Clone, Debug)]
pub(super) enum NameRule {
    /// The tensors get another name, in which each `*` is the text that it stands for.
    Rename { pattern: String, name: String },
    /// The tensors also have another name.
    Copy { pattern: String, name: String },
    /// The dimensions of the tensors are reversed.
    Transpose { pattern: String },
    /// The tensors are split along a dimension, into parts with these names and sizes. Parts of
    /// size `None` are equal.
    Split { pattern: String, dim: i64, parts: Vec<(String, Option<usize>)> },
}

/// A block of a stored tensor, with permuted dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorSlice {
    /// The name of the tensor in its file.
    pub(super) tensor: String,
    /// The type of the tensor in its file.
    stored: ArrayType,
    /// The index range in each stored dimension.
    index: Vec<Range<usize>>,
    /// The stored dimension of each dimension of the slice.
    permutation: Vec<usize>,
}

impl TensorSlice {
    fn whole(tensor: &str, stored: ArrayType) -> TensorSlice {
        let index = stored.shape.iter().map(|size| 0..*size).collect();
        let permutation = (0..stored.rank()).collect();
        TensorSlice { tensor: tensor.into(), stored, index, permutation }
    }
    /// Returns the type of the slice.
    pub(super) fn ty(&self) -> ArrayType {
        let sizes = self.permutation.iter().map(|dim| self.index[*dim].len());
        self.stored.dtype.array_type(sizes.collect::<Vec<_>>())
    }
    fn is_whole(&self) -> bool {
        self.index.iter().zip(self.stored.shape.iter()).all(|(range, size)| *range == (0..*size))
    }
    /// Reads the slice, and no other data; the tensor is compared with its digest.
    pub(super) fn read(&self, files: &mut TensorFiles) -> Result<Array, Fault> {
        let read = if self.is_whole() {
            files.read_tensor(&self.tensor)?
        } else {
            files.verify(&self.tensor)?;
            files.read_tensor_block(&self.tensor, &self.index)?
        };
        if self.permutation.is_sorted() {
            return Ok(read);
        }
        let permuted = read.transpose(self.permutation.clone()).ready();
        permuted.map_err(|error| fault!(Internal, "{}: {error}", self.tensor))
    }
    /// Reads the block of the slice with this index range in each of its dimensions. The tensor is
    /// not compared with its digest.
    pub(super) fn read_block(&self, files: &mut TensorFiles, block: &[Range<usize>]) -> Result<Array, Fault> {
        let mut index = self.index.clone();
        for (dim, range) in self.permutation.iter().zip(block) {
            let start = self.index[*dim].start;
            index[*dim] = start + range.start..start + range.end;
        }
        let read = files.read_tensor_block(&self.tensor, &index)?;
        if self.permutation.is_sorted() {
            return Ok(read);
        }
        // processes may have different numbers of blocks, so no program of all of them does it
        let failed = |error: Error| fault!(Internal, "{}: {error}", self.tensor);
        let permuted = with_dtype!(self.stored.dtype, T => {
            let view = read.view::<T>().map_err(failed)?;
            Array::from(view.array().permuted_axes(self.permutation.clone()))
        });
        permuted.ready().map_err(failed)
    }
    /// Splits the slice along a dimension, which may be negative, into parts of these sizes.
    fn split(&self, dim: i64, sizes: &[Option<usize>]) -> Result<Vec<TensorSlice>, Fault> {
        let ty = self.ty();
        let rank = ty.rank() as i64;
        let from_start = if dim < 0 { dim + rank } else { dim };
        if !(0..rank).contains(&from_start) {
            return Err(fault!(Shape, "`{}` is {ty}, which has no dimension {dim}", self.tensor)
                .help("give a dimension of the tensor"));
        }
        let stored_dim = self.permutation[from_start as usize];
        let (all, parts) = (ty.shape[from_start as usize], sizes.len());
        let equal = all / parts.max(1);
        let sizes: Vec<usize> = sizes.iter().map(|size| size.unwrap_or(equal)).collect();
        if sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size)) != Some(all) {
            return Err(fault!(
                Shape,
                "`{}` is {ty}: dimension {dim} of size {all} cannot be split into {parts} parts of sizes {sizes:?}",
                self.tensor
            )
            .help("give the size of each part: `split_sizes`"));
        }
        let mut start = self.index[stored_dim].start;
        let part = |size: usize| {
            let mut part = self.clone();
            part.index[stored_dim] = start..start + size;
            start += size;
            part
        };
        Ok(sizes.into_iter().map(part).collect())
    }
}

/// Returns the texts that the `*`s of a pattern stand for, if the name matches it.
///
/// Each `*` stands for as little text as possible.
pub(super) fn captures<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let Some((start, rest)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let name = name.strip_prefix(start)?;
    let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().find_map(|end| {
        let mut after = captures(rest, &name[end..])?;
        after.insert(0, &name[..end]);
        Some(after)
    })
}

/// Returns the name with each `*` replaced by a text; further `*`s stay, and are an error.
fn fill(name: &str, texts: &[&str]) -> Result<String, Fault> {
    let stars = name.matches('*').count();
    if stars > texts.len() {
        return Err(fault!(Syntax, "`{name}` has {stars} `*`, but its pattern has {}", texts.len())
            .help("each `*` of the name is the text of the same `*` of the pattern"));
    }
    let mut texts = texts.iter();
    let fill = |part: (usize, &str)| match part.0 {
        0 => part.1.to_string(),
        _ => format!("{}{}", texts.next().copied().unwrap_or_default(), part.1),
    };
    Ok(name.split('*').enumerate().map(fill).collect())
}

/// Returns the tensors of the files by the names that the rules give them.
pub(super) fn named_slices(
    files: &TensorFiles,
    rules: &[NameRule],
) -> Result<BTreeMap<String, TensorSlice>, Fault> {
    let whole = |name: &str| -> Option<(String, TensorSlice)> {
        // a tensor of a type that arrays lack is an error only if it is used
        Some((name.into(), TensorSlice::whole(name, files.tensor_type(name).ok()?)))
    };
    let mut slices: Vec<(String, TensorSlice)> = files.names().filter_map(whole).collect();
    for rule in rules {
        let (mut next, mut matched) = (Vec::new(), false);
        for (name, slice) in slices {
            match captures(rule.pattern(), &name) {
                Some(texts) => {
                    matched = true;
                    next.extend(rule.apply(&name, &texts, slice.clone())?);
                }
                None => next.push((name, slice)),
            }
        }
        if !matched {
            let names: Vec<&str> = next.iter().take(8).map(|(name, _)| name.as_str()).collect();
            return Err(fault!(Tree, "no tensor has a name like `{}`", rule.pattern())
                .help(format!("there are {}, …; rules apply in order", names.join(", "))));
        }
        slices = next;
    }
    let mut found = BTreeMap::new();
    for (name, slice) in slices {
        let tensor = slice.tensor.clone();
        if let Some(other) = found.insert(name.clone(), slice) {
            return Err(fault!(Tree, "`{tensor}` and `{}` both get the name `{name}`", other.tensor)
                .help("rename them by patterns that keep them apart"));
        }
    }
    Ok(found)
}

impl NameRule {
    fn pattern(&self) -> &str {
        match self {
            NameRule::Rename { pattern, .. }
            | NameRule::Copy { pattern, .. }
            | NameRule::Transpose { pattern }
            | NameRule::Split { pattern, .. } => pattern,
        }
    }
    /// Returns what a tensor becomes whose name matches the pattern with these texts.
    fn apply(
        &self,
        own: &str,
        texts: &[&str],
        slice: TensorSlice,
    ) -> Result<Vec<(String, TensorSlice)>, Fault> {
        Ok(match self {
            NameRule::Rename { name, .. } => vec![(fill(name, texts)?, slice)],
            NameRule::Copy { name, .. } => vec![(own.into(), slice.clone()), (fill(name, texts)?, slice)],
            NameRule::Transpose { .. } => {
                let permutation = slice.permutation.iter().rev().copied().collect();
                vec![(own.into(), TensorSlice { permutation, ..slice })]
            }
            NameRule::Split { dim, parts, .. } => {
                let sizes: Vec<Option<usize>> = parts.iter().map(|part| part.1).collect();
                let names = parts.iter().map(|part| fill(&part.0, texts)).collect::<Result<Vec<_>, _>>()?;
                names.into_iter().zip(slice.split(*dim, &sizes)?).collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_as_little_as_possible() {
        assert_eq!(captures("h.*.attn.*", "h.10.attn.q.weight"), Some(vec!["10", "q.weight"]));
        assert_eq!(captures("*", ""), Some(vec![""]));
        assert_eq!(captures("*.*", "a.b.c"), Some(vec!["a", "b.c"]));
        assert_eq!(captures("*.bias", "a.bias.x"), None);
        assert_eq!(captures("wte", "wte"), Some(vec![]));
        assert_eq!(fill("*.x.*", &["a", "b"]).unwrap(), "a.x.b");
        assert_eq!(fill("*", &["a", "b"]).unwrap(), "a");
        assert!(fill("*.*", &["a"]).is_err());
    }
}
