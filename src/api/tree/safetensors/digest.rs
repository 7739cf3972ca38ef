//! XXH64: the digest of tensors and headers, which finds damaged files.

const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];
/// The number of bytes that one round of the four lanes takes.
const STRIPE_BYTES: usize = 32;

/// The state of XXH64 with seed 0, over bytes that arrive in pieces.
///
/// It equals `xxhash.xxh64` of Python.
pub(super) struct Xxh64 {
    lanes: [u64; 4],
    /// The bytes after the last whole stripe.
    pending: Vec<u8>,
    /// The number of bytes so far.
    total: u64,
}

/// Returns the digest of these bytes.
pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let mut state = Xxh64::new();
    state.update(bytes);
    state.finish()
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

impl Xxh64 {
    pub(super) fn new() -> Xxh64 {
        let [p1, p2, ..] = PRIMES;
        let lanes = [p1.wrapping_add(p2), p2, 0, p1.wrapping_neg()];
        Xxh64 { lanes, pending: Vec::with_capacity(STRIPE_BYTES), total: 0 }
    }
    /// Adds bytes.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if !self.pending.is_empty() {
            let (start, rest) = bytes.split_at(bytes.len().min(STRIPE_BYTES - self.pending.len()));
            self.pending.extend_from_slice(start);
            bytes = rest;
            if self.pending.len() < STRIPE_BYTES {
                return;
            }
            let stripe = std::mem::take(&mut self.pending);
            self.add_stripes(&stripe);
        }
        let whole = bytes.len() / STRIPE_BYTES * STRIPE_BYTES;
        self.add_stripes(&bytes[..whole]);
        self.pending.extend_from_slice(&bytes[whole..]);
    }
    fn add_stripes(&mut self, bytes: &[u8]) {
        let mut lanes = self.lanes;
        let (stripes, _) = bytes.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        self.lanes = lanes;
    }
    /// Returns the digest of all bytes.
    pub(super) fn finish(&self) -> u64 {
        let [p1, p2, p3, p4, p5] = PRIMES;
        let mut hash = if self.total >= STRIPE_BYTES as u64 {
            let turns = self.lanes.iter().zip([1, 7, 12, 18]);
            let sum = turns.fold(0u64, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)));
            let merge = |hash: u64, lane: &u64| (hash ^ round(0, *lane)).wrapping_mul(p1).wrapping_add(p4);
            self.lanes.iter().fold(sum, merge)
        } else {
            p5
        };
        hash = hash.wrapping_add(self.total);
        let mut rest = &self.pending[..];
        while let Some((eight, after)) = rest.split_at_checked(8) {
            hash = (hash ^ round(0, word(eight))).rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
            rest = after;
        }
        if let Some((four, after)) = rest.split_at_checked(4) {
            hash = (hash ^ word(four).wrapping_mul(p1)).rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
            rest = after;
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(p2);
        hash = (hash ^ (hash >> 29)).wrapping_mul(p3);
        hash ^ (hash >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are those of `xxhash.xxh64_intdigest` in Python.
    #[test]
    fn digests_are_those_of_xxhash() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (n, digest) in [
            (0, 0xEF46_DB37_51D8_E999),
            (1, 0xE934_A84A_DB05_2768),
            (4, 0xFFCE_D860_4453_CC1E),
            (7, 0x14CC_643F_630C_72D2),
            (12, 0x424A_F23F_1F08_DCA5),
            (31, 0xC346_D2B5_9B4D_8EE1),
            (32, 0xCBF5_9C51_16FF_32B4),
            (33, 0x0C53_5D1A_CAFB_8EAD),
            (63, 0xE26A_A9E2_A95F_8E4F),
            (64, 0xF7C6_7301_DB67_13F0),
            (100, 0x6AC1_E580_3216_6597),
            (1000, 0x6EF4_36B0_0EBA_4078),
        ] {
            assert_eq!(xxh64(&bytes[..n]), digest, "{n}");
            // in pieces of any size
            for piece in [1, 5, 31, 32, 33] {
                let mut state = Xxh64::new();
                bytes[..n].chunks(piece).for_each(|piece| state.update(piece));
                assert_eq!(state.finish(), digest, "{n} in pieces of {piece}");
            }
        }
    }
}
