//! The options of a compilation: writes a `CompileOptionsProto` byte by byte.
//!
//! The message is defined in OpenXLA's repository, in `xla/pjrt/proto/compile_options.proto`.

/// Appends a protobuf varint: seven bits per byte, the lowest first.
fn varint(mut n: u64, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}
/// Appends an integer field.
fn number(field: u64, n: u64, to: &mut Vec<u8>) {
    varint(field << 3, to);
    varint(n, to);
}
/// Appends a field that contains bytes: a string or another message.
fn bytes(field: u64, inner: &[u8], to: &mut Vec<u8>) {
    varint(field << 3 | 2, to);
    varint(inner.len() as u64, to);
    to.extend_from_slice(inner);
}

/// Returns the options for one replica, a number of Shardy partitions, and flags of XLA.
pub(super) fn compile(partitions: usize, flags: &[(&str, bool)]) -> Vec<u8> {
    // ExecutableBuildOptionsProto: replicas, partitions, SPMD partitioning, the Shardy partitioner
    let mut build = Vec::new();
    for (field, n) in [(4, 1), (5, partitions as u64), (6, 1), (19, 1)] {
        number(field, n, &mut build);
    }
    let mut all = Vec::new();
    bytes(3, &build, &mut all);
    // a map of names to OptionOverrideProto, in which a bool is field 2
    for (name, on) in flags {
        let (mut value, mut entry) = (Vec::new(), Vec::new());
        number(2, u64::from(*on), &mut value);
        bytes(1, name.as_bytes(), &mut entry);
        bytes(2, &value, &mut entry);
        bytes(7, &entry, &mut all);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn options_are_the_bytes_of_their_message() {
        assert_eq!(compile(8, &[]), [0x1a, 9, 0x20, 1, 0x28, 8, 0x30, 1, 0x98, 1, 1]);
        // 200 takes two bytes
        assert_eq!(compile(200, &[]), [0x1a, 10, 0x20, 1, 0x28, 200, 1, 0x30, 1, 0x98, 1, 1]);
        assert_eq!(compile(1, &[("f", false)])[11..], [0x3a, 7, 0x0a, 1, b'f', 0x12, 2, 0x10, 0]);
    }
}
