//! Reads the collectives and parameters of a compiled module from its `HloModuleProto`.
//!
//! The message is defined in `xla/service/hlo.proto`; only a few of its fields are read.

use crate::core::types::{ArrayType, DType, Shape};
use std::fmt;

/// A collective in a module that XLA has compiled.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct XlaCollective {
    /// The name in XLA, such as `all-reduce` or `collective-permute-start`.
    pub name: String,
    /// The types of its results on each device; XLA may have combined several collectives into one.
    pub types: Vec<ArrayType>,
    /// The number of devices that exchange data with one another; `None` if unknown.
    pub devices: Option<usize>,
    /// The source location that caused it, such as `src/main.rs:12`; `None` if unknown.
    pub source: Option<String>,
}

impl fmt::Display for XlaCollective {
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

/// The data that is read from a compiled module.
#[derive(Debug, PartialEq)]
pub(super) struct HloModule {
    /// The types of the parameters on each device; `None` if one is not an array.
    pub(super) parameters: Option<Vec<(DType, Shape)>>,
    pub(super) collectives: Vec<XlaCollective>,
}

/// XLA's `PrimitiveType` of each element type that XLA shares with this crate (`xla_data.proto`).
const PRIMITIVE_TYPES: [(DType, u64); 15] = [
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

/// The prefixes of XLA's names of collectives.
/// A name that ends in `-done` belongs to an operation that only waits for another one.
const COLLECTIVE_PREFIXES: [&str; 7] = [
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
];

/// A field of a protobuf message.
#[derive(Clone, Copy)]
enum ProtoField<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// An iterator over the fields of a message with their numbers.
/// It stops at the end of the message or at invalid data.
struct ProtoFields<'a>(&'a [u8]);

impl<'a> ProtoFields<'a> {
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

impl<'a> Iterator for ProtoFields<'a> {
    type Item = (u64, ProtoField<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => ProtoField::Number(self.varint()?),
            1 => ProtoField::Bytes(self.take(8)?),
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                ProtoField::Bytes(self.take(len)?)
            }
            5 => ProtoField::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

/// Returns the contents of the fields with this number: messages and strings.
fn bytes_fields(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    ProtoFields(message).filter_map(move |(n, field)| match field {
        ProtoField::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    })
}
/// Returns the integers in the fields with this number, whether or not they are packed.
fn varint_fields(message: &[u8], number: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (_, field) in ProtoFields(message).filter(|(n, _)| *n == number) {
        match field {
            ProtoField::Number(n) => found.push(n),
            ProtoField::Bytes(packed) => {
                let mut packed = ProtoFields(packed);
                found.extend(std::iter::from_fn(|| packed.varint()));
            }
        }
    }
    found
}
fn text_field(message: &[u8], number: u64) -> Option<String> {
    let bytes = bytes_fields(message, number).next().filter(|b| !b.is_empty())?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the type in a `ShapeProto`, if it is an array.
fn array_type(shape: &[u8]) -> Option<(DType, Shape)> {
    let kind = *varint_fields(shape, 2).first()?;
    let (dtype, _) = PRIMITIVE_TYPES.iter().find(|k| k.1 == kind)?;
    Some((*dtype, varint_fields(shape, 3).into_iter().map(|n| n as usize).collect()))
}
/// Returns the arrays in a `ShapeProto`: one, or those of a tuple.
fn array_types(shape: &[u8]) -> Vec<ArrayType> {
    match array_type(shape) {
        Some((dtype, shape)) => vec![dtype.array_type(shape)],
        None => bytes_fields(shape, 4)
            .filter_map(array_type)
            .map(|(dtype, shape)| dtype.array_type(shape))
            .collect(),
    }
}

/// Returns the number of devices along some axes of a mesh (`MeshAxesReplicaGroupListProto`).
/// The axes may be full axes or sub-axes.
fn mesh_group_size(list: &[u8]) -> Option<usize> {
    let sizes: Vec<u64> =
        bytes_fields(bytes_fields(list, 1).next()?, 1).flat_map(|axis| varint_fields(axis, 2)).collect();
    let size = |axis: &[u8]| match bytes_fields(axis, 2).next() {
        Some(piece) => varint_fields(piece, 2).first().copied(),
        None => sizes.get(varint_fields(axis, 1).first().map_or(0, |k| *k as usize)).copied(),
    };
    let sizes = bytes_fields(list, 2).map(size).collect::<Option<Vec<u64>>>()?;
    sizes.into_iter().try_fold(1, |n: usize, size| n.checked_mul(usize::try_from(size).ok()?))
}

/// Returns the source location in an `OpMetadata`.
/// It is stored there, or in a frame of the module's stack frame index.
fn source_location(metadata: &[u8], calls: &[u8]) -> Option<String> {
    if let (Some(file), Some(line)) = (text_field(metadata, 3), varint_fields(metadata, 4).first()) {
        return Some(format!("{file}:{line}"));
    }
    // ids of frames, locations and files start at 1
    let entry = |field, number: Option<&u64>| {
        bytes_fields(calls, field).nth(usize::try_from(*number?).ok()?.checked_sub(1)?)
    };
    let frame = entry(4, varint_fields(metadata, 15).first())?;
    let location = entry(3, varint_fields(frame, 1).first())?;
    let file = String::from_utf8_lossy(entry(1, varint_fields(location, 1).first())?);
    Some(format!("{file}:{}", varint_fields(location, 3).first()?))
}

/// Returns an `HloInstructionProto` as a collective, if it is one.
fn collective(instruction: &[u8], calls: &[u8]) -> Option<XlaCollective> {
    let name = text_field(instruction, 2)?;
    if name.ends_with("-done") || !COLLECTIVE_PREFIXES.iter().any(|n| name.starts_with(n)) {
        return None;
    }
    // the lists of devices are in one of three fields, depending on the version of XLA
    let list = bytes_fields(instruction, 87).next();
    let listed =
        bytes_fields(instruction, 49).chain(list.into_iter().flat_map(|l| bytes_fields(l, 1))).next();
    let said =
        list.and_then(|l| bytes_fields(l, 2).next()).and_then(|iota| varint_fields(iota, 2).first().copied());
    let devices = listed.map(|group| varint_fields(group, 1).len()).or(said.map(|n| n as usize));
    let devices = devices.or_else(|| mesh_group_size(bytes_fields(instruction, 93).next()?));
    Some(XlaCollective {
        types: bytes_fields(instruction, 3).next().map(array_types).unwrap_or_default(),
        devices: devices.filter(|n| *n > 0),
        source: bytes_fields(instruction, 7).next().and_then(|metadata| source_location(metadata, calls)),
        name,
    })
}

/// Reads a module in a format that plugins return.
/// This is an `HloModuleProto`, or a message that contains one together with its configuration.
pub(super) fn read(form: &str, code: &[u8]) -> Option<HloModule> {
    let module = match form {
        "hlo" => code,
        "hlo_with_config" => bytes_fields(code, 1).next()?,
        _ => return None,
    };
    let takes = bytes_fields(module, 4).next()?;
    let calls = bytes_fields(module, 17).next().unwrap_or_default();
    let instructions = bytes_fields(module, 3).flat_map(|computation| bytes_fields(computation, 2));
    Some(HloModule {
        parameters: bytes_fields(takes, 1).map(array_type).collect(),
        collectives: instructions.filter_map(|i| collective(i, calls)).collect(),
    })
}

/// Reads a module, for the fuzz target `hlo`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn fuzz_hlo_module(format: &str, code: &[u8]) {
    for collective in read(format, code).into_iter().flat_map(|module| module.collectives) {
        assert!(collective.to_string().starts_with(&collective.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a field that contains bytes.
    fn encode_bytes_field(number: u8, inner: &[u8]) -> Vec<u8> {
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
    fn parameters_and_collectives_of_modules_are_read() {
        let shape = [vec![0x10, 11], encode_bytes_field(3, &[4, 2])].concat();
        let line = [encode_bytes_field(3, b"main.rs"), vec![0x20, 7]].concat();
        let groups = encode_bytes_field(49, &encode_bytes_field(1, &[0, 1, 2, 3]));
        let reduce = [
            encode_bytes_field(2, b"all-reduce"),
            encode_bytes_field(3, &shape),
            encode_bytes_field(7, &line),
            groups,
        ]
        .concat();
        let pair = encode_bytes_field(
            3,
            &[encode_bytes_field(4, &shape), encode_bytes_field(4, &[0x10, 5])].concat(),
        );
        let gather = [
            encode_bytes_field(2, b"all-gather-start"),
            pair,
            encode_bytes_field(87, &encode_bytes_field(2, &[0x08, 4, 0x10, 2])),
        ]
        .concat();
        // devices along axes of sizes 3 and 2, where the second is a sub-axis; the location is a
        // stack frame
        let mesh = encode_bytes_field(
            1,
            &[encode_bytes_field(1, &[0x10, 3]), encode_bytes_field(1, &[0x10, 4])].concat(),
        );
        let over = [
            mesh,
            encode_bytes_field(2, &[]),
            encode_bytes_field(2, &[&[0x08, 1][..], &encode_bytes_field(2, &[0x10, 2])].concat()),
        ]
        .concat();
        let by_calls = encode_bytes_field(7, &[0x78, 1]);
        let permute = [
            encode_bytes_field(2, b"collective-permute"),
            encode_bytes_field(3, &shape),
            encode_bytes_field(93, &over),
            by_calls,
        ]
        .concat();
        let calls = [
            encode_bytes_field(1, b"lib.rs"),
            encode_bytes_field(3, &[0x08, 1, 0x18, 9]),
            encode_bytes_field(4, &[0x08, 1]),
        ]
        .concat();
        let others = [
            encode_bytes_field(2, &encode_bytes_field(2, b"all-gather-done")),
            encode_bytes_field(2, &encode_bytes_field(2, b"add")),
        ]
        .concat();
        let body = [
            encode_bytes_field(2, &reduce),
            encode_bytes_field(2, &gather),
            encode_bytes_field(2, &permute),
            others,
        ]
        .concat();
        let module = [
            encode_bytes_field(3, &body),
            encode_bytes_field(4, &encode_bytes_field(1, &shape)),
            encode_bytes_field(17, &calls),
        ]
        .concat();
        let read_ = read("hlo", &module).unwrap();
        assert_eq!(read_.parameters, Some(vec![(DType::F32, [4, 2].into())]));
        let described: Vec<String> = read_.collectives.iter().map(XlaCollective::to_string).collect();
        assert_eq!(
            described,
            [
                "all-reduce float32[4,2] among 4 devices, main.rs:7",
                "all-gather-start float32[4,2], int64[] among 2 devices",
                "collective-permute float32[4,2] among 6 devices, lib.rs:9"
            ]
        );
        assert_eq!(read("hlo_with_config", &encode_bytes_field(1, &module)), Some(read_));
        // a tuple parameter, another format, and truncated modules
        let tuple = encode_bytes_field(4, &encode_bytes_field(1, &[0x10, 13]));
        assert_eq!(read("hlo", &tuple).unwrap().parameters, None);
        assert_eq!(read("mlir", &module), None);
        for end in 0..module.len() {
            let _ = read("hlo", &module[..end]);
        }
    }
}
