//! What a compiled module says of itself: an `HloModuleProto` (`xla/service/hlo.proto`), of which a few fields are read.

use crate::types::{ArrayType, DType, Shape};
use std::fmt;

/// A collective of a compiled module, as XLA has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Collective {
    /// Its name in XLA: `all-reduce`, `collective-permute-start`.
    pub name: String,
    /// What it makes on each device; several where XLA has joined several.
    pub types: Vec<ArrayType>,
    /// How many devices exchange with one another, where the module lists them.
    pub devices: Option<usize>,
    /// The line that it is for, where the module has lines: `src/main.rs:12`.
    pub source: Option<String>,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (k, ty) in self.types.iter().enumerate() {
            write!(f, "{} {ty}", if k == 0 { "" } else { "," })?;
        }
        if let Some(n) = self.devices {
            write!(f, " among {n} devices")?;
        }
        self.source.iter().try_for_each(|line| write!(f, ", {line}"))
    }
}

/// A compiled module.
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    /// What each device takes; `None` where one is no array.
    pub(super) parameters: Option<Vec<(DType, Shape)>>,
    pub(super) collectives: Vec<Collective>,
}

/// XLA's numbers of the kinds of elements that both have (`xla_data.proto`).
const KINDS: [(DType, u64); 15] = [
    (DType::Bool, 1),
    (DType::I8, 2),
    (DType::I16, 3),
    (DType::I32, 4),
    (DType::I64, 5),
    (DType::U8, 6),
    (DType::U16, 7),
    (DType::U32, 8),
    (DType::U64, 9),
    (DType::F16, 10),
    (DType::F32, 11),
    (DType::F64, 12),
    (DType::C64, 15),
    (DType::BF16, 16),
    (DType::C128, 18),
];

/// What XLA's names of collectives begin with; what ends in `-done` waits for another.
const NAMES: [&str; 7] = [
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
];

/// A field of a message.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers, up to its end or to what is no field.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

/// Messages and texts in the fields of this number.
fn all(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |(n, field)| match field {
        Field::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    })
}
/// The numbers in the fields of this number, one by one or packed.
fn numbers(message: &[u8], number: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (_, field) in Fields(message).filter(|(n, _)| *n == number) {
        match field {
            Field::Number(n) => found.push(n),
            Field::Bytes(packed) => {
                let mut packed = Fields(packed);
                found.extend(std::iter::from_fn(|| packed.varint()));
            }
        }
    }
    found
}
fn text(message: &[u8], number: u64) -> Option<String> {
    let bytes = all(message, number).next().filter(|b| !b.is_empty())?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// A `ShapeProto` that is an array's.
fn array(shape: &[u8]) -> Option<(DType, Shape)> {
    let kind = *numbers(shape, 2).first()?;
    let (dtype, _) = KINDS.iter().find(|k| k.1 == kind)?;
    Some((*dtype, numbers(shape, 3).into_iter().map(|n| n as usize).collect()))
}
/// The arrays of a `ShapeProto`: one, or those of a tuple.
fn arrays(shape: &[u8]) -> Vec<ArrayType> {
    match array(shape) {
        Some((dtype, shape)) => vec![dtype.of(shape)],
        None => all(shape, 4).filter_map(array).map(|(dtype, shape)| dtype.of(shape)).collect(),
    }
}

/// How many devices there are along axes of a mesh (`MeshAxesReplicaGroupListProto`): whole ones, or pieces.
fn along(list: &[u8]) -> Option<usize> {
    let sizes: Vec<u64> = all(all(list, 1).next()?, 1).flat_map(|axis| numbers(axis, 2)).collect();
    let size = |axis: &[u8]| match all(axis, 2).next() {
        Some(piece) => numbers(piece, 2).first().copied(),
        None => sizes.get(numbers(axis, 1).first().map_or(0, |k| *k as usize)).copied(),
    };
    let sizes = all(list, 2).map(size).collect::<Option<Vec<u64>>>()?;
    sizes.into_iter().try_fold(1, |n: usize, size| n.checked_mul(usize::try_from(size).ok()?))
}

/// The line in an `OpMetadata`, by itself or as a frame of the module's list of calls.
fn line(metadata: &[u8], calls: &[u8]) -> Option<String> {
    if let (Some(file), Some(line)) = (text(metadata, 3), numbers(metadata, 4).first()) {
        return Some(format!("{file}:{line}"));
    }
    // numbers of frames, places and files begin with 1
    let entry =
        |field, number: Option<&u64>| all(calls, field).nth(usize::try_from(*number?).ok()?.checked_sub(1)?);
    let frame = entry(4, numbers(metadata, 15).first())?;
    let place = entry(3, numbers(frame, 1).first())?;
    let file = String::from_utf8_lossy(entry(1, numbers(place, 1).first())?);
    Some(format!("{file}:{}", numbers(place, 3).first()?))
}

/// An `HloInstructionProto`, if it is a collective.
fn collective(instruction: &[u8], calls: &[u8]) -> Option<Collective> {
    let name = text(instruction, 2)?;
    if name.ends_with("-done") || !NAMES.iter().any(|n| name.starts_with(n)) {
        return None;
    }
    // the lists of devices, in three places by XLA's age
    let list = all(instruction, 87).next();
    let listed = all(instruction, 49).chain(list.into_iter().flat_map(|l| all(l, 1))).next();
    let said = list.and_then(|l| all(l, 2).next()).and_then(|iota| numbers(iota, 2).first().copied());
    let devices = listed.map(|group| numbers(group, 1).len()).or(said.map(|n| n as usize));
    let devices = devices.or_else(|| along(all(instruction, 93).next()?));
    Some(Collective {
        types: all(instruction, 3).next().map(arrays).unwrap_or_default(),
        devices: devices.filter(|n| *n > 0),
        source: all(instruction, 7).next().and_then(|metadata| line(metadata, calls)),
        name,
    })
}

/// Reads a module in a form that plugins give: an `HloModuleProto`, or a message of one and its settings.
pub(super) fn read(form: &str, code: &[u8]) -> Option<Module> {
    let module = match form {
        "hlo" => code,
        "hlo_with_config" => all(code, 1).next()?,
        _ => return None,
    };
    let takes = all(module, 4).next()?;
    let calls = all(module, 17).next().unwrap_or_default();
    let instructions = all(module, 3).flat_map(|computation| all(computation, 2));
    Some(Module {
        parameters: all(takes, 1).map(array).collect(),
        collectives: instructions.filter_map(|i| collective(i, calls)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that is bytes.
    fn of(number: u8, inner: &[u8]) -> Vec<u8> {
        let key = u64::from(number) << 3 | 2;
        let mut made = Vec::new();
        if key >= 0x80 {
            made.extend([key as u8 | 0x80, (key >> 7) as u8]);
        } else {
            made.push(key as u8);
        }
        assert!(inner.len() < 0x4000);
        made.extend([inner.len() as u8 | 0x80, (inner.len() >> 7) as u8]);
        made.extend(inner);
        made
    }

    #[test]
    fn modules_tell_what_they_take_and_communicate() {
        let shape = [vec![0x10, 11], of(3, &[4, 2])].concat();
        let line = [of(3, b"main.rs"), vec![0x20, 7]].concat();
        let groups = of(49, &of(1, &[0, 1, 2, 3]));
        let reduce = [of(2, b"all-reduce"), of(3, &shape), of(7, &line), groups].concat();
        let pair = of(3, &[of(4, &shape), of(4, &[0x10, 5])].concat());
        let gather = [of(2, b"all-gather-start"), pair, of(87, &of(2, &[0x08, 4, 0x10, 2]))].concat();
        // over axes of sizes 3 and 2, of the second a piece of 2, for a line of a list of calls
        let mesh = of(1, &[of(1, &[0x10, 3]), of(1, &[0x10, 4])].concat());
        let over = [mesh, of(2, &[]), of(2, &[&[0x08, 1][..], &of(2, &[0x10, 2])].concat())].concat();
        let by_calls = of(7, &[0x78, 1]);
        let permute = [of(2, b"collective-permute"), of(3, &shape), of(93, &over), by_calls].concat();
        let calls = [of(1, b"lib.rs"), of(3, &[0x08, 1, 0x18, 9]), of(4, &[0x08, 1])].concat();
        let others = [of(2, &of(2, b"all-gather-done")), of(2, &of(2, b"add"))].concat();
        let body = [of(2, &reduce), of(2, &gather), of(2, &permute), others].concat();
        let module = [of(3, &body), of(4, &of(1, &shape)), of(17, &calls)].concat();
        let read_ = read("hlo", &module).unwrap();
        assert_eq!(read_.parameters, Some(vec![(DType::F32, [4, 2].into())]));
        let told: Vec<String> = read_.collectives.iter().map(Collective::to_string).collect();
        assert_eq!(
            told,
            [
                "all-reduce float32[4,2] among 4 devices, main.rs:7",
                "all-gather-start float32[4,2], int64[] among 2 devices",
                "collective-permute float32[4,2] among 6 devices, lib.rs:9"
            ]
        );
        assert_eq!(read("hlo_with_config", &of(1, &module)), Some(read_));
        // a parameter that is a tuple, another form, and what is cut off
        let tuple = of(4, &of(1, &[0x10, 13]));
        assert_eq!(read("hlo", &tuple).unwrap().parameters, None);
        assert_eq!(read("mlir", &module), None);
        for end in 0..module.len() {
            let _ = read("hlo", &module[..end]);
        }
    }
}
