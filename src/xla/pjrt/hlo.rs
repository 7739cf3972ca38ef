//! Reads the collectives and parameters of a compiled module from its `HloModuleProto`.

use super::proto::{
    HloInstructionProto, HloModuleProto, HloModuleProtoWithConfig, MeshAxesReplicaGroupListProto, OpMetadata,
    ShapeProto, StackFrameIndexProto,
};
use crate::core::{ArrayType, DType, Shape};
use prost::Message;
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
const PRIMITIVE_TYPES: [(DType, i32); 15] = [
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

/// Returns the type in a `ShapeProto`, if it is an array.
fn array_type(shape: &ShapeProto) -> Option<(DType, Shape)> {
    let (dtype, _) = PRIMITIVE_TYPES.iter().find(|k| k.1 == shape.element_type)?;
    let sizes = shape.dimensions.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<_>>()?;
    Some((*dtype, sizes))
}
/// Returns the arrays in a `ShapeProto`: one, or those of a tuple.
fn array_types(shape: &ShapeProto) -> Vec<ArrayType> {
    let arrays = match array_type(shape) {
        Some(array) => vec![array],
        None => shape.tuple_shapes.iter().filter_map(array_type).collect(),
    };
    arrays.into_iter().map(|(dtype, shape)| dtype.array_type(shape)).collect()
}

/// Returns the number of devices along some axes of a mesh. The axes may be full axes or sub-axes.
fn mesh_group_size(list: &MeshAxesReplicaGroupListProto) -> Option<usize> {
    let axes = &list.mesh.as_ref()?.axes;
    list.axes.iter().try_fold(1, |devices: usize, axis| {
        let size = match &axis.sub_axis {
            Some(piece) => piece.size,
            None => axes.get(usize::try_from(axis.axis_index).ok()?)?.size,
        };
        devices.checked_mul(usize::try_from(size).ok()?)
    })
}

/// Returns the source location in an `OpMetadata`.
/// It is stored there, or in a frame of the module's stack frame index.
fn source_location(metadata: &OpMetadata, calls: &StackFrameIndexProto) -> Option<String> {
    /// Returns the entry with an id. Ids start at 1.
    fn entry<T>(entries: &[T], id: i32) -> Option<&T> {
        entries.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }
    let (file, line) = if metadata.source_file.is_empty() || metadata.source_line == 0 {
        let frame = entry(&calls.stack_frames, metadata.stack_frame_id)?;
        let location = entry(&calls.file_locations, frame.file_location_id)?;
        (entry(&calls.file_names, location.file_name_id)?, location.line)
    } else {
        (&metadata.source_file, metadata.source_line)
    };
    (line > 0).then(|| format!("{file}:{line}"))
}

/// Returns an `HloInstructionProto` as a collective, if it is one.
fn collective(instruction: HloInstructionProto, calls: &StackFrameIndexProto) -> Option<XlaCollective> {
    let name = instruction.opcode;
    if name.ends_with("-done") || !COLLECTIVE_PREFIXES.iter().any(|n| name.starts_with(n)) {
        return None;
    }
    let list = instruction.device_list.unwrap_or_default();
    let group = instruction.replica_groups.first().or(list.replica_groups.first());
    let devices = group
        .map(|group| group.replica_ids.len())
        .or_else(|| usize::try_from(list.iota?.devices_per_group).ok())
        .or_else(|| mesh_group_size(instruction.mesh_axes.as_ref()?));
    Some(XlaCollective {
        types: instruction.shape.as_ref().map(array_types).unwrap_or_default(),
        devices: devices.filter(|n| *n > 0),
        source: instruction.metadata.and_then(|metadata| source_location(&metadata, calls)),
        name,
    })
}

/// Reads a module in a format that plugins return.
/// This is an `HloModuleProto`, or a message that contains one together with its configuration.
pub(super) fn read(format: &str, code: &[u8]) -> Option<HloModule> {
    let module = match format {
        "hlo" => HloModuleProto::decode(code).ok()?,
        "hlo_with_config" => HloModuleProtoWithConfig::decode(code).ok()?.module?,
        _ => return None,
    };
    let calls = module.stack_frames.unwrap_or_default();
    let instructions = module.computations.into_iter().flat_map(|computation| computation.instructions);
    Some(HloModule {
        parameters: module.signature?.parameters.iter().map(array_type).collect(),
        collectives: instructions.filter_map(|i| collective(i, &calls)).collect(),
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
