//! The protobuf messages that are exchanged with a plugin, with the fields that are used.
//!
//! They are defined in OpenXLA's repository: in `xla/service/hlo.proto`, `xla/xla_data.proto` and
//! `xla/pjrt/proto/compile_options.proto`. A reader skips fields that are not listed.

use prost::Message;
use std::collections::BTreeMap;

/// Declares messages: each field has its type, and its kind and number in the message.
macro_rules! messages { ($($(#[$meta:meta])* $name:ident {
    $($(#[$field_meta:meta])* $field:ident: $ty:ty = [$($kind:tt)*],)*
})*) => {$(
    $(#[$meta])*
    #[derive(PartialEq, Message)]
    pub(super) struct $name {
        $($(#[$field_meta])* #[prost($($kind)*)] pub(super) $field: $ty,)*
    }
)*} }

messages! {
    /// A module together with its configuration.
    HloModuleProtoWithConfig { module: Option<HloModuleProto> = [message, optional, tag = "1"], }

    HloModuleProto {
        computations: Vec<HloComputationProto> = [message, repeated, tag = "3"],
        signature: Option<ProgramShapeProto> = [message, optional, tag = "4"],
        stack_frames: Option<StackFrameIndexProto> = [message, optional, tag = "17"],
    }
    HloComputationProto { instructions: Vec<HloInstructionProto> = [message, repeated, tag = "2"], }

    HloInstructionProto {
        opcode: String = [string, tag = "2"],
        shape: Option<ShapeProto> = [message, optional, tag = "3"],
        metadata: Option<OpMetadata> = [message, optional, tag = "7"],
        // the lists of devices are in one of three fields, depending on the version of XLA
        replica_groups: Vec<ReplicaGroup> = [message, repeated, tag = "49"],
        device_list: Option<CollectiveDeviceListProto> = [message, optional, tag = "87"],
        mesh_axes: Option<MeshAxesReplicaGroupListProto> = [message, optional, tag = "93"],
    }
    ProgramShapeProto { parameters: Vec<ShapeProto> = [message, repeated, tag = "1"], }

    /// The type of an array, or of a tuple.
    ShapeProto {
        element_type: i32 = [int32, tag = "2"],
        dimensions: Vec<i64> = [int64, repeated, tag = "3"],
        tuple_shapes: Vec<ShapeProto> = [message, repeated, tag = "4"],
    }

    OpMetadata {
        source_file: String = [string, tag = "3"],
        source_line: i32 = [int32, tag = "4"],
        stack_frame_id: i32 = [int32, tag = "15"],
    }

    /// The source locations of a module. Ids of its entries start at 1.
    StackFrameIndexProto {
        file_names: Vec<String> = [string, repeated, tag = "1"],
        file_locations: Vec<FileLocation> = [message, repeated, tag = "3"],
        stack_frames: Vec<StackFrame> = [message, repeated, tag = "4"],
    }

    FileLocation {
        file_name_id: i32 = [int32, tag = "1"],
        line: i32 = [int32, tag = "3"],
    }
    StackFrame { file_location_id: i32 = [int32, tag = "1"], }
    ReplicaGroup { replica_ids: Vec<i64> = [int64, repeated, tag = "1"], }

    CollectiveDeviceListProto {
        replica_groups: Vec<ReplicaGroup> = [message, repeated, tag = "1"],
        iota: Option<IotaReplicaGroupListProto> = [message, optional, tag = "2"],
    }
    IotaReplicaGroupListProto { devices_per_group: i64 = [int64, tag = "2"], }

    /// The devices along some axes of a mesh.
    MeshAxesReplicaGroupListProto {
        mesh: Option<MeshProto> = [message, optional, tag = "1"],
        axes: Vec<AxisRefProto> = [message, repeated, tag = "2"],
    }
    MeshProto { axes: Vec<MeshAxisProto> = [message, repeated, tag = "1"], }
    MeshAxisProto { size: i64 = [int64, tag = "2"], }

    /// An axis of a mesh, or a sub-axis.
    AxisRefProto {
        axis_index: i64 = [int64, tag = "1"],
        sub_axis: Option<SubAxisProto> = [message, optional, tag = "2"],
    }
    SubAxisProto { size: i64 = [int64, tag = "2"], }

    CompileOptionsProto {
        executable_build_options: Option<ExecutableBuildOptionsProto> = [message, optional, tag = "3"],
        env_option_overrides: BTreeMap<String, OptionOverrideProto> = [btree_map = "string, message", tag = "7"],
    }

    ExecutableBuildOptionsProto {
        num_replicas: i64 = [int64, tag = "4"],
        num_partitions: i64 = [int64, tag = "5"],
        use_spmd_partitioning: bool = [bool, tag = "6"],
        device_assignment: Option<DeviceAssignmentProto> = [message, optional, tag = "9"],
        use_shardy_partitioner: bool = [bool, tag = "19"],
    }

    /// The devices of a module: a list for each partition, with one device for each replica.
    DeviceAssignmentProto {
        replica_count: i32 = [int32, tag = "1"],
        computation_count: i32 = [int32, tag = "2"],
        computation_devices: Vec<ComputationDeviceProto> = [message, repeated, tag = "3"],
    }
    ComputationDeviceProto { replica_device_ids: Vec<i64> = [int64, repeated, tag = "1"], }

    /// The value of a flag of XLA.
    OptionOverrideProto { bool_field: Option<bool> = [bool, optional, tag = "2"], }
}

/// Encodes the options for one replica, a number of Shardy partitions, and flags of XLA.
///
/// Partition `k` is on the device with the id `ids[k]`; if there are none, on the client's device
/// with index `k`.
pub(super) fn compile_options(partitions: usize, ids: &[i64], flags: &[(&str, bool)]) -> Vec<u8> {
    let assignment = DeviceAssignmentProto {
        replica_count: 1,
        computation_count: ids.len() as i32,
        computation_devices: ids
            .iter()
            .map(|id| ComputationDeviceProto { replica_device_ids: vec![*id] })
            .collect(),
    };
    let build = ExecutableBuildOptionsProto {
        num_replicas: 1,
        num_partitions: partitions as i64,
        use_spmd_partitioning: true,
        device_assignment: (!ids.is_empty()).then_some(assignment),
        use_shardy_partitioner: true,
    };
    let flag = |(name, on): &(&str, bool)| (name.to_string(), OptionOverrideProto { bool_field: Some(*on) });
    CompileOptionsProto {
        executable_build_options: Some(build),
        env_option_overrides: flags.iter().map(flag).collect(),
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::compile_options;

    #[test]
    fn options_are_the_bytes_of_their_message() {
        assert_eq!(compile_options(8, &[], &[]), [0x1a, 9, 0x20, 1, 0x28, 8, 0x30, 1, 0x98, 1, 1]);
        // 200 takes two bytes
        assert_eq!(compile_options(200, &[], &[]), [0x1a, 10, 0x20, 1, 0x28, 200, 1, 0x30, 1, 0x98, 1, 1]);
        assert_eq!(
            compile_options(1, &[], &[("f", false)])[11..],
            [0x3a, 7, 0x0a, 1, b'f', 0x12, 2, 0x10, 0]
        );
        // the device assignment is field 9: [1, 2, [[5], [6]]]
        let assignment = [0x4a, 14, 0x08, 1, 0x10, 2, 0x1a, 3, 0x0a, 1, 5, 0x1a, 3, 0x0a, 1, 6];
        assert_eq!(compile_options(2, &[5, 6], &[])[8..24], assignment);
    }
}
