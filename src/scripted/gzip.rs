//! Gzip of nothing but zeros: a small answer that becomes a huge one.
//!
//! One block of fixed codes (RFC 1951), in which thirteen bits stand for 258 zeros.

/// How many bytes of a stream are handed out at a time.
const PIECE: usize = 16 * 1024;
/// How many zeros one repetition stands for.
const REPEATED: u64 = 258;
/// The polynomial of the checksum, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// A gzip stream of so many zeros, in pieces.
pub(super) fn zeros(count: u64) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
    let repetitions = count.saturating_sub(1) / REPEATED;
    let literals = count - repetitions * REPEATED;
    let mut bits = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], ..Bits::default() };
    // The last block, of fixed codes.
    bits.push(0b011, 3);
    for _ in 0..literals {
        bits.push(0b0000_1100, 8);
    }
    let mut left = repetitions;
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        while left > 0 && bits.bytes.len() < PIECE {
            // The code of the greatest length, and five bits for the distance one.
            bits.push(0b1010_0011, 13);
            left -= 1;
        }
        if left == 0 {
            ended = true;
            bits.push(0, 7);
            bits.fill_up();
            bits.bytes.extend(checksum(count).to_le_bytes());
            bits.bytes.extend(count.to_le_bytes().iter().take(4));
        }
        Some(std::mem::take(&mut bits.bytes))
    })
}

/// Bits in the order of a deflate stream; codes are handed in with their first bit lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    fn push(&mut self, bits: u32, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.extend(self.held.to_le_bytes().first());
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn fill_up(&mut self) {
        self.push(0, (8 - self.count) % 8);
    }
}

/// The CRC-32 of so many zeros, by squaring, since they may be many.
fn checksum(count: u64) -> u32 {
    let (mut power, mut square) = (1 << 31, 1 << 30);
    let mut exponent = u128::from(count) * 8;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = times(square, power);
        }
        square = times(square, square);
        exponent >>= 1;
    }
    !times(power, u32::MAX)
}

/// The product of two polynomials, modulo the one of the checksum.
fn times(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    for power in (0..32).rev() {
        if one & (1 << power) != 0 {
            product ^= other;
        }
        other = (other >> 1) ^ if other & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_zeros_is_the_known_one() {
        assert_eq!(checksum(0), 0);
        assert_eq!(checksum(1), 0xd202_ef8d);
        assert_eq!(checksum(4), 0x2144_df1c);
    }

    #[test]
    fn a_gigabyte_of_zeros_is_a_few_megabytes() {
        let length: usize = zeros(1 << 30).map(|piece| piece.len()).sum();
        assert!((6_000_000..7_000_000).contains(&length), "{length}");
    }
}
